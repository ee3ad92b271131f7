package interop

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/lab/rsocket"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// preload makes a program of the guest use rsockets where it uses sockets.
const preload = "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/rsocket/librspreload.so "

// rsocketTime bounds a conversation: the longest takes some 40 s on a machine with time.
const rsocketTime = 5 * time.Minute

// rsocketOptions are those of our end. siw takes a CRC for wrong that arrives in two pieces
// (docs/iwarp.md), and QEMU's network cuts a stream anywhere once the guest's window is full: only
// conversations of small messages have CRCs.
func rsocketOptions(crc bool) *rsocket.Options {
	o := &rsocket.Options{IOMaps: 1, KeepAlive: time.Second, Param: iwarp.ConnParam{Settle: settleTime}}
	if !crc {
		o.Param.CRC = iwarp.CRCOffIfAgreed
	}
	return o
}

// closesFirst changes the options for a program that closes as soon as it has sent its last byte. If
// anything reaches it then, its kernel resets the connection and drops what is not sent yet
// (docs/iwarp.md). So our end grants seldom: every 4 MiB, which no conversation has near its end.
func closesFirst(o *rsocket.Options) *rsocket.Options {
	o.RecvBuffer, o.Credits, o.KeepAlive = 8<<20, 32000, 0
	return o
}

// rsocketRun is one conversation with a program of the guest. guest is its command, without the
// address; ours is what our end does.
type rsocketRun struct {
	name, guest string
	crc         bool
	ours        func(c *rsocket.Conn, client bool) error
	says        string       // what the program prints in the end
	dev         iwarp.Device // of our end
}

// ourServer runs the program as a client of ours.
func (r *rsocketRun) ourServer(t *testing.T, g *Guest, format string) {
	note := row(t, r.name+" client", r.guest)
	r.dev = open(t, iwarp.Config{})
	l, err := rsocket.Listen(t.Context(), r.dev, "127.0.0.1:0", rsocketOptions(r.crc))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	j := g.Start(t, fmt.Sprintf(format, HostAddr, port), rsocketTime)
	type accepted struct {
		c   net.Conn
		err error
	}
	got := make(chan accepted, 1)
	go func() {
		c, err := l.Accept()
		got <- accepted{c, err}
	}()
	select {
	case a := <-got:
		if a.err != nil {
			t.Fatal(a.err)
		}
		r.converse(t, note, a.c.(*rsocket.Conn), false, j)
	case <-time.After(rsocketTime):
		t.Errorf("no connection; the guest says:\n%s", tail(j.Output(), 10))
	}
}

// ourClient runs the program as a server for ours.
func (r *rsocketRun) ourClient(t *testing.T, g *Guest, format string) {
	note := row(t, r.name+" server", r.guest)
	port, addr := g.Port()
	j := g.Listen(t, fmt.Sprintf(format, port), port, rsocketTime)
	ctx, cancel := context.WithTimeout(t.Context(), rsocketTime)
	defer cancel()
	r.dev = open(t, iwarp.Config{})
	c, err := rsocket.Dial(ctx, r.dev, addr, closesFirst(rsocketOptions(r.crc)))
	if err != nil {
		t.Fatal(err)
	}
	r.converse(t, note, c, true, j)
}

func (r *rsocketRun) converse(t *testing.T, note *string, c *rsocket.Conn, client bool, j *Job) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(rsocketTime)); err != nil {
		t.Error(err)
	}
	begin := time.Now()
	err := r.ours(c, client)
	took := time.Since(begin)
	if cerr := c.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Errorf("our end: %v", err)
	}
	out, status := j.Wait(t)
	if status != 0 || !strings.Contains(out, r.says) {
		t.Errorf("%s: exit status %d, want %q\n%s", r.guest, status, r.says, tail(out, 10))
	}
	*note = fmt.Sprintf("%.0f ms", took.Seconds()*1e3)
}

// ramp is the bytes that rstream and riostream send with "-T verify": 0, 1, 2 and so on.
type ramp byte

func (r *ramp) fill(p []byte) {
	for i := range p {
		p[i] = byte(*r)
		*r++
	}
}

func (r *ramp) check(p []byte) error {
	for i, b := range p {
		if b != byte(*r) {
			return fmt.Errorf("byte %d of %d is %#x, want %#x", i, len(p), b, byte(*r))
		}
		*r++
	}
	return nil
}

