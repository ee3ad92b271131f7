package iwarptest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var errorCases = []suiteCase{
	{"WriteErrors", (*conn).writeErrors},
	{"SendInvalidates", (*conn).sendInvalidates},
	{"SendInvalidateErrors", (*conn).invalidateErrors},
	{"InvalidateStopsWrites", (*conn).invalidateStopsWrites},
	{"LocalInvalidate", (*conn).localInvalidate},
	{"SendTooLong", (*conn).sendTooLong},
	{"SendWithoutReceive", (*conn).sendWithoutReceive},
	{"BadLocalMemory", (*conn).badLocalMemory},
}

// wantTerminate checks that both sides ended by the same Terminate, which b found. For a device that
// does not report the reason it only checks the end.
func (c *conn) wantTerminate(a, b *End, layer, typ, code uint8) {
	c.Helper()
	for side, e := range []*End{b, a} {
		var te *iwarp.TerminateError
		if err := e.WaitDone(c); !e.Dev.Attr().EndReason {
			continue
		} else if !errors.As(err, &te) {
			c.Errorf("side %d ended with %v, want a Terminate %d/%d/%02x", side, err, layer, typ, code)
		} else if te.Layer != layer || te.Type != typ || te.Code != code || te.FromPeer != (side == 1) {
			c.Errorf("side %d ended with %+v, want %d/%d/%02x", side, te, layer, typ, code)
		}
	}
}

func (c *conn) writeErrors() {
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	for _, w := range []struct {
		name    string
		access  iwarp.Access
		foreign bool   // region of another PD
		bound   bool   // to another QP of the same PD
		off     uint64 // from the region's base
		n       int
		stale   bool       // invalidated
		flip    iwarp.STag // flips bits of the STag
		code    uint8
	}{
		{name: "unknown STag", access: iwarp.RemoteWrite, n: 8, flip: 1},
		{name: "stale STag", access: iwarp.RemoteWrite, n: 8, stale: true, code: 0},
		{name: "no right", access: iwarp.RemoteRead, n: 8, code: 0},
		{name: "other PD", access: iwarp.RemoteWrite, foreign: true, n: 8, code: 2},
		{name: "other stream", access: iwarp.RemoteWrite, bound: true, n: 8, code: 2},
		{name: "below base", access: iwarp.RemoteWrite, off: math.MaxUint64, n: 8, code: 1},
		{name: "past end", access: iwarp.RemoteWrite, off: 0x39, n: 8, code: 1},
		{name: "far off", access: iwarp.RemoteWrite, off: 1 << 60, n: 8, code: 1},
		{name: "wrap", access: iwarp.RemoteWrite, off: 1<<64 - 4 - 0x1000, n: 8, code: 3},
	} {
		if attr := c.db.Attr(); w.bound && !attr.BoundMR {
			continue
		}
		a, b := c.pair()
		owner, o := b, c.base(0x1000)
		if w.foreign {
			owner = other
		}
		if w.bound { // the region's base is then 0
			if _, err := b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: other.CQ, RecvCQ: other.CQ}); !errors.Is(err, iwarp.ErrLimit) {
				c.Fatalf("a CQ took more QPs than it has room for: %v", err)
			}
			cq, err := c.db.CreateCQ(2)
			if err != nil {
				c.Fatal(err)
			}
			third, err := b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1})
			if err != nil {
				c.Fatal(err)
			}
			o = &iwarp.MROptions{QP: third}
		}
		memory := make([]byte, 64)
		mr := owner.Reg(c, memory, w.access|iwarp.LocalWrite, o)
		if w.stale {
			if err := mr.Invalidate(); err != nil {
				c.Fatal(err)
			}
		}
		a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: pattern(w.n, 7), STag: mr.STag() ^ w.flip, TO: mr.Base() + w.off})
		c.Run(w.name, func(t *testing.T) {
			sub := *c
			sub.T = t
			sub.wantTerminate(a, b, 1, 1, w.code)
			if !bytes.Equal(memory, make([]byte, 64)) {
				t.Error("a refused Write has changed memory")
			}
		})
	}
}

func (c *conn) sendInvalidates() {
	a, b := c.pair()
	memory := make([]byte, 64)
	mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: b.QP})
	b.Recv(c, 1, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("first"), STag: mr.STag(), TO: mr.Base()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSendInv, Flags: iwarp.Inline, Data: []byte("done"), InvSTag: mr.STag()})
	if wc := b.WaitOK(c, 1); c.db.Attr().WCMarks && (!wc.Inv || wc.InvSTag != mr.STag()) {
		c.Errorf("completion %+v does not name the STag", wc)
	}
	if string(memory[:5]) != "first" {
		c.Errorf("memory is %q", memory[:5])
	}
	a.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("later"), STag: mr.STag(), TO: mr.Base()})
	c.wantTerminate(a, b, 1, 1, 0)
	if string(memory[:5]) != "first" {
		c.Errorf("a Write after the invalidation has changed memory to %q", memory[:5])
	}
}

