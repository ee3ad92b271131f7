package iwarp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// TestOptionMatrix covers INT-11, as far as there are options: each combination
// connects and carries data both ways.
func TestOptionMatrix(t *testing.T) {
	for i := range 1 << 5 {
		bit := func(n int) bool { return i>>n&1 != 0 }
		pa, pb := &iwarp.ConnParam{Rev: 2, ClientServer: bit(1)}, &iwarp.ConnParam{}
		if bit(0) {
			pa.Rev = 1
		}
		if bit(2) {
			pa.CRC = iwarp.CRCOffIfAgreed
		}
		if bit(3) {
			pb.CRC = iwarp.CRCOffIfAgreed
		}
		if bit(4) {
			pa.MaxULPDU, pb.MaxULPDU = 1454, 128
		}
		t.Run(fmt.Sprintf("rev%d,A=%v,C=%v%v,small=%v", pa.Rev, !bit(1), !bit(2), !bit(3), bit(4)), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := iwarptest.NewNetwork()
				a := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				got := b.Recv(t, 1, 10_000)
				back := a.Recv(t, 2, 10_000)
				info := iwarptest.Connect(t, a, b, "127.0.0.1:0", pa, pb)
				if info.CRC != !(bit(2) && bit(3)) || info.PeerToPeer != (!bit(0) && !bit(1)) || info.Rev != pa.Rev {
					t.Errorf("agreed on %+v", info)
				}
				src := bytes.Repeat([]byte("rdistcc "), 1250)
				for _, x := range []struct {
					from, to *iwarptest.End
					id       uint64
					buf      []byte
				}{{a, b, 1, got}, {b, a, 2, back}} {
					mr := x.from.Reg(t, src, 0, nil)
					x.from.Post(t, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 10_000, LKey: mr.STag()}}})
					x.from.WaitOK(t, 3)
					x.to.WaitOK(t, x.id)
					if !bytes.Equal(x.buf, src) {
						t.Error("data arrived changed")
					}
				}
			})
		})
	}
}

// TestFPDUsFitTheSegment covers MPA-32 and DDP-12: on a path with segments of
// 1448 bytes no FPDU is longer.
func TestFPDUsFitTheSegment(t *testing.T) {
	cfg := iwarp.Config{Dial: func(ctx context.Context, addr string) (net.Conn, error) {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			var err error
			return errors.Join(c.Control(func(fd uintptr) {
				err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 1460)
			}), err)
		}}
		return d.DialContext(ctx, "tcp", addr)
	}}
	a := iwarptest.NewEnd(t, iwarptest.Open(t, cfg), iwarp.QPInitAttr{})
	b := iwarptest.NewEnd(t, iwarptest.Open(t, iwarp.Config{}), iwarp.QPInitAttr{})
	iwarptest.Connect(t, a, b, "127.0.0.1:0", nil, nil)
	const size = 1 << 20
	src, dst := a.Reg(t, make([]byte, size), 0, nil), b.Reg(t, make([]byte, size), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	before := a.QP.Stats().FPDUsSent
	a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: size, LKey: src.STag()}}, STag: dst.STag()})
	a.WaitOK(t, 1)
	// 1448 bytes with the timestamp option, 1460 without: payload of 1424 each.
	n := a.QP.Stats().FPDUsSent - before
	if lo, hi := uint64(size/1440), uint64(size/1400); n < lo || n > hi {
		t.Errorf("%d FPDUs for %d bytes, want %d to %d", n, size, lo, hi)
	}
}

// TestRTRIsNobodys covers CM-23 and INT-13: the message that opens a stream takes
// no place and completes nothing on either side.
func TestRTRIsNobodys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := iwarptest.Pair(t)
		synctest.Wait()
		var wc [1]iwarp.WC
		if a.CQ.Poll(wc[:])+b.CQ.Poll(wc[:]) != 0 {
			t.Errorf("the RTR made a completion: %+v", wc[0])
		}
		if x, y := a.QP.Stats(), b.QP.Stats(); x.WritesSent+y.WritesReceived+x.SendsSent+y.SendsReceived != 0 {
			t.Errorf("the RTR was counted as somebody's message: %+v, %+v", x, y)
		}
		if s := b.Dev.Stats(); s.FPDUsReceived != 1 || s.BytesReceived != 20 {
			t.Errorf("the RTR is %d FPDUs of %d bytes, want one of 20", s.FPDUsReceived, s.BytesReceived)
		}
	})
}