// streamer is the peer of rstream: the client sends all transfers of an iteration, then the server.
type streamer struct {
	c        *rsocket.Conn
	out, in  ramp
	transfer []byte
}

func (s *streamer) sends(n, size int) error {
	for range n {
		s.out.fill(s.transfer[:size])
		if _, err := s.c.Write(s.transfer[:size]); err != nil {
			return err
		}
	}
	return nil
}

func (s *streamer) receives(n, size int) error {
	for range n {
		if _, err := io.ReadFull(s.c, s.transfer[:size]); err != nil {
			return err
		}
		if err := s.in.check(s.transfer[:size]); err != nil {
			return err
		}
	}
	return nil
}

// syncBytes are exchanged by both programs before they begin.
const syncBytes = 16

func rstream(iters, count, size int) func(*rsocket.Conn, bool) error {
	return rstreamFrom(0, iters, count, size)
}

// rstreamFrom is rstream whose first bytes have been received.
func rstreamFrom(received ramp, iters, count, size int) func(*rsocket.Conn, bool) error {
	return func(c *rsocket.Conn, client bool) error {
		s := &streamer{c: c, transfer: make([]byte, max(size, syncBytes)), in: received}
		one, other := s.receives, s.sends
		if client {
			one, other = s.sends, s.receives
		}
		if err := errors.Join(one(1, syncBytes-int(received)), other(1, syncBytes)); err != nil {
			return fmt.Errorf("before the test: %w", err)
		}
		for i := range iters {
			if err := one(count, size); err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
			if err := other(count, size); err != nil {
				return fmt.Errorf("iteration %d: %w", i, err)
			}
		}
		if client {
			return nil
		}
		// With "-T async" a Disconnect keeps rstream from reading what came before it.
		_, err := io.Copy(io.Discard, c)
		return err
	}
}

// riostream is the peer of riostream: transfers are direct writes into memory that the other side
// has mapped to offset 0, and their last byte says that they are complete.
func riostream(iters, count, size int) func(*rsocket.Conn, bool) error {
	return func(c *rsocket.Conn, client bool) error {
		words := make([]uint32, size/4) // aligned, as the last word is looked at while it is written
		buf := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
		buf[size-1] = 0xff
		unmap, err := c.Map(buf, 0)
		if err != nil {
			return err
		}
		sync := make([]byte, syncBytes)
		if client {
			_, err = c.Write(sync)
		}
		if err == nil {
			_, err = io.ReadFull(c, sync)
		}
		if err == nil && !client {
			_, err = c.Write(sync)
		}
		if err != nil {
			return err
		}
		var out, in ramp
		marker := byte(0)
		send := func() error {
			p := make([]byte, size)
			for range count - 1 {
				p[size-1] = 0xff
				if _, err := c.WriteAt(p, 0); err != nil {
					return err
				}
			}
			out.fill(p[:size-1])
			p[size-1] = marker
			marker++
			_, err := c.WriteAt(p, 0)
			return err
		}
		receive := func() error {
			for end := time.Now().Add(rsocketTime); byte(atomic.LoadUint32(&words[len(words)-1])>>24) != marker; {
				if time.Now().After(end) {
					return fmt.Errorf("transfer %d has not come", marker)
				}
				time.Sleep(100 * time.Microsecond)
			}
			marker++
			return in.check(buf[:size-1])
		}
		one, other := receive, send
		if client {
			one, other = send, receive
		}
		for range iters {
			if err := errors.Join(one(), other()); err != nil {
				return err
			}
		}
		// The last direct write must not meet a connection that is closed.
		if _, err := io.Copy(io.Discard, c); err != nil {
			return err
		}
		return unmap()
	}
}

// A number of bytes, of transfers, of iterations; options of the program. Continuous integration has the
// first three.
var streamRuns = []struct {
	size, count, iters int
	options            string
	crc                bool
}{
	{64, 100, 10, "", true},
	{4000, 500, 3, "-T b", false}, // more writes than credits, more bytes than buffers
	{1 << 20, 3, 3, "-T a", false},
	{1 << 18, 4, 2, "-B 8192 -i 0 -T b", false},
	{1001, 50, 5, "", false},
}

