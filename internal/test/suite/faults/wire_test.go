package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// bend is what happens to a direction of a proxied connection.
type bend struct {
	flipAt  int // this byte, counted from 1, is changed
	cutAt   int // the connection is reset instead of this byte
	twiceAt int // the piece in which this byte is goes twice
	dropAt  int // it does not go at all
	addAt   int // bytes inserted before it
	swapAt  int // it is swapped with the next piece
	stopAt  int // from this byte on nothing passes, not even the connection's end
	rate    int // bytes a second; 0 = all at once

	// While it holds nothing passes, not even the connection's end; what was
	// stopped once stays so.
	frozen *atomic.Bool
}

// crooked passes connections on to target; the first takes the bends, later ones
// go straight, so that a test sees the host come back. It returns its address.
func crooked(t *testing.T, target string, out, back bend) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for n := 0; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if n > 0 {
				out, back = bend{rate: out.rate, frozen: out.frozen}, bend{rate: back.rate, frozen: back.frozen}
			}
			out, back := out, back
			all.Go(func() { passOn(ctx, c.(*net.TCPConn), target, out, back) })
		}
	})
	return l.Addr().String()
}

func passOn(ctx context.Context, c *net.TCPConn, target string, out, back bend) {
	defer c.Close()
	if out.frozen != nil && out.frozen.Load() {
		<-ctx.Done()
		return
	}
	far, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer far.Close()
	stop := context.AfterFunc(ctx, func() {
		c.Close()
		far.Close()
	})
	defer stop()
	if out.rate+back.rate > 0 {
		// A small pipe, as a network is; the kernel's buffers would take it all.
		_ = c.SetReadBuffer(16 << 10)
		_ = far.(*net.TCPConn).SetReadBuffer(16 << 10)
	}
	var both sync.WaitGroup
	both.Go(func() { out.copy(ctx, far.(*net.TCPConn), c) })
	both.Go(func() { back.copy(ctx, c, far.(*net.TCPConn)) })
	both.Wait()
}

func (b bend) copy(ctx context.Context, dst, src *net.TCPConn) {
	buf := make([]byte, 64<<10)
	if b.rate > 0 {
		buf = buf[:8<<10]
	}
	var behind []byte
	for off := 0; ; {
		n, err := src.Read(buf)
		if b.frozen != nil && b.frozen.Load() {
			<-ctx.Done()
			return
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				_ = dst.CloseWrite()
				return
			}
			reset(src, dst)
			return
		}
		p := buf[:n]
		in := func(at int) bool { return at > off && at <= off+n }
		switch {
		case in(b.flipAt):
			p[b.flipAt-1-off] ^= 0x10
		case in(b.cutAt):
			_, _ = dst.Write(p[:b.cutAt-1-off])
			reset(src, dst)
			return
		case in(b.twiceAt):
			p = append(bytes.Clone(p), p...)
		case in(b.dropAt):
			p = nil
		case in(b.addAt):
			p = slices.Insert(bytes.Clone(p), b.addAt-1-off, []byte("nobody sent this")...)
		case in(b.swapAt):
			behind, p = bytes.Clone(p), nil
		case behind != nil:
			p, behind = append(bytes.Clone(p), behind...), nil
		case in(b.stopAt):
			<-ctx.Done()
			return
		}
		off += n
		if b.rate > 0 {
			select {
			case <-time.After(time.Duration(n) * time.Second / time.Duration(b.rate)):
			case <-ctx.Done():
				return
			}
		}
		if _, err := dst.Write(p); err != nil {
			reset(src, dst)
			return
		}
	}
}

