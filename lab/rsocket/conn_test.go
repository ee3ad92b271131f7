package rsocket

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// devices are two devices that can be connected, and an address on the second one.
type devices func(t testing.TB) (a, b iwarp.Device, addr string)

var providers = map[string]devices{
	"TCP": func(t testing.TB) (a, b iwarp.Device, addr string) {
		return iwarptest.Open(t, iwarp.Config{}), iwarptest.Open(t, iwarp.Config{}), "127.0.0.1:0"
	},
	"memory": func(t testing.TB) (a, b iwarp.Device, addr string) {
		n := iwarptest.NewNetwork()
		return iwarptest.Open(t, n.Config()), iwarptest.Open(t, n.Config()), "127.0.0.1:0"
	},
	"inproc": func(t testing.TB) (a, b iwarp.Device, addr string) {
		n := inproc.NewNetwork()
		a, b = n.Open(inproc.Defaults()), n.Open(inproc.Defaults())
		t.Cleanup(func() { iwarptest.Close(t, a); iwarptest.Close(t, b) })
		return a, b, "somewhere:0"
	},
}

// onAll runs a test on every provider.
func onAll(t *testing.T, f func(t *testing.T, d devices)) {
	for name, d := range providers {
		t.Run(name, func(t *testing.T) { f(t, d) })
	}
}

// connect returns two ends of a connection that are not closed. a has dialed.
func connect(t testing.TB, da, db iwarp.Device, addr string, oa, ob *Options) (a, b *Conn) {
	t.Helper()
	l, err := Listen(t.Context(), db, addr, ob)
	if err != nil {
		t.Fatal(err)
	}
	a, err = Dial(iwarptest.Context(t), da, l.Addr().String(), oa)
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	return a, c.(*Conn)
}

// pair is connect for two devices of d. The test's end closes both.
func pair(t testing.TB, d devices, oa, ob *Options) (a, b *Conn) {
	t.Helper()
	da, db, addr := d(t)
	a, b = connect(t, da, db, addr, oa, ob)
	t.Cleanup(func() { closeBoth(a, b) })
	return a, b
}

// closeBoth closes both ends at once, as each waits for the other's FIN.
func closeBoth(a, b *Conn) {
	var wg sync.WaitGroup
	wg.Go(func() { a.Close() })
	wg.Go(func() { b.Close() })
	wg.Wait()
}

// small makes every bound of the protocol be met.
var small = &Options{RecvBuffer: 64, SendBuffer: 100, Credits: 4}

func TestNettest(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		for name, o := range map[string]*Options{"defaults": nil, "small": {RecvBuffer: 1 << 10, SendBuffer: 700, Credits: 5}} {
			t.Run(name, func(t *testing.T) {
				if testing.Short() && name != "defaults" {
					t.Skip("long")
				}
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					da, db, addr := d(t)
					a, b := connect(t, da, db, addr, o, nil)
					return a, b, func() { closeBoth(a, b) }, nil
				})
			})
		}
	})
}

// randomBytes returns n bytes that depend on seed.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	r.Read(b)
	return b
}

// writeAll writes p in pieces of random sizes.
func writeAll(w io.Writer, p []byte, maxPiece int) error {
	for len(p) > 0 {
		n, err := w.Write(p[:min(len(p), 1+rand.IntN(maxPiece))])
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// Both directions at once, with buffers that are full all the time, in both byte orders. A
// half-close ends each.
func TestBothDirections(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		for name, o := range map[string]*Options{
			"defaults": nil, "small": small, "one credit": {Credits: 1, RecvBuffer: 4}, "big endian": {BigEndian: true, RecvBuffer: 4 << 10},
		} {
			t.Run(name, func(t *testing.T) {
				a, b := pair(t, d, o, o)
				total := 1 << 20
				if o != nil {
					total = 64 << 10
				}
				if o != nil && o.RecvBuffer == 4 {
					total = 4 << 10
				}
				if testing.Short() {
					total /= 8
				}
				var wg sync.WaitGroup
				for i, x := range [][2]*Conn{{a, b}, {b, a}} {
					data := randomBytes(uint64(i), total)
					wg.Go(func() {
						if err := writeAll(x[0], data, 3000); err != nil {
							t.Error(err)
						}
						if err := x[0].CloseWrite(); err != nil {
							t.Error(err)
						}
					})
					wg.Go(func() {
						if got, err := io.ReadAll(x[1]); err != nil || !bytes.Equal(got, data) {
							t.Errorf("got %d bytes, %v; want %d", len(got), err, len(data))
						}
					})
				}
				wg.Wait()
			})
		}
	})
}