func streamRunsOf(program string, ours func(iters, count, size int) func(*rsocket.Conn, bool) error) []*rsocketRun {
	var runs []*rsocketRun
	for _, s := range pick(streamRuns, streamRuns[:3]) {
		if program == "riostream" && s.size%4 != 0 {
			continue // the word at its end is looked at
		}
		runs = append(runs, &rsocketRun{
			name: program, crc: s.crc, ours: ours(s.iters, s.count, s.size), says: "custom",
			guest: strings.TrimSpace(fmt.Sprintf("%s -T v -S %d -C %d -I %d %s", program, s.size, s.count, s.iters, s.options)),
		})
	}
	return runs
}

// idle waits in silence until n keepalives have come, after some other FPDUs.
func (r *rsocketRun) idle(others, n uint64) error {
	before := r.dev.Stats().FPDUsReceived
	for end := time.Now().Add(rsocketTime); r.dev.Stats().FPDUsReceived < before+others+n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			return errors.New("no keepalives have come")
		}
	}
	return nil
}

// Keepalives of either side do not disturb the other.
func TestRstreamKeepAlive(t *testing.T) {
	g := Boot(t)
	r := &rsocketRun{name: "rstream, idle", guest: "rstream -T v -S 1001 -C 50 -I 2 -k 1", says: "Keepalive: ON"}
	r.ours = func(c *rsocket.Conn, client bool) error {
		if client { // it waits for our first bytes, after a grant: an RDMA Write and a Send
			if err := r.idle(2, 2); err != nil {
				return err
			}
			return rstream(2, 50, 1001)(c, true)
		}
		// It has sent a grant and its first bytes, and waits for ours.
		var first [1]byte
		if _, err := io.ReadFull(c, first[:]); err != nil || first[0] != 0 {
			return fmt.Errorf("first byte: %v, %w", first, err)
		}
		if err := r.idle(0, 2); err != nil {
			return err
		}
		return rstreamFrom(1, 2, 50, 1001)(c, false)
	}
	t.Run("server", func(t *testing.T) { r.ourServer(t, g, r.guest+" -s %s -p %s") })
	t.Run("client", func(t *testing.T) { r.ourClient(t, g, r.guest+" -p %d") })
}

func TestRstream(t *testing.T)   { testStream(t, streamRunsOf("rstream", rstream)) }
func TestRiostream(t *testing.T) { testStream(t, streamRunsOf("riostream", riostream)) }

func testStream(t *testing.T, runs []*rsocketRun) {
	g := Boot(t)
	for i, r := range runs {
		t.Run("server"+strconv.Itoa(i), func(t *testing.T) { r.ourServer(t, g, r.guest+" -s %s -p %s") })
		t.Run("client"+strconv.Itoa(i), func(t *testing.T) { r.ourClient(t, g, r.guest+" -p %d") })
	}
}

// echoed sends n bytes through an echo and returns what sock-echo says of them.
func echoed(c *rsocket.Conn, n int) (says string, err error) {
	sum := fnv.New64a()
	var wg sync.WaitGroup
	var werr error
	wg.Go(func() {
		p, x := make([]byte, 10000), lcg(1)
		for left := n; left > 0 && werr == nil; left -= len(p) {
			p = p[:min(left, len(p))]
			x.fill(p)
			_, werr = c.Write(p)
		}
		werr = errors.Join(werr, c.CloseWrite())
	})
	p, x, got := make([]byte, 10000), lcg(1), 0
	want := make([]byte, len(p))
	for {
		k, rerr := c.Read(p)
		x.fill(want[:k])
		if string(want[:k]) != string(p[:k]) {
			err = fmt.Errorf("other bytes came back after %d", got)
			break
		}
		got += k
		sum.Write(p[:k])
		if rerr != nil {
			if rerr != io.EOF {
				err = rerr
			}
			break
		}
	}
	wg.Wait()
	if err == nil && werr == nil && got != n {
		err = fmt.Errorf("%d bytes came back of %d", got, n)
	}
	return fmt.Sprintf("%d bytes, sum %016x", got, sum.Sum64()), errors.Join(werr, err)
}

// lcg is the generator of sock-echo's bytes.
type lcg uint32

func (x *lcg) fill(p []byte) {
	for i := range p {
		*x = *x*1664525 + 1013904223
		p[i] = byte(*x >> 24)
	}
}