func (c *conn) invalidateErrors() {
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	for _, w := range []struct {
		name   string
		make   func(b *End) iwarp.STag
		ty, co uint8
		bound  bool // needs regions of one stream
	}{
		{"unknown", func(b *End) iwarp.STag { return 0xdeadbe00 }, 2, 9, false},
		{"other PD", func(b *End) iwarp.STag {
			return other.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil).STag()
		}, 1, 9, false},
		{"shared", func(b *End) iwarp.STag {
			return b.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil).STag()
		}, 1, 9, true},
		{"not remote", func(b *End) iwarp.STag {
			return b.Reg(c, make([]byte, 8), iwarp.LocalWrite, &iwarp.MROptions{QP: b.QP}).STag()
		}, 1, 9, true},
	} {
		if w.bound && !c.db.Attr().BoundMR {
			continue
		}
		a, b := c.pair()
		b.Recv(c, 1, 8)
		a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSendInv, Flags: iwarp.Inline, Data: []byte("x"), InvSTag: w.make(b)})
		c.Run(w.name, func(t *testing.T) {
			sub := *c
			sub.T = t
			if wc := b.Wait(t); wc.ID != 1 || wc.Status != iwarp.StatusRemInvReqErr {
				t.Errorf("receive: %+v", wc)
			}
			sub.wantTerminate(a, b, 0, w.ty, w.co)
		})
	}
}

func (c *conn) invalidateStopsWrites() {
	c.kernelPlaces()
	a, b := c.pair()
	memory := make([]byte, 256<<10)
	mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	sm := a.Reg(c, pattern(len(memory), 0x55), 0, nil)
	stop, flowing := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var wg sync.WaitGroup
	wg.Go(func() { // endless Writes
		var wc [16]iwarp.WC
		for {
			select {
			case <-stop:
				return
			default:
			}
			wr := &iwarp.SendWR{Op: iwarp.OpWrite, SGL: []iwarp.SGE{Seg(sm, 0, len(memory))}, STag: mr.STag(), TO: mr.Base()}
			if err := a.QP.PostSend(wr); errors.Is(err, iwarp.ErrQueueFull) {
				if a.CQ.Wait(context.Background()) != nil {
					return
				}
				a.CQ.Poll(wc[:])
				once.Do(func() { close(flowing) }) // a whole SQ is under way, and some of it done
			} else if err != nil {
				return
			}
		}
	})
	select {
	case <-flowing:
	case <-b.QP.Done():
		c.Fatalf("QP ended: %v", b.QP.Err())
	case <-time.After(Timeout):
		c.Fatal("no Write completes")
	}
	if err := mr.Invalidate(); err != nil {
		c.Fatal(err)
	}
	mine := bytes.Repeat([]byte{0xaa}, len(memory))
	copy(memory, mine)
	b.WaitDone(c)
	close(stop)
	a.WaitDone(c)
	wg.Wait()
	if !bytes.Equal(memory, mine) {
		c.Error("a byte was placed after Invalidate had returned")
	}
}

func (c *conn) sendTooLong() {
	a, b := c.pair()
	memory := make([]byte, 128)
	mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
	if err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{Seg(mr, 0, 64)}}); err != nil {
		c.Fatal(err)
	}
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: pattern(65, 0xff)})
	if wc := b.Wait(c); wc.ID != 1 || wc.Status != iwarp.StatusLocLenErr {
		c.Errorf("receive: %+v", wc)
	}
	c.wantTerminate(a, b, 1, 2, 5)
	if !bytes.Equal(memory, make([]byte, 128)) {
		c.Error("a message too long has changed memory")
	}
}

func (c *conn) sendWithoutReceive() {
	a, b := c.pair()
	b.Recv(c, 1, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend}) // an empty Send needs a receive too
	c.wantTerminate(a, b, 1, 2, 2)
}

func (c *conn) badLocalMemory() {
	c.Run("send", func(t *testing.T) {
		sub := *c
		sub.T = t
		a, b := sub.pair()
		b.Recv(t, 1, 8)
		a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
		foreign := b.Reg(t, make([]byte, 8), 0, nil)
		a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: []iwarp.SGE{Seg(foreign, 0, 8)}})
		a.WaitOK(t, 1)
		if wc := a.Wait(t); wc.ID != 2 || !sub.failed(wc.Status, iwarp.StatusLocProtErr, a) {
			t.Errorf("send from memory of another PD: %+v", wc)
		}
		b.WaitOK(t, 1)
		sub.wantTerminate(b, a, 0, 0, 0)
	})
	c.Run("receive", func(t *testing.T) {
		sub := *c
		sub.T = t
		a, b := sub.pair()
		readOnly := b.Reg(t, make([]byte, 8), 0, nil)
		if err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{Seg(readOnly, 0, 8)}}); err != nil {
			t.Fatal(err)
		}
		a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
		if wc := b.Wait(t); wc.ID != 1 || !sub.failed(wc.Status, iwarp.StatusLocProtErr, b) {
			t.Errorf("receive into read-only memory: %+v", wc)
		}
		sub.wantTerminate(a, b, 1, 0, 0)
	})
}

// localInvalidate checks that an OpLocalInv is executed in its turn.
func (c *conn) localInvalidate() {
	c.need("local invalidate", func(a iwarp.DeviceAttr) bool { return a.LocalInv })
	a, b := c.pair()
	mr := b.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	a.Recv(c, 9, 8)
	b.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.More, Data: []byte("before")})
	b.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpLocalInv, InvSTag: mr.STag()})
	b.WaitOK(c, 1)
	b.WaitOK(c, 2)
	a.WaitOK(c, 9)
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("x"), STag: mr.STag(), TO: mr.Base()})
	c.wantTerminate(a, b, 1, 1, 0)

	a, b = c.pair()
	foreign := a.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	b.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpLocalInv, InvSTag: foreign.STag()})
	if wc := b.Wait(c); wc.ID != 1 || wc.Status != iwarp.StatusLocProtErr {
		c.Errorf("local invalidate of another's region: %+v", wc)
	}
	c.wantTerminate(a, b, 0, 0, 0)
}
