package stream

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"

	"github.com/rdistcc/rdistcc/internal/test/kit/inproc"
	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// providers are the devices that streams are tested on: two that reach each other, and where the second one listens.
var providers = map[string]iwarptest.Transport{
	"soft": func(t testing.TB) (a, b iwarp.Device, addr string) {
		return iwarptest.Open(t, iwarp.Config{}), iwarptest.Open(t, iwarp.Config{}), "127.0.0.1:0"
	},
	"memory": func(t testing.TB) (a, b iwarp.Device, addr string) {
		n := iwarptest.NewNetwork()
		return iwarptest.Open(t, n.Config()), iwarptest.Open(t, n.Config()), "127.0.0.1:0"
	},
	"inproc": func(t testing.TB) (a, b iwarp.Device, addr string) {
		n := inproc.NewNetwork()
		open := func() iwarp.Device {
			d := n.Open(inproc.Defaults())
			t.Cleanup(func() { iwarptest.Close(t, d) })
			return d
		}
		return open(), open(), "host:0"
	},
}

var configs = map[string]Config{
	"default":  {},
	"tiny":     {Ring: 100, Depth: 8, DirectMin: 1},
	"direct":   {Policy: exs.Direct},
	"indirect": {Policy: exs.Indirect},
	"zerocopy": {Mode: ZeroCopy, ZeroCopyMin: 1, DirectMin: 1},
}

// pair returns two ends of a stream. Both are closed when the test ends.
func pair(t testing.TB, tr iwarptest.Transport, ca, cb Config) (a, b *Conn) {
	t.Helper()
	da, db, addr := tr(t)
	ctx := iwarptest.Context(t)
	l, err := db.Listen(ctx, addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			b, err = Accept(ctx, db, r, nil, cb)
		}
		accepted <- err
	}()
	a, err = Dial(ctx, da, l.Addr().String(), nil, ca)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { end(a, b) })
	return a, b
}

// end closes both and waits till they are gone.
func end(conns ...*Conn) {
	for _, c := range conns {
		c.Close()
	}
	for _, c := range conns {
		<-c.Done()
	}
}

// TestConn: a stream is a net.Conn, on every provider and with every policy.
func TestConn(t *testing.T) {
	for name, tr := range providers {
		for kind, cfg := range configs {
			t.Run(name+"/"+kind, func(t *testing.T) {
				iwarptest.CheckGoroutines(t)
				nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
					a, b := pair(t, tr, cfg, cfg)
					return a, b, func() { end(a, b) }, nil
				})
			})
		}
	}
}

// TestBytes: what is written is read, both ways at once, in pieces of all sizes, whichever way the bytes go.
func TestBytes(t *testing.T) {
	for name, tr := range providers {
		for kind, cfg := range configs {
			t.Run(name+"/"+kind, func(t *testing.T) {
				a, b := pair(t, tr, cfg, cfg)
				var wg sync.WaitGroup
				const total = 1 << 20
				for i, x := range [][2]*Conn{{a, b}, {b, a}} {
					wg.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(i), 1))
						buf := make([]byte, 100<<10)
						for at := 0; at < total; {
							p := buf[:min(1+rnd.IntN(size(rnd)), total-at)]
							for k := range p {
								p[k] = octet(i, at+k)
							}
							if n, err := x[0].Write(p); n != len(p) || err != nil {
								t.Errorf("%d bytes of %d written: %v", n, len(p), err)
								return
							}
							at += len(p)
						}
						if err := x[0].CloseWrite(); err != nil {
							t.Error(err)
						}
					})
					wg.Go(func() {
						rnd := rand.New(rand.NewPCG(uint64(i), 2))
						buf := make([]byte, 100<<10)
						for at := 0; ; {
							n, err := x[1].Read(buf[:1+rnd.IntN(size(rnd))])
							for k := range n {
								if buf[k] != octet(i, at+k) {
									t.Errorf("byte %d is wrong", at+k)
									return
								}
							}
							if at += n; err != nil {
								if !errors.Is(err, io.EOF) || at != total {
									t.Errorf("%v after %d bytes", err, at)
								}
								return
							}
						}
					})
				}
				wg.Wait()
				t.Logf("%+v", a.Stats())
				if s := a.Stats(); kind == "direct" && s.SentDirect != s.Sent || kind == "indirect" && s.SentDirect != 0 {
					t.Errorf("%d of %d bytes are sent directly", s.SentDirect, s.Sent)
				}
			})
		}
	}
}

// size returns a bound for the size of a piece: often small.
func size(rnd *rand.Rand) int { return 1 << (3 + rnd.IntN(14)) }