// sock-echo is an ordinary program of sockets. With librspreload it uses RDMA without knowing it.
func TestPreload(t *testing.T) {
	g := Boot(t)
	for _, n := range []int{1, 5000, pick(64<<20, 4<<20)} {
		r := &rsocketRun{name: "sock-echo, librspreload", guest: fmt.Sprintf("sock-echo, %d bytes", n)}
		t.Run(fmt.Sprintf("server%d", n), func(t *testing.T) {
			r.ours = func(c *rsocket.Conn, _ bool) error {
				sum := fnv.New64a()
				if _, err := io.Copy(c, io.TeeReader(c, sum)); err != nil {
					return err
				}
				r.says = fmt.Sprintf("%d bytes, sum %016x", n, sum.Sum64())
				if err := c.CloseWrite(); err != nil {
					return err
				}
				_, err := io.Copy(io.Discard, c)
				return err
			}
			r.ourServer(t, g, preload+"sock-echo %s %s "+strconv.Itoa(n))
		})
		t.Run(fmt.Sprintf("client%d", n), func(t *testing.T) {
			r.ours = func(c *rsocket.Conn, _ bool) (err error) {
				r.says, err = echoed(c, n)
				return err
			}
			r.ourClient(t, g, preload+"sock-echo -l %d")
		})
	}
}

// A program that is killed says nothing: the kernel closes its connection in good order, and may
// have dropped what it wrote. So our end must not take that for the end of its data.
func TestPreloadKilled(t *testing.T) {
	g := Boot(t)
	r := &rsocketRun{name: "sock-echo, librspreload", guest: "sock-echo, killed", says: "killed"}
	r.ours = func(c *rsocket.Conn, _ bool) error {
		if n, err := io.Copy(io.Discard, c); n == 0 || err == nil {
			return fmt.Errorf("%d bytes have come, then %w", n, err)
		}
		return nil
	}
	t.Run("server", func(t *testing.T) {
		r.ourServer(t, g, "timeout -s KILL 3 env "+preload+"sock-echo %s %s 1000000000; [ $? = 137 ] && echo killed")
	})
}

// Debian's netcat, as it is. The file goes to us, and comes back when its end has been seen. As a server it is
// not tried: once it ended before all of our bytes had come, and we do not know why.
func TestPreloadNetcat(t *testing.T) {
	g := Boot(t)
	g.Run(t, fmt.Sprintf("seq %d >/tmp/lines", pick(5_000_000, 500_000)))
	// Only nc itself is preloaded, and what it got is compared with what it sent.
	const same = " </tmp/lines >/tmp/got && cmp /tmp/lines /tmp/got && echo the same $(wc -c </tmp/got)"
	var lines []byte // as nc sends them
	r := &rsocketRun{name: "netcat, librspreload", guest: "nc.traditional -n"}
	t.Run("server", func(t *testing.T) {
		r.ours = func(c *rsocket.Conn, _ bool) (err error) {
			if lines, err = io.ReadAll(c); err != nil {
				return err
			}
			if _, err = c.Write(lines); err != nil {
				return err
			}
			r.says = fmt.Sprintf("the same %d", len(lines))
			if err = c.CloseWrite(); err == nil {
				_, err = io.Copy(io.Discard, c)
			}
			return err
		}
		r.ourServer(t, g, preload+"nc.traditional -n -q 60 %s %s"+same)
	})
}

// TestRsocketIbverbs runs the tests of package rsocket on the provider ibverbs, siw with siw.
func TestRsocketIbverbs(t *testing.T) {
	g := Boot(t)
	needRDMA(t)
	note := row(t, "siw through libibverbs", "lab/rsocket is a net.Conn")
	bin := filepath.Join(t.TempDir(), "rsocket.test")
	build(t, "test", "-c", "-tags", "ibverbs", "-o", bin, "./lab/rsocket")
	path := g.Put(t, bin)
	out, status := g.Exec(t, "cd /tmp && RDISTCC_IBVERBS="+guestAddr+","+guestDevice+" "+path+" -test.v -test.timeout 280s -test.run '/ibverbs'"+pick("", " -test.short"), 5*time.Minute)
	passed := strings.Count(out, "--- PASS: ")
	*note = fmt.Sprintf("%d cases", passed)
	if status != 0 || passed < pick(2, 1)*11+10 {
		t.Errorf("exit status %d, %d cases\n%s", status, passed, tail(out, 60))
	}
}