// TestPeerClosesFirst covers DDP-33: after the peer's FIN what is queued still
// goes out.
func TestPeerClosesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := rawInitiator(t)
		const size = 1 << 20 // more than the connection holds
		mr := e.Reg(t, make([]byte, size), 0, nil)
		e.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: size, LKey: mr.STag()}}})
		e.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("last")})
		if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if s := e.QP.State(); s != iwarp.StateClosing {
			t.Errorf("state %s, want CLOSING", s)
		}
		if err := e.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}); !errors.Is(err, iwarp.ErrState) {
			t.Errorf("PostSend in CLOSING: %v", err)
		}
		b, err := io.ReadAll(c)
		if err != nil || len(b) < 24+size || !bytes.HasSuffix(b[:len(b)-4], []byte("last")) {
			t.Errorf("%d bytes came, %v; want all, and the last Send at the end", len(b), err)
		}
		if err := e.WaitDone(t); err != nil {
			t.Errorf("Err is %v after a graceful close", err)
		}
		e.WaitOK(t, 1)
		e.WaitOK(t, 2)
	})
}

// TestDisconnectRefusesRequests covers DDP-31: new requests fail from Disconnect
// on, and a peer that does not follow is waited for as long as ctx says.
func TestDisconnectRefusesRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := rawInitiator(t)
		e.Recv(t, 1, 8)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start, done := time.Now(), make(chan error, 1)
		go func() { done <- e.QP.Disconnect(ctx) }()
		synctest.Wait()
		if err := e.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}); !errors.Is(err, iwarp.ErrState) {
			t.Errorf("PostSend in CLOSING: %v", err)
		}
		if err := e.QP.PostRecv(&iwarp.RecvWR{}); !errors.Is(err, iwarp.ErrState) {
			t.Errorf("PostRecv in CLOSING: %v", err)
		}
		if err := <-done; !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != 5*time.Second {
			t.Errorf("Disconnect from a peer that does not follow: %v after %v", err, time.Since(start))
		}
		if wc := e.Wait(t); wc.ID != 1 || wc.Status != iwarp.StatusWRFlushErr {
			t.Errorf("%+v", wc)
		}
	})
}

// TestTerminateStopsSending covers RDMAP-32 and RDMAP-43: a request is not complete
// before TCP has all of it, and after the peer's Terminate nothing more is sent.
func TestTerminateStopsSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := rawInitiator(t)
		const size = 1 << 20
		mr := e.Reg(t, make([]byte, size), 0, nil)
		for id := range uint64(3) {
			e.Post(t, &iwarp.SendWR{ID: id, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: size, LKey: mr.STag()}}})
		}
		synctest.Wait()
		var wc [1]iwarp.WC
		if e.CQ.Poll(wc[:]) != 0 {
			t.Errorf("complete before it was sent: %+v", wc[0])
		}
		term := unhex(t, "414700000000000000020000000100000000"+"12020000") // 1/2/02
		put(t, c, fpdu(term))
		var te *iwarp.TerminateError
		if err := e.WaitDone(t); !errors.As(err, &te) || !te.FromPeer || te.Layer != 1 || te.Type != 2 || te.Code != 2 {
			t.Errorf("ended with %v", err)
		}
		for id, want := range []iwarp.Status{iwarp.StatusRemInvReqErr, iwarp.StatusWRFlushErr, iwarp.StatusWRFlushErr} {
			if wc := e.Wait(t); wc.ID != uint64(id) || wc.Status != want {
				t.Errorf("request %d: %+v, want %s", id, wc, want)
			}
		}
		if b, _ := io.ReadAll(c); len(b) >= size {
			t.Errorf("%d bytes came all the same", len(b))
		}
	})
}

// TestHugeFPDU covers SEC-17: a length announced costs no more memory than the
// scratch there is, and an FPDU of any length is taken.
func TestHugeFPDU(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := rawInitiator(t)
		buf := e.Recv(t, 1, 1<<16)
		b := fpdu(append(unhex(t, "414300000000000000000000000100000000"), bytes.Repeat([]byte{7}, 0xffff-18)...))
		if len(b) < mpa.MaxULPDU {
			t.Fatalf("FPDU of %d bytes", len(b))
		}
		put(t, c, b)
		if wc := e.WaitOK(t, 1); wc.ByteLen != 0xffff-18 || buf[0] != 7 || buf[wc.ByteLen-1] != 7 {
			t.Errorf("%+v", wc)
		}
	})
}
