package iwarp_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// closedSoon counts the connections that their peer closes, and waits for all.
func closedSoon(conns []net.Conn) (closed func() int, wait func()) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for _, c := range conns {
		wg.Go(func() {
			_, _ = io.Copy(io.Discard, c)
			mu.Lock()
			defer mu.Unlock()
			n++
		})
	}
	return func() int { mu.Lock(); defer mu.Unlock(); return n }, wg.Wait
}

// goroutines counts those that there are. runtime.NumGoroutine can be off by the 33
// ended ones that the runtime is moving from one list to another.
func goroutines() int {
	buf := make([]byte, 4<<20)
	return bytes.Count(buf[:runtime.Stack(buf, true)], []byte("\n\ngoroutine ")) + 1
}

// flood opens n connections and says on each what b holds, as far as it is taken.
func flood(t *testing.T, n *iwarptest.Network, l iwarp.Listener, count int, b []byte) []net.Conn {
	t.Helper()
	var conns []net.Conn
	for range count {
		c := rawDial(t, n, l)
		if len(b) > 0 {
			_, _ = c.Write(b) // it may have been turned away
		}
		conns = append(conns, c)
		synctest.Wait()
	}
	return conns
}

// TestSilentFlood covers SEC-15: a thousand connections that say nothing, or begin
// to, take MaxPending places for RequestTimeout, and no more: goroutines and
// memory are bounded by the former, and a peer that comes later is served.
func TestSilentFlood(t *testing.T) {
	req := frame(t, request)
	big := append(bytes.Clone(req[:18]), 2, 0) // PD_Length 512, of which nothing comes
	for name, b := range map[string][]byte{"nothing": nil, "a key": req[:16], "a byte less": req[:len(req)-1], "much announced": big} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				e, l := listen(t, n, &iwarp.ListenOptions{MaxPending: 40, MaxPendingPerHost: 40})
				before := goroutines()
				conns := flood(t, n, l, 1000, b)
				closed, wait := closedSoon(conns)
				synctest.Wait()
				if got := closed(); got != 960 {
					t.Errorf("%d of 1000 were turned away, want 960", got)
				}
				if got := e.Dev.Stats().HalfOpen; got != 40 {
					t.Errorf("%d start-ups are half open, want 40", got)
				}
				if got := goroutines() - before; got > 2*40+10 {
					t.Errorf("%d goroutines for them", got)
				}
				start := time.Now()
				wait()
				if d := time.Since(start); d != 5*time.Second {
					t.Errorf("the last of them was closed after %v, want 5s", d)
				}
				synctest.Wait()
				if got := e.Dev.Stats().HalfOpen; got != 0 {
					t.Errorf("%d start-ups are half open after that", got)
				}
				put(t, rawDial(t, n, l), req)
				if _, err := l.Accept(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestRequestFlood: Requests that are neither accepted nor rejected are bounded as well, for DecideTimeout.
func TestRequestFlood(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, &iwarp.ListenOptions{MaxPending: 20, DecideTimeout: 7 * time.Second})
		req := request
		req.Private = make([]byte, 508)
		closed, wait := closedSoon(flood(t, n, l, 200, frame(t, req)))
		synctest.Wait()
		if got := closed(); got != 184 { // a host gets 16 of 20
			t.Errorf("%d of 200 were turned away, want 184", got)
		}
		start := time.Now()
		wait()
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("the last of them was closed after %v, want 7s", d)
		}
		synctest.Wait()
		if got := e.Dev.Stats().HalfOpen; got != 0 {
			t.Errorf("%d start-ups are half open after that", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r, err := l.Accept(ctx); err == nil {
			t.Errorf("a dead request was reported: %+v", r.Info())
		}
	})
}