func reset(conns ...*net.TCPConn) {
	for _, c := range conns {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
}

// wire is a way to a host that bends what goes there, or what comes back.
type wire struct {
	name      string
	out, back bend
}

// wireObject is what the compile over wire i makes.
func wireObject(i int) string { return fmt.Sprintf("large%d.o", i) }

// overWires compiles large.c over each of the wires to host, four at a time.
func (s *site) overWires(host string, wires []wire) []outcome {
	results := make([]outcome, len(wires))
	turn := make(chan struct{}, 4)
	var all sync.WaitGroup
	for i, w := range wires {
		turn <- struct{}{}
		way := crooked(s.t, host, w.out, w.back)
		j := s.start([]string{"RDISTCC_HOSTS=" + way}, "gcc", "-c", "large.c", "-o", wireObject(i))
		all.Go(func() {
			results[i] = j.wait()
			<-turn
		})
	}
	all.Wait()
	return results
}

// TestBrokenWire: bytes that are changed, lost, doubled or cut off anywhere between
// manager and daemon, in the start-up, in small messages or in the middle of a
// source or an object, never give a wrong object, and the host is used again.
func TestBrokenWire(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager("", soon+"scheduler: {backoff: 10ms, backoff-max: 20ms}\n")
	s.file("large.c", variables(10000))
	s.atRest() // without any connection
	wires := []wire{
		{"request", bend{flipAt: 5}, bend{}},
		{"request's private data", bend{flipAt: 24}, bend{}},
		{"request cut", bend{cutAt: 10}, bend{}},
		{"reply", bend{}, bend{flipAt: 18}},
		{"reply cut", bend{}, bend{cutAt: 12}},
		{"reply lost", bend{}, bend{dropAt: 1}},
		{"hello", bend{flipAt: 70}, bend{}},
		{"welcome", bend{}, bend{flipAt: 90}},
		{"toolchains and credits twice", bend{}, bend{twiceAt: 200}},
		{"acks", bend{flipAt: 190}, bend{}},
		{"source", bend{flipAt: 150000}, bend{}},
		{"source cut", bend{cutAt: 150001}, bend{}},
		{"source twice", bend{twiceAt: 150002}, bend{}},
		{"source with a hole", bend{dropAt: 150003}, bend{}},
		{"source with more", bend{addAt: 150004}, bend{}},
		{"source out of order", bend{swapAt: 150005}, bend{}},
		{"object", bend{}, bend{flipAt: 150000}},
		{"object cut", bend{}, bend{cutAt: 150001}},
		{"object twice", bend{}, bend{twiceAt: 150002}},
		{"object with a hole", bend{}, bend{dropAt: 150003}},
		{"object with more", bend{}, bend{addAt: 150004}},
		{"object out of order", bend{}, bend{swapAt: 150005}},
	}
	results := s.overWires(d.Addr, wires)
	for i, w := range wires {
		o := results[i]
		switch {
		case o.status != 0:
			t.Errorf("%s: %+v", w.name, o)
		case strings.HasPrefix(o.report, "remote:") && o.stderr == "":
			// A new connection was there in time, or what went twice did no harm.
		case o.report == "local:host-lost":
			s.oneLine(o.stderr, "rdistcc: .*127\\.0\\.0\\.1.*; compiled here")
		default:
			t.Errorf("%s: %+v", w.name, o)
		}
		t.Logf("%s: %s %s", w.name, o.report, o.stderr)
		if i == 0 {
			s.sameObject(wireObject(i), "gcc", "-c", "large.c")
		} else {
			s.sameFile(wireObject(i), wireObject(0))
		}
	}
	if m := s.metrics(d); m[`iwarp_crc_errors_total{direction="received"}`] == 0 {
		t.Error("the daemon saw no wrong CRC: nothing was proven")
	}
	if err := s.Manager.Stop(); err != nil {
		t.Error(err)
	}
	s.clean()
}

// sameFile wants two files to be equal.
func (s *site) sameFile(name, like string) {
	s.t.Helper()
	got, err := os.ReadFile(filepath.Join(s.work, name))
	want, werr := os.ReadFile(filepath.Join(s.work, like))
	if err != nil || werr != nil || !bytes.Equal(got, want) {
		s.t.Errorf("%s is not %s: %v %v", name, like, err, werr)
	}
}

// TestSlowLine: a source and an object that each take several times as long on the
// way as a peer may be silent.
func TestSlowLine(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const quick = "limits: {heartbeat: 250ms, silence: 2s}\n" // the source, and the object, take twice as long
	d := s.daemon("d1", quick, "--jobs", "2")
	host := crooked(t, d.Addr, bend{rate: 3 << 18}, bend{rate: 3 << 18})
	s.manager(host, quick)
	s.remote(host)
	s.atRest()
	var text strings.Builder
	for i := range 80000 {
		fmt.Fprintf(&text, "int variable_with_a_long_name_%d;\n", i)
	}
	s.file("source.c", strings.ReplaceAll(text.String(), "int", "extern int"))
	s.file("object.c", "char object[3500000] = {1};\n")
	for _, name := range []string{"source", "object"} {
		if o := s.run(nil, "gcc", "-c", name+".c"); o.status != 0 || o.stderr != "" || o.report != "remote:"+host {
			t.Errorf("%s: %+v, want it done by the host", name, o)
		}
		s.sameObject(name+".o", "gcc", "-c", name+".c")
	}
	s.clean()
}

// TestPartition: a network that stops passing anything costs a line; both ends free what they held for each
// other without a message from the other, and the compiler on the host ends.
func TestPartition(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", soon, "--jobs", "2")
	s.atRest()
	var frozen atomic.Bool
	host := crooked(t, d.Addr, bend{frozen: &frozen}, bend{frozen: &frozen})
	s.manager(host, soon)
	s.remote(host)
	j := s.startLong(nil, "long")
	frozen.Store(true)
	o := j.wait()
	if o.status != 0 || o.report != "local:host-lost" {
		t.Errorf("%+v, want it compiled here", o)
	}
	s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+" lost .*; compiled here")
	s.sameObject("long.o", append([]string{"g++", "-c", "long.cc"}, longFlags...)...)
	s.clean() // the daemon as before its first client
	frozen.Store(false)
	s.remote(host)
}

