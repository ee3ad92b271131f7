package iwarp_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// bubble runs f with a fake clock on an in-memory network.
func bubble(t *testing.T, f func(t *testing.T, n *iwarptest.Network)) {
	synctest.Test(t, func(t *testing.T) { f(t, iwarptest.NewNetwork()) })
}

func listen(t *testing.T, n *iwarptest.Network, o *iwarp.ListenOptions) (*iwarptest.End, iwarp.Listener) {
	t.Helper()
	e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	l, err := e.Dev.Listen(t.Context(), "127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	return e, l
}

func rawDial(t *testing.T, n *iwarptest.Network, l iwarp.Listener) net.Conn {
	t.Helper()
	c, err := n.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func frame(t *testing.T, f mpa.Frame) []byte {
	t.Helper()
	b, err := f.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t *testing.T, c net.Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

// wantClosed checks that the peer of c closes without a word, after d.
func wantClosed(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	start := time.Now()
	b, _ := io.ReadAll(c)
	if len(b) > 0 {
		t.Errorf("answered %x", b)
	}
	if got := time.Since(start); got != d {
		t.Errorf("closed after %v, want %v", got, d)
	}
}

// request is a well-formed Request of revision 2, peer to peer.
var request = mpa.Frame{CRC: true, Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}}

func TestListenerClosesOnWhatIsNoRequest(t *testing.T) {
	req := frame(t, request)
	for name, b := range map[string][]byte{
		"HTTP":         []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"one byte":     {'G'},
		"TLS":          {0x16, 0x03, 0x01, 0x02, 0x00},
		"reply key":    frame(t, mpa.Frame{Reply: true, Rev: 1}),
		"revision 0":   append(append([]byte{}, req[:17]...), 0, 0, 0),
		"revision 3":   append(append([]byte{}, req[:17]...), 3, 0, 0),
		"PD_Length":    append(append([]byte{}, req[:17]...), 2, 2, 1),
		"short block":  append(append([]byte{}, req[:17]...), 2, 0, 3, 0, 0, 0),
		"more behind":  append(append([]byte{}, req...), 0),
		"FPDU in tow":  append(append([]byte{}, req...), make([]byte, 24)...),
		"big nonsense": bytes.Repeat([]byte("MPA ID Req"), 1000),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				_, l := listen(t, n, nil)
				c := rawDial(t, n, l)
				put(t, c, b)
				wantClosed(t, c, 0)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if r, err := l.Accept(ctx); err == nil {
					t.Errorf("was reported: %+v", r.Info())
				}
			})
		})
	}
}

func TestListenerDropsSilentPeer(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, nil)
		wantClosed(t, rawDial(t, n, l), 5*time.Second)
	})
}

func TestListenerDropsTrickle(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, &iwarp.ListenOptions{RequestTimeout: 3 * time.Second})
		c := rawDial(t, n, l)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, b := range frame(t, request) { // a byte a second never gets there
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}()
		wantClosed(t, c, 3*time.Second)
		<-done
	})
}

func TestListenerBoundsPending(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, &iwarp.ListenOptions{MaxPending: 2})
		for range 2 {
			rawDial(t, n, l)
		}
		synctest.Wait()
		wantClosed(t, rawDial(t, n, l), 0)
		time.Sleep(5 * time.Second)
		synctest.Wait() // the two are gone
		c := rawDial(t, n, l)
		put(t, c, frame(t, request))
		if _, err := l.Accept(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAdmit(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		_, l := listen(t, n, &iwarp.ListenOptions{Admit: func(net.Addr) error { return errors.New("no") }})
		wantClosed(t, rawDial(t, n, l), 0)
	})
}

func TestUndecidedRequestTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, request))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wantClosed(t, c, 30*time.Second)
		if err := r.Accept(t.Context(), e.QP, nil); err == nil || e.QP.State() != iwarp.StateError {
			t.Errorf("Accept of a dead request: %v, QP %s", err, e.QP.State())
		}
	})
}

// TestDataBeforeReply: "the initiator MUST NOT send before the Reply" (after RFC
// 5044 §7.1.2, rule 3).
func TestDataBeforeReply(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, request))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		put(t, c, []byte{0})
		synctest.Wait()
		if err := r.Accept(t.Context(), e.QP, nil); err == nil || !strings.Contains(err.Error(), "before the Reply") {
			t.Errorf("Accept: %v", err)
		}
		wantClosed(t, c, 0)
	})
}