// TestHostsShareThePlaces covers SEC-15: one host, or one IPv6 network, cannot take
// all places.
func TestHostsShareThePlaces(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		var from netip.Addr // address that dials next
		cfg := n.Config()
		cfg.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
			ln, err := n.Listen(ctx, addr)
			return &posing{ln, &from}, err
		}
		e := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
		l, err := e.Dev.Listen(t.Context(), "127.0.0.1:0", &iwarp.ListenOptions{MaxPending: 80})
		if err != nil {
			t.Fatal(err)
		}
		from = netip.MustParseAddr("192.0.2.1")
		first := flood(t, n, l, 100, nil)
		from = netip.MustParseAddr("192.0.2.2")
		second := flood(t, n, l, 1, nil)
		from = netip.MustParseAddr("::ffff:192.0.2.1") // the first again
		third := flood(t, n, l, 1, nil)
		var v6 []net.Conn
		for i := range 100 {
			from = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(i)})
			v6 = append(v6, flood(t, n, l, 1, nil)...)
		}
		for _, x := range []struct {
			name  string
			conns []net.Conn
			want  int
		}{{"one host", first, 80}, {"another host", second, 0}, {"the first as IPv6", third, 1}, {"one IPv6 network", v6, 80}} {
			closed, wait := closedSoon(x.conns)
			synctest.Wait()
			if got := closed(); got != x.want {
				t.Errorf("%s: %d were turned away, want %d", x.name, got, x.want)
			}
			defer wait()
		}
		if got := e.Dev.Stats().HalfOpen; got != 41 {
			t.Errorf("%d start-ups are half open, want 20 + 1 + 20", got)
		}
	})
}

// posing makes accepted connections come from another address.
type posing struct {
	net.Listener
	from *netip.Addr
}

func (l *posing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &posed{c, net.TCPAddrFromAddrPort(netip.AddrPortFrom(*l.from, 4711))}, nil
}

type posed struct {
	net.Conn
	from net.Addr
}

func (c *posed) RemoteAddr() net.Addr { return c.from }

// TestTrickle covers MPA-14, MPA-22 and SEC-15: octet by octet a Request is taken
// if it is in time, and nothing is answered before its last octet.
func TestTrickle(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		req := request
		req.Private = []byte("hello")
		reported := make(chan iwarp.ConnRequest, 1)
		go func() {
			if r, err := l.Accept(t.Context()); err == nil {
				reported <- r
			}
		}()
		for _, b := range frame(t, req) {
			if len(reported) > 0 {
				t.Fatal("reported before its end")
			}
			put(t, c, []byte{b})
			synctest.Wait()
			time.Sleep(100 * time.Millisecond)
		}
		r := <-reported
		if got := r.Info().PrivateData; string(got) != "hello" {
			t.Errorf("private data %q", got)
		}
	})
}

// TestRequestMemory covers SEC-15: what a Request announces is not allocated for;
// the frame is read into one buffer that holds the longest.
func TestRequestMemory(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, nil)
		b := append(append([]byte{}, frame(t, request)[:18]...), 0xff, 0xff)
		var conns []net.Conn
		for range 100 {
			conns = append(conns, rawDial(t, n, l))
		}
		var m0, m1 runtime.MemStats
		runtime.ReadMemStats(&m0)
		for _, c := range conns[:64] {
			put(t, c, b)
		}
		synctest.Wait()
		runtime.ReadMemStats(&m1)
		if got := m1.TotalAlloc - m0.TotalAlloc; got > 64*20<<10 {
			t.Errorf("%d bytes allocated for 64 Requests that announce 65535 each", got)
		}
	})
}