// Close delivers what was written before it, however little the peer has read by then.
func TestCloseDelivers(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		a, b := pair(t, d, nil, nil)
		data := randomBytes(1, 100<<10)
		if _, err := a.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(b); err != nil || !bytes.Equal(got, data) {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(data))
		}
		if _, err := b.Write(data); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write to a peer that has closed: %v", err)
		}
	})
}

func TestCloseWrite(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		a, b := pair(t, d, nil, nil)
		if _, err := a.Write([]byte("request")); err != nil {
			t.Fatal(err)
		}
		if err := a.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("Write after CloseWrite: %v", err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "request" {
			t.Fatalf("got %q, %v", got, err)
		}
		if _, err := b.Write([]byte("answer")); err != nil {
			t.Fatal(err)
		}
		if err := b.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(a); err != nil || string(got) != "answer" {
			t.Fatalf("got %q, %v", got, err)
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.gone {
			t.Error("the second CloseWrite of a connection sent no Disconnect")
		}
	})
}

// frozenConn stops writing when it is told to: its peer has stopped reading, and the buffers between
// them are full.
type frozenConn struct {
	net.Conn
	frozen atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (c *frozenConn) Write(p []byte) (int, error) {
	if c.frozen.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Write(p)
}

func (c *frozenConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// A Close whose peer takes nothing ends after CloseTimeout, and says so.
func TestCloseTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		cfg, f := n.Config(), &frozenConn{closed: make(chan struct{})}
		cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			c, err := n.Dial(ctx, addr)
			f.Conn = c
			return f, err
		}
		a, b := connect(t, iwarptest.Open(t, cfg), iwarptest.Open(t, n.Config()), "127.0.0.1:0", &Options{CloseTimeout: 3 * time.Second}, nil)
		defer b.Close()
		synctest.Wait()
		f.frozen.Store(true)
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if err := a.Close(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		if d := time.Since(begin); d != 3*time.Second { // the bubble's clock
			t.Errorf("Close took %v", d)
		}
	})
}

// A peer that ends without a word may have lost what its program wrote.
func TestTruncated(t *testing.T) {
	onAll(t, func(t *testing.T, d devices) {
		a, b := pair(t, d, nil, nil)
		if _, err := a.Write([]byte("half of")); err != nil {
			t.Fatal(err)
		}
		var p [7]byte
		if _, err := io.ReadFull(b, p[:]); err != nil {
			t.Fatal(err)
		}
		if err := a.qp.Disconnect(iwarptest.Context(t)); err != nil { // what the kernel does for a program that has exited
			t.Fatal(err)
		}
		if n, err := b.Read(p[:]); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

// Keepalives are empty RDMA Writes that disturb nothing.
func TestKeepAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := iwarptest.NewNetwork()
		da, db := iwarptest.Open(t, n.Config()), iwarptest.Open(t, n.Config())
		a, b := connect(t, da, db, "127.0.0.1:0", &Options{KeepAlive: time.Second}, nil)
		defer closeBoth(a, b)
		synctest.Wait()
		before := b.qp.Stats().WritesReceived
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if got := b.qp.Stats().WritesReceived - before; got != 10 {
			t.Errorf("%d keepalives in 10 s", got)
		}
		if _, err := a.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		var p [1]byte
		if _, err := b.Read(p[:]); err != nil {
			t.Fatal(err)
		}
	})
}