// TestReplyBits: reserved bits are ignored and not copied, exactly one RTR form
// comes back, and out of those offered.
func TestReplyBits(t *testing.T) {
	for _, x := range []struct{ offered, want mpa.RTR }{
		{mpa.RTRWrite | mpa.RTRRead | mpa.RTRSend, mpa.RTRWrite},
		{mpa.RTRWrite | mpa.RTRRead, mpa.RTRWrite},
		{mpa.RTRSend | mpa.RTRRead, mpa.RTRRead},
	} {
		bubble(t, func(t *testing.T, n *iwarptest.Network) {
			e, l := listen(t, n, nil)
			c := rawDial(t, n, l)
			req := request
			req.Enhanced = &mpa.Enhanced{PeerToPeer: true, RTR: x.offered, IRD: 8, ORD: mpa.DepthAny}
			b := frame(t, req)
			b[16] |= 0x2f // R and the reserved bits
			put(t, c, b)
			r, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if i := r.Info(); i.PeerIRD != 8 || i.PeerORD != mpa.DepthAny || !i.PeerToPeer {
				t.Errorf("Info %+v", i)
			}
			done := make(chan error, 1)
			go func() { done <- r.Accept(t.Context(), e.QP, &iwarp.ConnParam{ORD: 3, IRD: 3}) }()
			reply := make([]byte, 24)
			if _, err := io.ReadFull(c, reply); err != nil {
				t.Fatal(err)
			}
			if reply[16] != 0x50 {
				t.Errorf("flags %#x, want C and S alone", reply[16])
			}
			f, _, err := mpa.ParseFrame(reply, true)
			if err != nil {
				t.Fatal(err)
			}
			if f.Enhanced.RTR != x.want || !f.Enhanced.PeerToPeer || f.Enhanced.ORD != 3 || f.Enhanced.IRD != mpa.DepthAny {
				t.Errorf("offered RTR %b: Reply %+v", x.offered, f.Enhanced)
			}
			// No RTR comes: the responder gives up after 10 s.
			start := time.Now()
			if err := <-done; err == nil || time.Since(start) != 10*time.Second {
				t.Errorf("Accept without an RTR: %v after %v", err, time.Since(start))
			}
			<-e.QP.Done()
		})
	}
}

// TestResponderSendsNothingFirst: "the responder MUST NOT send any FPDUs until it
// has received a valid one" (after RFC 5044 §7.1.2, rule 4).
func TestResponderSendsNothingFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, mpa.Frame{CRC: true, Rev: 1}))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.Recv(t, 1, 8)
		if err := r.Accept(t.Context(), e.QP, nil); err != nil {
			t.Fatal(err)
		}
		e.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hi")})
		synctest.Wait()
		b := make([]byte, 100)
		if n, _ := c.Read(b); n != mpa.FrameSize {
			t.Fatalf("%d bytes came, want the Reply alone", n)
		}
		put(t, c, fpdu(unhex(t, "414300000000000000000000000100000000")))
		if n, _ := c.Read(b); n != 28 {
			t.Errorf("%d bytes after our FPDU, want the Send of 28", n)
		}
		e.WaitOK(t, 1)
		e.WaitOK(t, 2)
	})
}

// TestSendFirst: a responder that was told to speaks without having been spoken
// to, and not before its time.
func TestSendFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, mpa.Frame{CRC: true, Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{}}))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := r.Accept(t.Context(), e.QP, &iwarp.ConnParam{SendFirst: time.Second}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d != time.Second {
			t.Errorf("accepted after %v, want 1s", d)
		}
		e.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hi")})
		e.WaitOK(t, 2)
		b := make([]byte, 100)
		if n, _ := io.ReadAtLeast(c, b, mpa.FrameSize+4+28); n != mpa.FrameSize+4+28 {
			t.Errorf("%d bytes came, want the Reply and a Send", n)
		}
	})
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		e, l := listen(t, n, nil)
		c := rawDial(t, n, l)
		put(t, c, frame(t, mpa.Frame{CRC: true, Rev: mpa.Rev2, Enhanced: &mpa.Enhanced{}}))
		r, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Millisecond)
			_ = c.Close()
		}()
		if err := r.Accept(t.Context(), e.QP, &iwarp.ConnParam{SendFirst: time.Second}); err == nil {
			t.Error("accepted an initiator that hung up meanwhile")
		}
	})
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// fpdu frames a ULPDU.
func fpdu(ulpdu []byte) []byte {
	b := mpa.NewBatch()
	b.Reset(true)
	b.Add(ulpdu)
	return bytes.Join(b.Bufs(), nil)
}

