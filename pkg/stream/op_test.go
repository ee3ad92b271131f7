package stream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// TestPosted: with several sends and receives posted, which may wait for all of their bytes, what is sent is received, in order.
func TestPosted(t *testing.T) {
	for name, tr := range providers {
		for kind, cfg := range configs {
			t.Run(name+"/"+kind, func(t *testing.T) {
				iwarptest.CheckGoroutines(t)
				a, b := pair(t, tr, cfg, cfg)
				const total = 1 << 20
				sent := make(chan error, 1)
				go func() { sent <- post(a, total) }()
				take(t, b, total)
				if err := <-sent; err != nil {
					t.Error(err)
				}
				t.Logf("%+v", b.Stats())
				end(a, b)
				for _, c := range []*Conn{a, b} {
					if n := len(c.regs.open); n > 0 {
						t.Errorf("%d regions are open", n)
					}
				}
			})
		}
	}
}

// post sends total bytes: by PostSend, from registered memory, and by Write in between.
func post(c *Conn, total int) error {
	rnd := rand.New(rand.NewPCG(1, 1))
	buf := make([]byte, total)
	for i := range buf {
		buf[i] = octet(5, i)
	}
	m, err := c.Register(buf)
	if err != nil {
		return err
	}
	var ops []*Op
	for at := 0; at < total; {
		n := min(1+rnd.IntN(size(rnd)), total-at)
		var op *Op
		switch rnd.IntN(3) {
		case 0:
			op, err = c.PostSend(buf[at : at+n])
		case 1:
			op, err = m.PostSend(at, n)
		default:
			n, err = c.Write(buf[at : at+n])
		}
		if err != nil {
			return err
		}
		if op != nil {
			ops = append(ops, op)
		}
		for len(ops) > 8 {
			if _, err := ops[0].Wait(); err != nil {
				return err
			}
			ops = ops[1:]
		}
		at += n
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	for _, op := range ops {
		if _, err := op.Wait(); err != nil {
			return err
		}
	}
	return m.Close()
}

// take receives total bytes and the end.
func take(t *testing.T, c *Conn, total int) {
	t.Helper()
	type receive struct {
		op  *Op
		buf []byte
		all bool
	}
	rnd := rand.New(rand.NewPCG(2, 2))
	var posted []receive
	at, ended := 0, false
	for {
		for len(posted) < 8 && !ended {
			r := receive{buf: make([]byte, 1+rnd.IntN(size(rnd))), all: rnd.IntN(2) == 0}
			var err error
			if r.op, err = c.PostRecv(r.buf, r.all); err == nil {
				posted = append(posted, r)
			} else if ended = errors.Is(err, io.EOF); !ended {
				t.Fatal(err)
			}
		}
		if len(posted) == 0 {
			break
		}
		r := posted[0]
		posted = posted[1:]
		n, err := r.op.Wait()
		for k := range n {
			if r.buf[k] != octet(5, at+k) {
				t.Fatalf("byte %d is wrong", at+k)
			}
		}
		at += n
		if errors.Is(err, io.EOF) {
			ended = true
		} else if err != nil || r.all && n < len(r.buf) {
			t.Fatalf("%d bytes of %d, %v", n, len(r.buf), err)
		}
	}
	if at != total {
		t.Fatalf("the end after %d bytes of %d", at, total)
	}
}

// TestPostedShare: with receives posted before the peer sends, and more of them than it has sends, all data goes direct.
func TestPostedShare(t *testing.T) {
	a, b := pair(t, providers["memory"], Config{}, Config{})
	const n, rounds = 32 << 10, 100
	var recvs []*Op
	buf := make([]byte, 4*n)
	postRecv := func(i int) {
		op, err := b.PostRecv(buf[i%4*n:][:n], true)
		if err != nil {
			t.Fatal(err)
		}
		recvs = append(recvs, op)
	}
	for i := range 4 {
		postRecv(i)
	}
	for i := range rounds {
		for a.adverts() < 4 {
			runtime.Gosched()
		}
		op, err := a.PostSend(make([]byte, n))
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range []*Op{op, recvs[i]} {
			if k, err := op.Wait(); k != n || err != nil {
				t.Fatal(k, err)
			}
		}
		postRecv(i)
	}
	if s := a.Stats(); s.SentDirect != s.Sent {
		t.Errorf("%d of %d bytes are sent directly", s.SentDirect, s.Sent)
	}
}

// adverts returns the receives that the peer has posted, as far as is known here.
func (c *Conn) adverts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.sender.Adverts()
}