// octet is byte at of stream i.
func octet(i, at int) byte { return byte(i*77 + at ^ at>>8 ^ at>>15) }

// TestHalfClose: after CloseWrite the other direction goes on, and writing fails.
func TestHalfClose(t *testing.T) {
	a, b := pair(t, providers["soft"], Config{}, Config{})
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("read: %v", err)
	}
	if _, err := a.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
	if _, err := b.Write([]byte("on")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if p, err := io.ReadAll(a); string(p) != "on" || err != nil {
		t.Errorf("%q, %v", p, err)
	}
	if _, err := a.Write([]byte{1}); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: %v", err)
	}
}

// TestCloseSends: what was written before Close arrives, though it is more than can be under way, and nobody has read yet.
func TestCloseSends(t *testing.T) {
	for kind, cfg := range configs {
		t.Run(kind, func(t *testing.T) {
			a, b := pair(t, providers["soft"], cfg, cfg)
			p := make([]byte, 150<<10) // fits the slots, and no ring of 100 bytes
			if cfg.Mode == ZeroCopy {
				p = p[:1]
			}
			for i := range p {
				p[i] = octet(3, i)
			}
			if _, err := a.Write(p); err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(b)
			if !bytes.Equal(got, p) || err != nil {
				t.Errorf("%d bytes of %d, %v", len(got), len(p), err)
			}
		})
	}
}

// TestLingers: a peer that takes nothing holds a closed connection for Linger, not for ever.
func TestLingers(t *testing.T) {
	conn, _ := lie(t, Config{Linger: time.Millisecond}, hello{Size: 1})
	if _, err := conn.Write(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	<-conn.Done()
}

// TestTakenBack: the memory of a Read that has timed out is the caller's, what is written later goes to the next Read, and nothing
// is lost in between.
func TestTakenBack(t *testing.T) {
	a, b := pair(t, providers["memory"], Config{Policy: exs.Direct}, Config{})
	const total = 1 << 20
	go func() {
		for at := 0; at < total; at += 64 {
			p := make([]byte, 64)
			for k := range p {
				p[k] = octet(0, at+k)
			}
			if _, err := a.Write(p); err != nil {
				return
			}
			if at%(64<<6) == 0 {
				runtime.Gosched()
			}
		}
		a.Close()
	}()
	timeouts := 0
	for at := 0; ; {
		buf := make([]byte, 32<<10)
		b.SetReadDeadline(time.Now().Add(20 * time.Microsecond))
		n, err := b.Read(buf)
		for k := range n {
			if buf[k] != octet(0, at+k) {
				t.Fatalf("byte %d is wrong", at+k)
			}
		}
		at += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			timeouts++
			continue
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || at != total {
				t.Fatalf("%v after %d bytes", err, at)
			}
			break
		}
	}
	t.Logf("%d reads timed out; %+v", timeouts, b.Stats())
}

// TestIntroduction: what a side says before the stream is judged before the other side says anything.
func TestIntroduction(t *testing.T) {
	for name, c := range map[string]struct {
		say string
		ok  bool
	}{"right": {"open sesame", true}, "wrong": {"open barley", false}, "nothing": {"", false}} {
		t.Run(name, func(t *testing.T) {
			iwarptest.CheckGoroutines(t)
			da, db, addr := providers["memory"](t)
			ea, err := NewEndpoint(da, Config{})
			if err != nil {
				t.Fatal(err)
			}
			eb, err := NewEndpoint(db, Config{Depth: 8})
			if err != nil {
				t.Fatal(err)
			}
			if c.say != "" {
				ea.Introduce([]byte(c.say))
			}
			refused := errors.New("no")
			eb.Expect(func(b []byte) error {
				if string(b) != "open sesame" {
					return refused
				}
				return nil
			})
			info := iwarptest.Connect(t, &iwarptest.End{Dev: da, QP: ea.QP()}, &iwarptest.End{Dev: db, QP: eb.QP()}, addr, nil, nil)
			accepted := make(chan error, 1)
			var b *Conn
			go func() {
				var err error
				b, err = eb.Start(iwarptest.Context(t), info.Remote, info.Local)
				accepted <- err
			}()
			a, err := ea.Start(iwarptest.Context(t), info.Local, info.Remote)
			berr := <-accepted
			if !c.ok {
				if err == nil || !errors.Is(berr, refused) {
					t.Errorf("%v, %v", err, berr)
				}
				return
			}
			if err != nil || berr != nil {
				t.Fatal(err, berr)
			}
			for range 100 { // as many messages as take all credits several times
				if _, err := a.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(b, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			end(a, b)
		})
	}
}