// serve answers one Request with b.
func serve(t *testing.T, n *iwarptest.Network, b []byte) (addr string, conn <-chan net.Conn) {
	t.Helper()
	l, err := n.Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ch := make(chan net.Conn, 1)
	go func() {
		defer l.Close()
		c, err := l.Accept()
		if err != nil {
			return
		}
		if _, err := io.ReadFull(c, make([]byte, 24)); err == nil && len(b) > 0 {
			c.Write(b)
		}
		ch <- c
	}()
	return l.Addr().String(), ch
}

func TestDialRefusesBadReplies(t *testing.T) {
	reply := func(e *mpa.Enhanced, rev uint8) []byte {
		return frame(t, mpa.Frame{Reply: true, CRC: true, Rev: rev, Enhanced: e})
	}
	p2p := func(rtr mpa.RTR, ord uint16) *mpa.Enhanced {
		return &mpa.Enhanced{PeerToPeer: true, RTR: rtr, ORD: ord}
	}
	for _, x := range []struct {
		name string
		b    []byte
		want string // of the error
		term string // hex of the Terminate's first 4 bytes; "" = none
	}{
		{"HTTP", []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "does not speak MPA", ""},
		{"initiator too", frame(t, request), "an initiator too", ""},
		{"revision 1", reply(nil, 1), "revision 1 in the Reply", ""},
		{"revision 9", append([]byte("MPA ID Rep Frame"), 0x40, 9, 0, 0), "revision 9", ""},
		{"unenhanced", reply(nil, 2), "unenhanced", ""},
		{"client-server", reply(&mpa.Enhanced{}, 2), "connection model", "20050000"},
		{"ORD", reply(p2p(mpa.RTRWrite, 1), 2), "insufficient IRD", "20060000"},
		{"no RTR", reply(p2p(mpa.RTRSend, 0), 2), "RTR", "20070000"},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *iwarptest.Network) {
				addr, conn := serve(t, n, x.b)
				said := make(chan []byte, 1)
				go func() {
					c := <-conn
					b, _ := io.ReadAll(c)
					c.Close()
					said <- b
				}()
				e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				_, err := e.Dev.Dial(t.Context(), addr, e.QP, nil)
				if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), addr) {
					t.Errorf("Dial: %v; want the address and %q", err, x.want)
				}
				term := <-said
				if len(term) >= 24 {
					term = term[20:24]
				}
				if hex.EncodeToString(term) != x.term {
					t.Errorf("sent %x, want a Terminate %s", term, x.term)
				}
				if e.QP.State() != iwarp.StateError || e.QP.Err() == nil {
					t.Errorf("QP %s, %v", e.QP.State(), e.QP.Err())
				}
			})
		})
	}
}

func TestDialTimesOut(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		addr, conn := serve(t, n, nil)
		go func() {
			c := <-conn
			io.Copy(io.Discard, c)
			c.Close()
		}()
		e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		start := time.Now()
		_, err := e.Dev.Dial(t.Context(), addr, e.QP, nil)
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != 10*time.Second {
			t.Errorf("Dial: %v after %v", err, time.Since(start))
		}
	})
}

func TestDialCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		addr, conn := serve(t, n, nil)
		go func() {
			c := <-conn
			io.Copy(io.Discard, c)
			c.Close()
		}()
		e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		_, err := e.Dev.Dial(ctx, addr, e.QP, nil)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("Dial: %v after %v", err, time.Since(start))
		}
	})
}

// TestFPDUBehindReply: a responder that does not wait, as siw's does not, is
// understood.
func TestFPDUBehindReply(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		b := frame(t, mpa.Frame{Reply: true, CRC: true, Rev: 2, Enhanced: &mpa.Enhanced{PeerToPeer: true, RTR: mpa.RTRWrite}})
		b = append(b, fpdu(unhex(t, "41430000000000000000000000010000000068656c6c6f"))...)
		addr, conn := serve(t, n, b)
		e := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
		got := e.Recv(t, 1, 16)
		if _, err := e.Dev.Dial(t.Context(), addr, e.QP, nil); err != nil {
			t.Fatal(err)
		}
		if wc := e.WaitOK(t, 1); wc.ByteLen != 5 || string(got[:5]) != "hello" {
			t.Errorf("%+v, %q", wc, got[:5])
		}
		c := <-conn
		rtr := make([]byte, 20)
		if _, err := io.ReadFull(c, rtr); err != nil || hex.EncodeToString(rtr) != "000ec140000000010000000000000000ebd34c5f" {
			t.Errorf("RTR %x, %v", rtr, err)
		}
		c.Close()
	})
}