// TestPostedEnd: what is posted completes with an error that says why when the connection ends, whichever side ends it, and a receive
// tells what it has got. Nothing stays registered.
func TestPostedEnd(t *testing.T) {
	for name, c := range map[string]struct {
		end        func(a, b *Conn)
		recv, send error
	}{
		"closed here":   {func(a, _ *Conn) { a.Close() }, net.ErrClosed, nil},
		"peer closes":   {func(_, b *Conn) { b.Close() }, io.EOF, errPipe},
		"peer vanishes": {func(_, b *Conn) { b.end.qp.Abort() }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			iwarptest.CheckGoroutines(t)
			a, b := pair(t, providers["memory"], Config{Linger: 50 * time.Millisecond, Policy: exs.Direct}, Config{})
			var recvs []*Op
			for range 3 {
				op, err := a.PostRecv(make([]byte, 10), true)
				if err != nil {
					t.Fatal(err)
				}
				recvs = append(recvs, op)
			}
			if _, err := b.Write([]byte("some")); err != nil {
				t.Fatal(err)
			}
			for a.Stats().Received < 4 {
				runtime.Gosched()
			}
			send, err := a.PostSend(make([]byte, 10)) // only direct, and nobody reads
			if err != nil {
				t.Fatal(err)
			}
			c.end(a, b)
			for i, op := range recvs {
				n, err := op.Wait()
				if want := []int{4, 0, 0}[i]; n != want || err == nil || c.recv != nil && !errors.Is(err, c.recv) {
					t.Errorf("receive %d: %d bytes, %v", i, n, err)
				}
			}
			if n, err := send.Wait(); n != 0 || err == nil || c.send != nil && !errors.Is(err, c.send) {
				t.Errorf("send: %d bytes, %v", n, err)
			}
			end(a, b)
			if _, err := a.PostRecv(make([]byte, 1), false); !errors.Is(err, net.ErrClosed) {
				t.Errorf("receive after the end: %v", err)
			}
			if _, err := a.PostSend(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
				t.Errorf("send after the end: %v", err)
			}
			if n := len(a.regs.open); n > 0 {
				t.Errorf("%d regions are open", n)
			}
		})
	}
}

// TestPostedBounds: the queues are bounded, and memory is checked.
func TestPostedBounds(t *testing.T) {
	a, b := pair(t, providers["memory"], Config{Policy: exs.Direct, Linger: time.Millisecond}, Config{})
	m, err := a.Register(make([]byte, 10))
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range [][2]int{{-1, 5}, {0, 0}, {0, 11}, {10, 1}, {11, -1}} {
		if _, err := m.PostSend(x[0], x[1]); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("%v: %v", x, err)
		}
	}
	if _, err := a.PostRecv(nil, true); err == nil {
		t.Error("an empty receive is posted")
	}
	for range maxPosted {
		if _, err := m.PostSend(0, 1); err != nil {
			t.Fatal(err)
		}
		if _, err := b.PostRecv(make([]byte, 1), true); err != nil && !errors.Is(err, iwarp.ErrQueueFull) {
			t.Fatal(err)
		}
	}
	for range maxPosted {
		if _, err = a.PostRecv(make([]byte, 1), true); err != nil {
			t.Fatal(err)
		}
	}
	if _, err = a.PostRecv(make([]byte, 1), true); !errors.Is(err, iwarp.ErrQueueFull) {
		t.Errorf("receives without end: %v", err)
	}
}

// TestReadDeadlineTakesBackPosted: a Read that times out takes receives back, which say so.
func TestReadDeadlineTakesBackPosted(t *testing.T) {
	_, b := pair(t, providers["memory"], Config{}, Config{})
	op, err := b.PostRecv(make([]byte, 10), false)
	if err != nil {
		t.Fatal(err)
	}
	b.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := b.Read(make([]byte, 32<<10)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(err)
	}
	if n, err := op.Wait(); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error(n, err)
	}
}

// brittle fails after so many bytes.
type brittle struct {
	bytes.Buffer
	left int
}

var errBrittle = errors.New("no more")

func (b *brittle) Write(p []byte) (int, error) {
	if len(p) > b.left {
		return 0, errBrittle
	}
	b.left -= len(p)
	return b.Buffer.Write(p)
}

// TestWriteTo: io.Copy gets all of a stream, most of it directly; a deadline loses nothing; and an error of the writer ends it.
func TestWriteTo(t *testing.T) {
	for name, tr := range providers {
		t.Run(name, func(t *testing.T) {
			iwarptest.CheckGoroutines(t)
			a, b := pair(t, tr, Config{}, Config{})
			const total = 1 << 20
			all := make([]byte, total)
			for i := range all {
				all[i] = octet(5, i)
			}
			var got bytes.Buffer
			b.SetReadDeadline(time.Now().Add(time.Millisecond))
			n, err := io.Copy(&got, b)
			if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(n, err)
			}
			b.SetReadDeadline(time.Time{})
			sent := make(chan error, 1)
			go func() { sent <- post(a, total) }()
			for n = 0; ; {
				b.SetReadDeadline(time.Now().Add(300 * time.Microsecond))
				k, err := io.Copy(&got, b)
				if n += k; err == nil {
					break
				} else if !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Fatal(err)
				}
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
			if n != total || !bytes.Equal(got.Bytes(), all) {
				t.Errorf("%d bytes of %d are copied, or they are wrong", n, total)
			}
			if _, err := b.Write(all[:200<<10]); err != nil {
				t.Fatal(err)
			}
			w := &brittle{left: 100 << 10}
			if n, err := io.Copy(w, a); !errors.Is(err, errBrittle) || int(n) != w.Len() || !bytes.Equal(w.Bytes(), all[:n]) {
				t.Errorf("%d bytes are copied, %d written, %v", n, w.Len(), err)
			}
			end(a, b)
			if n, err := io.Copy(w, b); n != 0 || !errors.Is(err, net.ErrClosed) {
				t.Errorf("after the end: %d, %v", n, err)
			}
		})
	}
}