// TestFallback covers CM-25: revision 1 on a fresh connection where the peer hangs
// up on revision 2 or answers with 1, if the program allows it and can do without.
func TestFallback(t *testing.T) {
	for _, x := range []struct {
		name string
		p    iwarp.ConnParam
		old  func(c net.Conn) // what the peer does with revision 2
		want bool
	}{
		{"hangs up", iwarp.ConnParam{Fallback: true}, func(c net.Conn) {}, true},
		{"resets", iwarp.ConnParam{Fallback: true}, func(c net.Conn) { _ = c.(interface{ SetLinger(int) error }).SetLinger(0) }, true},
		{"answers with revision 1", iwarp.ConnParam{Fallback: true}, func(c net.Conn) { put(t, c, frame(t, mpa.Frame{Reply: true, CRC: true, Rev: 1})) }, true},
		{"answers unenhanced", iwarp.ConnParam{Fallback: true}, func(c net.Conn) { put(t, c, frame(t, mpa.Frame{Reply: true, CRC: true, Rev: 2})) }, true},
		{"not allowed", iwarp.ConnParam{}, func(c net.Conn) {}, false},
		{"needs an RTR", iwarp.ConnParam{Fallback: true, RTR: iwarp.RTRWrite}, func(c net.Conn) {}, false},
		{"rejects", iwarp.ConnParam{Fallback: true}, func(c net.Conn) {
			put(t, c, frame(t, mpa.Frame{Reply: true, Reject: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true}}))
		}, false},
		{"speaks something else", iwarp.ConnParam{Fallback: true}, func(c net.Conn) { put(t, c, []byte("HTTP/1.1 400")) }, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				ln, err := n.Listen(t.Context(), "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				dials := 0
				done := make(chan struct{})
				go func() { // a peer that knows revision 1 only
					defer close(done)
					for {
						c, err := ln.Accept()
						if err != nil {
							return
						}
						dials++
						head := make([]byte, 20)
						if _, err := io.ReadFull(c, head); err != nil {
							t.Error(err)
						}
						if head[17] == 2 {
							_, _ = io.ReadFull(c, make([]byte, 4)) // the block: unread data would reset
							x.old(c)
						} else {
							put(t, c, frame(t, mpa.Frame{Reply: true, CRC: true, Rev: 1, Private: []byte("old")}))
							defer c.Close()
							continue
						}
						_ = c.Close()
					}
				}()
				e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				info, err := e.Dev.Dial(t.Context(), ln.Addr().String(), e.QP, &x.p)
				if (err == nil) != x.want {
					t.Errorf("Dial: %v", err)
				}
				if x.want && (info.Rev != 1 || string(info.PrivateData) != "old" || info.PeerToPeer || dials != 2 || e.QP.State() != iwarp.StateRTS) {
					t.Errorf("%+v after %d connections, QP %s", info, dials, e.QP.State())
				}
				if !x.want && (dials != 1 || e.QP.State() != iwarp.StateError) {
					t.Errorf("%d connections, QP %s", dials, e.QP.State())
				}
				_ = ln.Close()
				<-done
			})
		})
	}
}

// TestSettleDelaysWork: an initiator that was told to waits before its first FPDU,
// or until the peer speaks, and is given up with its context.
func TestSettleDelaysWork(t *testing.T) {
	reply := mpa.Frame{Reply: true, CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}}
	const settle = 20 * time.Millisecond
	for name, p2p := range map[string]bool{"waits": true, "waits, without RTR": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				answer := reply
				if !p2p {
					answer.Enhanced = &mpa.Enhanced{}
				}
				addr, conn := serve(t, n, frame(t, answer))
				e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				start := time.Now()
				var firstAt time.Duration
				done := make(chan struct{})
				go func() {
					defer close(done)
					c := <-conn
					defer c.Close()
					_, _ = io.ReadFull(c, make([]byte, 20))
					firstAt = time.Since(start)
					_, _ = io.ReadFull(c, make([]byte, 8))
				}()
				if _, err := e.Dev.Dial(t.Context(), addr, e.QP, &iwarp.ConnParam{Settle: settle, ClientServer: !p2p}); err != nil {
					t.Fatal(err)
				}
				e.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hi")})
				<-done
				if firstAt != settle || time.Since(start) != settle {
					t.Errorf("the first FPDU came after %v, all after %v; want %v", firstAt, time.Since(start), settle)
				}
			})
		})
	}
	t.Run("peer speaks", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			b := append(frame(t, reply), fpdu(unhex(t, "414300000000000000000000000100000000"))...)
			addr, conn := serve(t, n, b)
			go func() { c := <-conn; _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
			e.Recv(t, 1, 8)
			start := time.Now()
			if _, err := e.Dev.Dial(t.Context(), addr, e.QP, &iwarp.ConnParam{Settle: settle}); err != nil || time.Since(start) != 0 {
				t.Errorf("Dial: %v after %v", err, time.Since(start))
			}
			e.WaitOK(t, 1)
		})
	})
	t.Run("cancelled", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			addr, conn := serve(t, n, frame(t, reply))
			go func() { c := <-conn; _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
			e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := e.Dev.Dial(ctx, addr, e.QP, &iwarp.ConnParam{Settle: time.Hour}); !errors.Is(err, context.DeadlineExceeded) || e.QP.State() != iwarp.StateError {
				t.Errorf("Dial: %v, QP %s", err, e.QP.State())
			}
		})
	})
}

