package iwarp_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// startUpSize is what an initiator writes before its first FPDU, RTR included.
const startUpSize = 24 + 20

func faulty(t *testing.T, f iwarptest.Faults) (a, b *iwarptest.End) {
	t.Helper()
	n := iwarptest.NewNetwork()
	a = iwarptest.NewEnd(t, iwarptest.Open(t, iwarptest.DialFaults(n.Config(), f)), iwarp.QPInitAttr{})
	b = iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
	iwarptest.Connect(t, a, b, "127.0.0.1:0", nil, nil)
	return a, b
}

// rawInitiator connects a peer of bytes to a QP, up to and with its RTR. It has
// not read the Reply.
func rawInitiator(t *testing.T) (*iwarptest.End, net.Conn) {
	t.Helper()
	n := iwarptest.NewNetwork()
	e, l := listen(t, n, nil)
	c := rawDial(t, n, l)
	put(t, c, frame(t, request))
	r, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rtr := unhex(t, "000ec140000000010000000000000000ebd34c5f")
	go func() {
		time.Sleep(time.Millisecond) // of the bubble: Accept waits by then
		_, _ = c.Write(rtr)          // what fails here fails in Accept
	}()
	if err := r.Accept(t.Context(), e.QP, nil); err != nil {
		t.Fatal(err)
	}
	return e, c
}

// TestFlippedBit: wherever a bit of a Write is flipped, no byte is placed, and
// both sides know of the CRC error.
func TestFlippedBit(t *testing.T) {
	const size = 64
	for at := int64(1); at <= 2+14+size+4; at++ {
		if at == 1 { // the length's high octet: the FPDU never ends
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			a, b := faulty(t, iwarptest.Faults{FlipAt: startUpSize + at})
			memory := make([]byte, size)
			mr := b.Reg(t, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
			a.Post(t, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: bytes.Repeat([]byte{0xee}, size), STag: mr.STag()})
			if at == 2 { // the length's low octet: enough must follow
				a.Post(t, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: make([]byte, 100)})
			}
			var te *iwarp.TerminateError
			if err := b.WaitDone(t); !errors.As(err, &te) || te.FromPeer || te.Layer != 2 || te.Code != 2 {
				t.Errorf("byte %d: receiver ended with %v", at, err)
			}
			if err := a.WaitDone(t); !errors.As(err, &te) || !te.FromPeer || te.Layer != 2 || te.Code != 2 {
				t.Errorf("byte %d: sender ended with %v", at, err)
			}
			if !bytes.Equal(memory, make([]byte, size)) {
				t.Errorf("byte %d: memory was changed", at)
			}
			s := b.Dev.Stats()
			if s.CRCErrors != 1 || s.Terminates[iwarp.TerminateKey{Sent: true, Layer: 2, Code: 2}] != 1 {
				t.Errorf("byte %d: stats %+v", at, s)
			}
		})
	}
}

// TestCutConnection: a connection lost inside an FPDU or inside a message is an
// error, not an end; nothing of the FPDU is placed.
func TestCutConnection(t *testing.T) {
	for _, cut := range []int64{1, 2, 3, 17, 18, 40, 83, 84} {
		synctest.Test(t, func(t *testing.T) {
			a, b := faulty(t, iwarptest.Faults{CutAt: startUpSize + cut})
			memory := make([]byte, 64)
			mr := b.Reg(t, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
			a.Post(t, &iwarp.SendWR{ID: 7, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: bytes.Repeat([]byte{0xee}, 64), STag: mr.STag()})
			if err := b.WaitDone(t); err == nil {
				t.Errorf("cut at %d: the receiver takes it for a graceful end", cut)
			}
			if err := a.WaitDone(t); err == nil {
				t.Errorf("cut at %d: the sender takes it for a graceful end", cut)
			}
			if wc := a.Wait(t); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
				t.Errorf("cut at %d: %+v", cut, wc)
			}
			if !bytes.Equal(memory, make([]byte, 64)) {
				t.Errorf("cut at %d: memory was changed", cut)
			}
		})
	}
}

// TestStalledPeer: a peer that reads nothing costs a bounded time.
func TestStalledPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := rawInitiator(t)
		mr := e.Reg(t, make([]byte, 1<<20), 0, nil)
		for i := range uint64(10) {
			e.Post(t, &iwarp.SendWR{ID: i, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 1 << 20, LKey: mr.STag()}}})
		}
		start := time.Now()
		<-e.QP.Done()
		if err := e.QP.Err(); err == nil || time.Since(start) < 60*time.Second || time.Since(start) > 61*time.Second {
			t.Errorf("%v after %v, want a time-out after 60 s", err, time.Since(start))
		}
		for i := range uint64(10) {
			if wc := e.Wait(t); wc.ID != i || wc.Status != iwarp.StatusWRFlushErr {
				t.Errorf("%+v", wc)
			}
		}
	})
}

// TestPeerIgnoresTerminate: after our Terminate the peer has 2 s to close; the QP
// itself is done at once.
func TestPeerIgnoresTerminate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, c := rawInitiator(t)
		start := time.Now()
		put(t, c, fpdu(unhex(t, "414f00000000000000000000000100000000")))
		<-e.QP.Done()
		if time.Since(start) != 0 {
			t.Errorf("QP done after %v", time.Since(start))
		}
		b := make([]byte, 100)
		if _, err := io.ReadFull(c, b[:24+28]); err != nil || b[24+2+1] != 0x47 || b[24+20] != 0x02 || b[24+21] != 0x06 {
			t.Errorf("got % x, %v: want Reply and a Terminate 0/2/06", b, err)
		}
		if k, err := c.Read(b); err != io.EOF {
			t.Errorf("after the Terminate: %d bytes, %v; want the end", k, err)
		}
		if err := e.QP.Destroy(); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 2*time.Second {
			t.Errorf("gone after %v, want 2 s", d)
		}
	})
}

// TestPeerClosesAmidMessage: a FIN is graceful only between messages.
func TestPeerClosesAmidMessage(t *testing.T) {
	for name, b := range map[string]string{
		"inside an FPDU":   "000ec140000000",
		"inside a message": "",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, c := rawInitiator(t)
				if b != "" {
					put(t, c, unhex(t, b))
				} else {
					put(t, c, fpdu(unhex(t, "8140000000010000000000000000")))
				}
				c.(interface{ CloseWrite() error }).CloseWrite()
				if err := e.WaitDone(t); err == nil {
					t.Error("taken for a graceful end")
				}
			})
		})
	}
}