// strangers are peers of other kinds: what they say when they are connected.
var strangers = map[string]string{
	"http server": "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
	"http client": "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
	"ssh":         "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n",
	"tls":         "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
	"distcc":      "DIST00000001ARGC00000004",
	"zeros":       strings.Repeat("\x00", 4096),
	"ones":        strings.Repeat("\xff", 4096),
	"half":        "MPA ID Req",
	"nothing":     "",
}

// TestStrangersCall: whatever calls a daemon that is none of its clients goes away
// without harm to those that are.
func TestStrangersCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "limits: {connect-timeout: 1s}\n", "--jobs", "2")
	s.manager(d.Addr, "")
	s.remote(d.Addr)
	s.atRest()
	var all sync.WaitGroup
	for range 4 {
		for name, words := range strangers {
			all.Go(func() {
				c, err := net.Dial("tcp", d.Addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = io.WriteString(c, words) // it may be gone already
				if n, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("%s: still connected, %d bytes heard", name, n)
				}
			})
		}
	}
	for range 4 {
		if o := s.run(nil, "gcc", "-O2", "-c", "hello.c"); o.report != "remote:"+d.Addr || o.stderr != "" {
			t.Errorf("meanwhile: %+v", o)
		}
	}
	all.Wait()
	s.clean()
}

// TestStrangersAreCalled: a host that is something else, takes no connection, sends nothing or does not
// exist costs one line; beside a good host it costs nothing.
func TestStrangersAreCalled(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	d := s.daemon("d1", "", "--jobs", "2")
	s.manager("", "limits: {connect-timeout: 3s}\nfallback: {patience: 100ms}\nscheduler: {backoff: 5m, backoff-max: 5m}\n")
	if o := s.run([]string{"RDISTCC_HOSTS=" + d.Addr}, "gcc", "-c", s.file("hello.c", "int hello;\n")); o.report != "remote:"+d.Addr {
		t.Fatalf("%+v", o)
	}
	s.atRest()
	hosts := map[string]string{"refused": refused(t), "never accepts": unaccepting(t)}
	for name, words := range strangers {
		hosts[name] = answering(t, words)
	}
	for name, host := range hosts {
		o := s.run([]string{"RDISTCC_HOSTS=" + host}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.report != "local:host-lost" {
			t.Errorf("%s: %+v, want it compiled here", name, o)
		}
		s.oneLine(o.stderr, "rdistcc: "+regexp.QuoteMeta(host)+".*; compiled here")
		s.sameObject("hello.o", "gcc", "-c", "hello.c")
		o = s.run([]string{"RDISTCC_HOSTS=" + host + " " + d.Addr, "RDISTCC_FALLBACK=0"}, "gcc", "-c", "hello.c")
		if o.status != 0 || o.stderr != "" || o.report != "remote:"+d.Addr {
			t.Errorf("%s beside a good host: %+v", name, o)
		}
		if o = s.run([]string{"RDISTCC_HOSTS=" + host, "RDISTCC_FALLBACK=0"}, "gcc", "-c", "hello.c"); o.status != 103 {
			t.Errorf("%s, not to be compiled here: %+v, want exit status 103", name, o)
		}
	}
	s.clean()
}

// refused returns an address where nothing listens.
func refused(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// unaccepting returns a listener whose queue is full: a SYN is not answered.
func unaccepting(t *testing.T) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", name.(*unix.SockaddrInet4).Port)
	for range 3 {
		c, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { c.Close() })
	}
	return addr
}

// answering is a server that says words to each caller and waits for its end.
func answering(t *testing.T, words string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				_ = c.SetDeadline(time.Now().Add(patience))
				_, _ = io.WriteString(c, words) // it may be gone already
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	return l.Addr().String()
}

// drain reads until the other side has closed, in whatever way.
func drain(c net.Conn) error {
	_, err := io.Copy(io.Discard, c)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}