// TestEarlyRTRIsHarmless: cxgb4 sends its RTR with revision 1 too, and a peer may
// send another form than the one agreed on. An empty Write is nobody's message in
// any case; an empty Send is one, unless it was agreed on.
func TestEarlyRTRIsHarmless(t *testing.T) {
	write, send := fpdu(unhex(t, "c1400000000100000000000000"+"01")), fpdu(unhex(t, "414300000000000000000000000100000000"))
	// A Read Request of nothing.
	read := fpdu(unhex(t, "41410000000000000001000000010000000000000001"+"0000000000000000"+"00000000"+"00000001"+"0000000000000000"))
	second := fpdu(unhex(t, "41430000000000000000000000"+"0200000000"))
	first := fpdu(unhex(t, "41430000000000000000000000"+"0100000000"))
	for _, x := range []struct {
		name    string
		request mpa.Frame
		rtr     []byte
		next    []byte
		sends   int // the application gets
	}{
		{"revision 1, Write", mpa.Frame{CRC: true, Rev: 1}, write, first, 1},
		{"revision 1, Read", mpa.Frame{CRC: true, Rev: 1}, read, first, 1},
		{"Read for Write", mpa.Frame{CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}}, read, first, 1},
		{"client-server, Write", mpa.Frame{CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{}}, write, first, 1},
		{"Write for Send", mpa.Frame{CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRSend}}, write, first, 1},
		{"Send as agreed", mpa.Frame{CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRSend}}, send, second, 1},
		{"Send for Write", mpa.Frame{CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}}, send, second, 2},
		{"revision 1, Send", mpa.Frame{CRC: true, Rev: 1}, send, second, 2},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				e, l := listen(t, n, nil)
				c := rawDial(t, n, l)
				put(t, c, frame(t, x.request))
				r, err := l.Accept(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for id := range uint64(3) {
					e.Recv(t, id, 8)
				}
				go func() {
					time.Sleep(time.Millisecond)
					_, _ = c.Write(append(bytes.Clone(x.rtr), x.next...))
				}()
				if err := r.Accept(t.Context(), e.QP, nil); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				wcs := make([]iwarp.WC, 4)
				if k := e.CQ.Poll(wcs); k != x.sends || e.QP.State() != iwarp.StateRTS {
					t.Errorf("%d Sends were delivered, want %d; QP %s, %v", k, x.sends, e.QP.State(), e.QP.Err())
				}
				if s := e.QP.Stats(); s.WritesReceived+s.ReadsReceived != 0 || int(s.SendsReceived) != x.sends {
					t.Errorf("counted %+v", s)
				}
			})
		})
	}
}

// TestRejectedInitiatorClosesFirst: no FIN follows a rejecting Reply immediately, as siw takes it for a
// reset; but a peer that waits for it gets one.
func TestRejectedInitiatorClosesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, request))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rejected := make(chan error, 1)
		go func() { rejected <- r.Reject([]byte("no")) }()
		if _, err := io.ReadFull(c, make([]byte, 26)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("behind the Reply: %v, want a FIN", err)
		}
		if d := time.Since(start); d < 100*time.Millisecond {
			t.Errorf("the FIN came after %v", d)
		}
		_ = c.Close()
		if err := <-rejected; err != nil {
			t.Error(err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestSilentHostsMakeRoom covers SEC-15: all places taken by hosts that say nothing, a
// peer of another host is served at once, and so is one of theirs that has fewer; the
// start-ups that have waited longest make room.
func TestSilentHostsMakeRoom(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		var from netip.Addr
		cfg := n.Config()
		cfg.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
			ln, err := n.Listen(ctx, addr)
			return &posing{ln, &from}, err
		}
		e := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
		l, err := e.Dev.Listen(t.Context(), "127.0.0.1:0", &iwarp.ListenOptions{MaxPending: 40})
		if err != nil {
			t.Fatal(err)
		}
		req := frame(t, request)
		for i := range 10 {
			from = netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
			flood(t, n, l, 16, req[:19])
		}
		if got := e.Dev.Stats().HalfOpen; got != 40 {
			t.Fatalf("%d start-ups are half open, want 40", got)
		}
		start := time.Now()
		for i := range 5 {
			from = netip.AddrFrom4([4]byte{198, 51, 100, byte(i)})
			put(t, rawDial(t, n, l), req)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			r, err := l.Accept(ctx)
			cancel()
			if err != nil {
				t.Fatalf("an honest peer: %v", err)
			}
			if got := e.Dev.Stats().HalfOpen; got != 40 {
				t.Errorf("%d start-ups are half open, want 40", got)
			}
			if err := r.Reject(nil); err != nil {
				t.Error(err)
			}
		}
		if d := time.Since(start); d > 5*time.Second { // Reject waits a little for its peer
			t.Errorf("honest peers took %v", d)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := e.Dev.Stats().HalfOpen; got != 0 {
			t.Errorf("%d start-ups are half open after that", got)
		}
	})
}
