package iwarptest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Transport makes two devices that reach each other, and the address to listen on
// at the second one. They are closed by the suite.
type Transport func(t testing.TB) (initiator, responder iwarp.Device, addr string)

// Suite is the conformance suite of verbs: every provider and transport passes
// it. What a device lacks by its attributes is skipped.
func Suite(t *testing.T, tr Transport) {
	for _, c := range suite {
		t.Run(c.name, func(t *testing.T) {
			CheckGoroutines(t)
			da, db, addr := tr(t)
			t.Cleanup(func() { Close(t, da); Close(t, db) })
			c.run(&conn{T: t, da: da, db: db, addr: addr})
		})
	}
}

var suite = []struct {
	name string
	run  func(c *conn)
}{
	{"PrivateDataBothWays", (*conn).privateData},
	{"Reject", (*conn).reject},
	{"Revision1", (*conn).revision1},
	{"ClientServer", (*conn).clientServer},
	{"WithoutCRC", (*conn).withoutCRC},
	{"NobodyListens", (*conn).nobodyListens},
	{"SendSizes", (*conn).sendSizes},
	{"SendsInOrder", (*conn).sendsInOrder},
	{"GatherAndScatter", (*conn).gatherScatter},
	{"InlineMayBeReused", (*conn).inline},
	{"UnsignaledIsSilent", (*conn).unsignaled},
	{"SolicitedIsMarked", (*conn).solicited},
	{"MoreGoesWithTheNext", (*conn).more},
	{"WritePlacedBeforeSend", (*conn).writeThenSend},
	{"WriteOfNothing", (*conn).writeNothing},
	{"WriteBounds", (*conn).writeBounds},
	{"WriteErrors", (*conn).writeErrors},
	{"SendInvalidates", (*conn).sendInvalidates},
	{"SendInvalidateErrors", (*conn).invalidateErrors},
	{"InvalidateStopsWrites", (*conn).invalidateStopsWrites},
	{"SendTooLong", (*conn).sendTooLong},
	{"SendWithoutReceive", (*conn).sendWithoutReceive},
	{"BadLocalMemory", (*conn).badLocalMemory},
	{"PostErrors", (*conn).postErrors},
	{"QueueLimits", (*conn).queueLimits},
	{"FlushInOrder", (*conn).flushInOrder},
	{"DisconnectDrains", (*conn).disconnectDrains},
	{"AbortFlushes", (*conn).abortFlushes},
	{"DestroyForgetsCompletions", (*conn).destroyForgets},
	{"ConcurrentUse", (*conn).concurrentUse},
}

// conn is one case's two devices.
type conn struct {
	*testing.T
	da, db iwarp.Device
	addr   string
}

// pair connects a new pair of QPs with default wishes.
func (c *conn) pair() (a, b *End) {
	c.Helper()
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	Connect(c, a, b, c.addr, nil, nil)
	return a, b
}

func pattern(n int, seed byte) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*31>>2) ^ byte(i>>9) ^ seed
	}
	return p
}

func (c *conn) privateData() {
	for _, n := range []int{0, 1, 252, 508} {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		ctx := Context(c)
		l, err := c.db.Listen(ctx, c.addr, nil)
		if err != nil {
			c.Fatal(err)
		}
		there, back := pattern(n, 1), pattern(n, 2)
		accepted := make(chan error, 1)
		var seen iwarp.ConnInfo
		go func() {
			r, err := l.Accept(ctx)
			if err == nil {
				seen = r.Info()
				err = r.Accept(ctx, b.QP, &iwarp.ConnParam{PrivateData: back})
			}
			accepted <- err
		}()
		info, err := c.da.Dial(ctx, l.Addr().String(), a.QP, &iwarp.ConnParam{PrivateData: there})
		if err := errors.Join(err, <-accepted, l.Close()); err != nil {
			c.Fatal(err)
		}
		if !bytes.Equal(seen.PrivateData, there) || !bytes.Equal(info.PrivateData, back) {
			c.Errorf("%d bytes of private data did not arrive unchanged", n)
		}
		if info.Rev != 2 || !info.PeerToPeer || !info.CRC {
			c.Errorf("start-up by default: got %+v, want revision 2, peer to peer, CRC", info)
		}
		if a.QP.State() != iwarp.StateRTS || b.QP.State() != iwarp.StateRTS {
			c.Errorf("states %s and %s, want RTS", a.QP.State(), b.QP.State())
		}
	}
}

func (c *conn) reject() {
	a := NewEnd(c, c.da, iwarp.QPInitAttr{})
	ctx := Context(c)
	l, err := c.db.Listen(ctx, c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	defer l.Close()
	rejected := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Reject([]byte("not today"))
		}
		rejected <- err
	}()
	_, err = c.da.Dial(ctx, l.Addr().String(), a.QP, nil)
	var re *iwarp.RejectedError
	if !errors.As(err, &re) || string(re.PrivateData) != "not today" {
		c.Errorf("Dial: got %v, want a RejectedError with the reason", err)
	}
	if err := <-rejected; err != nil {
		c.Error(err)
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
}

func (c *conn) variant(pa, pb *iwarp.ConnParam, check func(*iwarp.ConnInfo) bool) {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	b.Recv(c, 1, 100)
	a.Recv(c, 2, 100)
	info := Connect(c, a, b, c.addr, pa, pb)
	if !check(info) {
		c.Errorf("agreed on %+v", info)
	}
	a.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("there")})
	a.WaitOK(c, 3)
	b.WaitOK(c, 1)
	b.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("back")})
	b.WaitOK(c, 4)
	a.WaitOK(c, 2)
}

func (c *conn) revision1() {
	c.variant(&iwarp.ConnParam{Rev: 1, PrivateData: pattern(512, 0)}, nil,
		func(i *iwarp.ConnInfo) bool { return i.Rev == 1 && !i.PeerToPeer && i.CRC })
}

func (c *conn) clientServer() {
	c.variant(&iwarp.ConnParam{ClientServer: true}, nil,
		func(i *iwarp.ConnInfo) bool { return i.Rev == 2 && !i.PeerToPeer && i.CRC })
}

func (c *conn) withoutCRC() {
	off := &iwarp.ConnParam{CRC: iwarp.CRCOffIfAgreed}
	c.variant(off, off, func(i *iwarp.ConnInfo) bool { return !i.CRC })
	c.variant(off, nil, func(i *iwarp.ConnInfo) bool { return i.CRC })
	c.variant(nil, off, func(i *iwarp.ConnInfo) bool { return i.CRC })
}

func (c *conn) nobodyListens() {
	a := NewEnd(c, c.da, iwarp.QPInitAttr{})
	l, err := c.db.Listen(Context(c), c.addr, nil)
	if err != nil {
		c.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		c.Fatal(err)
	}
	if _, err := c.da.Dial(Context(c), addr, a.QP, nil); err == nil {
		c.Error("Dial to a closed listener succeeded")
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
}

func (c *conn) sendSizes() {
	a, b := c.pair()
	for i, n := range []int{0, 1, 2, 3, 4, 25, 1424, 4096, 4097, 32 << 10, 64<<10 + 1, 1 << 20} {
		id := uint64(i)
		got := b.Recv(c, id, n)
		src := pattern(max(n, 1), byte(i))
		mr := a.Reg(c, src, 0, nil)
		a.Post(c, &iwarp.SendWR{ID: id, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: uint32(n), LKey: mr.STag()}}})
		a.WaitOK(c, id)
		if wc := b.WaitOK(c, id); wc.ByteLen != uint32(n) || wc.Op != iwarp.OpRecv || wc.QP != b.QP {
			c.Errorf("send of %d bytes: %+v", n, wc)
		}
		if !bytes.Equal(got, src[:n]) {
			c.Errorf("send of %d bytes arrived changed", n)
		}
	}
}

func (c *conn) sendsInOrder() {
	a, b := c.pair()
	const n = 50
	var bufs [n][]byte
	for i := range bufs {
		bufs[i] = b.Recv(c, uint64(i), 4)
	}
	for i := range n {
		a.Post(c, &iwarp.SendWR{ID: uint64(i), Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte(fmt.Sprintf("%04d", i))})
	}
	for i := range n {
		a.WaitOK(c, uint64(i))
		b.WaitOK(c, uint64(i))
		if got := string(bufs[i]); got != fmt.Sprintf("%04d", i) {
			c.Errorf("message %d is %q", i, got)
		}
	}
}

func (c *conn) gatherScatter() {
	a, b := c.pair()
	src, dst := pattern(100_000, 3), make([]byte, 100_000)
	sm, dm := a.Reg(c, src, 0, nil), b.Reg(c, dst, iwarp.LocalWrite, nil)
	sge := func(mr iwarp.MR, at uint64, n uint32) iwarp.SGE {
		return iwarp.SGE{Addr: at, Length: n, LKey: mr.STag()}
	}
	err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{
		sge(dm, 90_001, 7), {Addr: 1 << 40, LKey: 0}, sge(dm, 0, 50_000), sge(dm, 50_000, 40_001)}})
	if err != nil {
		c.Fatal(err)
	}
	// An SGE of length zero is not looked at, whatever its key.
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: []iwarp.SGE{
		sge(sm, 1, 3), {Addr: 5, LKey: 0xdead}, sge(sm, 10, 33_333), sge(sm, 40_000, 45_011)}})
	a.WaitOK(c, 2)
	const total = 3 + 33_333 + 45_011
	if wc := b.WaitOK(c, 1); wc.ByteLen != total {
		c.Errorf("ByteLen %d, want %d", wc.ByteLen, total)
	}
	want := append(append(append([]byte(nil), src[1:4]...), src[10:33_343]...), src[40_000:85_011]...)
	got := append(append([]byte(nil), dst[90_001:90_008]...), dst[:total-7]...)
	if !bytes.Equal(got, want) {
		c.Error("gathered and scattered bytes differ")
	}
}

func (c *conn) inline() {
	a, b := c.pair()
	max := c.da.Attr().MaxInline
	data := pattern(max, 9)
	want := append([]byte(nil), data...)
	mr := a.Reg(c, data, 0, nil)
	got1, got2 := b.Recv(c, 1, max), b.Recv(c, 2, max)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: data})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, SGL: []iwarp.SGE{{Length: uint32(max), LKey: mr.STag()}}})
	clear(data)
	b.WaitOK(c, 1)
	b.WaitOK(c, 2)
	if !bytes.Equal(got1, want) || !bytes.Equal(got2, want) {
		c.Error("inline data was not copied at posting")
	}
}

func (c *conn) unsignaled() {
	a, b := c.pair()
	for i := range uint64(40) {
		b.Recv(c, i, 1)
	}
	for i := range uint64(40) {
		f := iwarp.Inline | iwarp.Unsignaled
		if i%8 == 7 {
			f = iwarp.Inline
		}
		a.Post(c, &iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: f, Data: []byte{1}})
	}
	for i := range uint64(40) {
		b.WaitOK(c, i)
		if i%8 == 7 {
			a.WaitOK(c, i)
		}
	}
	var wc [1]iwarp.WC
	if a.CQ.Poll(wc[:]) != 0 {
		c.Errorf("completion of an unsignaled request: %+v", wc[0])
	}
}

func (c *conn) solicited() {
	a, b := c.pair()
	mr := b.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: b.QP})
	for i := range uint64(4) {
		b.Recv(c, i, 8)
		wr := &iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}}
		if i&1 != 0 {
			wr.Flags |= iwarp.Solicited
		}
		if i&2 != 0 {
			wr.Op, wr.InvSTag = iwarp.OpSendInv, mr.STag() // twice: already invalid is accepted
		}
		a.Post(c, wr)
		if wc := b.WaitOK(c, i); wc.Solicited != (i&1 != 0) || wc.Inv != (i&2 != 0) {
			c.Errorf("message %d: %+v", i, wc)
		}
	}
}

func (c *conn) more() {
	a, b := c.pair()
	dst := make([]byte, 100)
	mr := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	b.Recv(c, 1, 4)
	src := pattern(100, 5)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.More, Data: src, STag: mr.STag()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("now")})
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
	if !bytes.Equal(dst, src) {
		c.Error("the Write did not go before the Send")
	}
}

func (c *conn) writeThenSend() {
	a, b := c.pair()
	dst := make([]byte, 1<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{Base: 1 << 33})
	src := make([]byte, 1<<20)
	sm := a.Reg(c, src, 0, nil)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(60) {
		n := rng.IntN(1 << (4 + rng.IntN(17)))
		from, to := rng.IntN(len(src)-n), rng.IntN(len(dst)-n)
		copy(src[from:], pattern(n, byte(i)))
		b.Recv(c, i, 1)
		a.Post(c, &iwarp.SendWR{ID: 2 * i, Op: iwarp.OpWrite, STag: dm.STag(), TO: 1<<33 + uint64(to),
			SGL: []iwarp.SGE{{Addr: uint64(from), Length: uint32(n), LKey: sm.STag()}}})
		a.Post(c, &iwarp.SendWR{ID: 2*i + 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}})
		b.WaitOK(c, i)
		// "A Send Message's Completion guarantees that the Writes before it have
		// been Placed" (RFC 5040 §5.5, rule 10).
		if !bytes.Equal(dst[to:to+n], src[from:from+n]) {
			c.Fatalf("round %d: %d bytes written to %d are not there when the Send is delivered", i, n, to)
		}
		a.WaitOK(c, 2*i)
		a.WaitOK(c, 2*i+1)
	}
}

func (c *conn) writeNothing() {
	a, b := c.pair()
	b.Recv(c, 1, 1)
	// "If the DDP Segment is of zero length, the STag and TO MUST NOT be checked."
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, STag: 0xdeadbeef, TO: 99})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend})
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
}

func (c *conn) writeBounds() {
	a, b := c.pair()
	memory := make([]byte, 64)
	const base = 0x1000
	mr := b.Reg(c, memory[16:48], iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{Base: base})
	b.Recv(c, 1, 1)
	for _, w := range []struct{ to, n int }{{0, 32}, {0, 1}, {31, 1}, {5, 20}} {
		a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: bytes.Repeat([]byte{0xee}, w.n), STag: mr.STag(), TO: base + uint64(w.to)})
		a.WaitOK(c, 0)
	}
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
	want := make([]byte, 64)
	copy(want[16:48], bytes.Repeat([]byte{0xee}, 32))
	if !bytes.Equal(memory, want) {
		c.Errorf("memory is\n%x, want\n%x", memory, want)
	}
}

// wantTerminate checks that both sides ended by the same Terminate, found by b.
func (c *conn) wantTerminate(a, b *End, layer, typ, code uint8) {
	c.Helper()
	for side, e := range []*End{b, a} {
		var te *iwarp.TerminateError
		if err := e.WaitDone(c); !errors.As(err, &te) {
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
		foreign bool // region of another PD
		bound   bool // to another QP of the same PD
		to      uint64
		n       int
		stale   bool       // invalidated
		flip    iwarp.STag // makes the STag a wrong one
		code    uint8
	}{
		{name: "unknown STag", access: iwarp.RemoteWrite, n: 8, flip: 1},
		{name: "stale STag", access: iwarp.RemoteWrite, n: 8, stale: true, code: 0},
		{name: "no right", access: iwarp.RemoteRead, n: 8, code: 0},
		{name: "other PD", access: iwarp.RemoteWrite, foreign: true, n: 8, code: 2},
		{name: "other stream", access: iwarp.RemoteWrite, bound: true, n: 8, code: 2},
		{name: "below base", access: iwarp.RemoteWrite, to: 0xfff, n: 8, code: 1},
		{name: "past end", access: iwarp.RemoteWrite, to: 0x1039, n: 8, code: 1},
		{name: "far off", access: iwarp.RemoteWrite, to: 1 << 60, n: 8, code: 1},
		{name: "wrap", access: iwarp.RemoteWrite, to: 1<<64 - 4, n: 8, code: 3},
	} {
		a, b := c.pair()
		owner, o := b, &iwarp.MROptions{Base: 0x1000}
		if w.foreign {
			owner = other
		}
		if w.bound {
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
			o.QP = third
		}
		memory := make([]byte, 64)
		mr := owner.Reg(c, memory, w.access|iwarp.LocalWrite, o)
		if w.stale {
			if err := mr.Invalidate(); err != nil {
				c.Fatal(err)
			}
		}
		if w.to == 0 {
			w.to = 0x1000
		}
		a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: pattern(w.n, 7), STag: mr.STag() ^ w.flip, TO: w.to})
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
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("first"), STag: mr.STag()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSendInv, Flags: iwarp.Inline, Data: []byte("done"), InvSTag: mr.STag()})
	if wc := b.WaitOK(c, 1); !wc.Inv || wc.InvSTag != mr.STag() {
		c.Errorf("completion %+v does not name the STag", wc)
	}
	if string(memory[:5]) != "first" {
		c.Errorf("memory is %q", memory[:5])
	}
	a.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("later"), STag: mr.STag()})
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
	}{
		{"unknown", func(b *End) iwarp.STag { return 0xdeadbe00 }, 2, 9},
		{"other PD", func(b *End) iwarp.STag {
			return other.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil).STag()
		}, 1, 9},
		{"shared", func(b *End) iwarp.STag {
			return b.Reg(c, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil).STag()
		}, 1, 9},
		{"not remote", func(b *End) iwarp.STag {
			return b.Reg(c, make([]byte, 8), iwarp.LocalWrite, &iwarp.MROptions{QP: b.QP}).STag()
		}, 1, 9},
	} {
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
	a, b := c.pair()
	memory := make([]byte, 256<<10)
	mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	sm := a.Reg(c, pattern(len(memory), 0x55), 0, nil)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // Writes without end
		var wc [16]iwarp.WC
		for {
			select {
			case <-stop:
				return
			default:
			}
			wr := &iwarp.SendWR{Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: uint32(len(memory)), LKey: sm.STag()}}, STag: mr.STag()}
			if err := a.QP.PostSend(wr); errors.Is(err, iwarp.ErrQueueFull) {
				if a.CQ.Wait(context.Background()) != nil {
					return
				}
				a.CQ.Poll(wc[:])
			} else if err != nil {
				return
			}
		}
	})
	for b.QP.Stats().WritesReceived < 4 {
		if b.QP.State() != iwarp.StateRTS {
			c.Fatalf("QP ended: %v", b.QP.Err())
		}
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
	if err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{{Length: 64, LKey: mr.STag()}}}); err != nil {
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
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend}) // empty, and yet it needs one
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
		a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 8, LKey: foreign.STag()}}})
		a.WaitOK(t, 1)
		if wc := a.Wait(t); wc.ID != 2 || wc.Status != iwarp.StatusLocProtErr {
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
		if err := b.QP.PostRecv(&iwarp.RecvWR{ID: 1, SGL: []iwarp.SGE{{Length: 8, LKey: readOnly.STag()}}}); err != nil {
			t.Fatal(err)
		}
		a.Post(t, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("x")})
		if wc := b.Wait(t); wc.ID != 1 || wc.Status != iwarp.StatusLocProtErr {
			t.Errorf("receive into read-only memory: %+v", wc)
		}
		sub.wantTerminate(a, b, 1, 0, 0)
	})
}

func (c *conn) postErrors() {
	idle := NewEnd(c, c.da, iwarp.QPInitAttr{})
	if err := idle.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpSend}); !errors.Is(err, iwarp.ErrState) {
		c.Errorf("PostSend in IDLE: %v", err)
	}
	a, b := c.pair()
	attr := c.da.Attr()
	for name, wr := range map[string]*iwarp.SendWR{
		"opcode":          {Op: iwarp.OpRecv},
		"too many SGEs":   {Op: iwarp.OpSend, SGL: make([]iwarp.SGE, 5)},
		"inline too long": {Op: iwarp.OpSend, Flags: iwarp.Inline, Data: make([]byte, attr.MaxInline+1)},
		"Data not inline": {Op: iwarp.OpSend, Data: []byte("x")},
		"too long":        {Op: iwarp.OpSend, SGL: []iwarp.SGE{{Length: 1 << 31}, {Length: 1 << 31}}},
	} {
		if err := a.QP.PostSend(wr); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%s: PostSend: %v", name, err)
		}
	}
	if err := a.QP.PostRecv(&iwarp.RecvWR{SGL: make([]iwarp.SGE, 5)}); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("PostRecv with too many SGEs: %v", err)
	}
	if _, err := c.da.Dial(Context(c), c.addr, a.QP, nil); !errors.Is(err, iwarp.ErrState) {
		c.Errorf("Dial with a connected QP: %v", err)
	}
	b.Recv(c, 1, 1)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend}) // none of it did harm
	b.WaitOK(c, 1)
}

func (c *conn) queueLimits() {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{MaxSend: 4, MaxRecv: 2}), NewEnd(c, c.db, iwarp.QPInitAttr{MaxRecv: 8})
	Connect(c, a, b, c.addr, nil, nil)
	for i := range uint64(8) {
		b.Recv(c, i, 1)
	}
	send := func(id uint64) error {
		return a.QP.PostSend(&iwarp.SendWR{ID: id, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{1}})
	}
	for i := range uint64(4) {
		if err := send(i); err != nil {
			c.Fatal(err)
		}
	}
	// A place is held until its completion has been polled.
	if err := send(4); !errors.Is(err, iwarp.ErrQueueFull) {
		c.Errorf("fifth send: %v", err)
	}
	a.WaitOK(c, 0)
	if err := send(4); err != nil {
		c.Errorf("after polling one: %v", err)
	}
	for i := range uint64(2) {
		a.Recv(c, i, 1)
	}
	if err := a.QP.PostRecv(&iwarp.RecvWR{}); !errors.Is(err, iwarp.ErrQueueFull) {
		c.Errorf("third receive: %v", err)
	}
	for i := range uint64(4) {
		a.WaitOK(c, i+1)
		b.WaitOK(c, i)
	}
}

func (c *conn) flushInOrder() {
	a, b := c.pair()
	for i := range uint64(5) {
		a.Recv(c, 100+i, 8)
	}
	b.QP.Abort()
	a.WaitDone(c)
	for i := range uint64(5) {
		if wc := a.Wait(c); wc.ID != 100+i || wc.Status != iwarp.StatusWRFlushErr || wc.Op != iwarp.OpRecv {
			c.Errorf("flushed receive %d: %+v", i, wc)
		}
	}
	if a.QP.State() != iwarp.StateError {
		c.Errorf("state %s, want ERROR", a.QP.State())
	}
	a.Post(c, &iwarp.SendWR{ID: 7, Op: iwarp.OpSend})
	if wc := a.Wait(c); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("send in ERROR: %+v", wc)
	}
	a.Recv(c, 8, 8)
	if wc := a.Wait(c); wc.ID != 8 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("receive in ERROR: %+v", wc)
	}
}

func (c *conn) disconnectDrains() {
	a, b := c.pair()
	dst := make([]byte, 4<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	src := pattern(len(dst), 4)
	sm := a.Reg(c, src, 0, nil)
	b.Recv(c, 1, 8)
	b.Recv(c, 2, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: uint32(len(src)), LKey: sm.STag()}}, STag: dm.STag()})
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("bye")})
	if err := a.QP.Disconnect(Context(c)); err != nil {
		c.Errorf("Disconnect: %v", err)
	}
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
	if !bytes.Equal(dst, src) {
		c.Error("Disconnect lost data")
	}
	if err := b.WaitDone(c); err != nil {
		c.Errorf("the other side: %v", err)
	}
	if wc := b.Wait(c); wc.ID != 2 || wc.Status != iwarp.StatusWRFlushErr {
		c.Errorf("unused receive: %+v", wc)
	}
}

func (c *conn) abortFlushes() {
	a, b := c.pair()
	dst := make([]byte, 1<<20)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	sm := a.Reg(c, make([]byte, 1<<20), 0, nil)
	const n = 30
	for i := range uint64(n) {
		a.Post(c, &iwarp.SendWR{ID: i, Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: 1 << 20, LKey: sm.STag()}}, STag: dm.STag()})
	}
	a.QP.Abort()
	if a.WaitDone(c) == nil {
		c.Error("Err is nil after Abort")
	}
	flushed := false
	for i := range uint64(n) { // each exactly once, in order, the flushed ones last
		wc := a.Wait(c)
		if wc.ID != i || flushed && wc.Status == iwarp.StatusSuccess {
			c.Errorf("completion %d: %+v", i, wc)
		}
		flushed = flushed || wc.Status == iwarp.StatusWRFlushErr
	}
	if b.WaitDone(c) == nil {
		c.Error("the other side took an abort for a graceful end")
	}
}

func (c *conn) destroyForgets() {
	a, b := c.pair()
	b.Recv(c, 1, 8)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
	if err := a.QP.Destroy(); err != nil {
		c.Fatal(err)
	}
	var wc [4]iwarp.WC
	if n := a.CQ.Poll(wc[:]); n != 0 {
		c.Errorf("%d completions of a destroyed QP", n)
	}
	if err := a.CQ.Close(); err != nil {
		c.Errorf("closing the CQ of destroyed QPs: %v", err)
	}
	if err := b.CQ.Close(); err == nil {
		c.Error("a CQ in use could be closed")
	}
	b.WaitDone(c)
}

func (c *conn) concurrentUse() {
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	const posters, each = 4, 50
	dst := make([]byte, posters*4096)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	rm := b.Reg(c, make([]byte, 8), iwarp.LocalWrite, nil)
	recv := &iwarp.RecvWR{SGL: []iwarp.SGE{{Length: 8, LKey: rm.STag()}}}
	for range 64 {
		if err := b.QP.PostRecv(recv); err != nil {
			c.Fatal(err)
		}
	}
	Connect(c, a, b, c.addr, nil, nil)
	ctx := Context(c)
	var wg sync.WaitGroup
	// Without flow control of its own, a sender is bounded by what the receiver
	// has announced: here by one token a posted receive.
	tokens := make(chan struct{}, 64)
	for range 64 {
		tokens <- struct{}{}
	}
	for p := range posters {
		wg.Go(func() {
			for i := range each {
				<-tokens
				data := bytes.Repeat([]byte{byte(i)}, 4096)
				for _, wr := range []*iwarp.SendWR{
					{Op: iwarp.OpWrite, Flags: iwarp.Inline | iwarp.Unsignaled, Data: data, STag: dm.STag(), TO: uint64(p * 4096)},
					{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte{byte(p)}},
				} {
					for {
						err := a.QP.PostSend(wr)
						if err == nil {
							break
						}
						if !errors.Is(err, iwarp.ErrQueueFull) || ctx.Err() != nil {
							c.Error(err)
							return
						}
					}
				}
			}
		})
	}
	wg.Go(func() {
		var wc [8]iwarp.WC
		for got := 0; got < posters*each; {
			if err := b.CQ.Wait(ctx); err != nil {
				c.Error(err)
				return
			}
			for range b.CQ.Poll(wc[:]) {
				got++
				if err := b.QP.PostRecv(recv); err != nil {
					c.Error(err)
					return
				}
				tokens <- struct{}{}
			}
		}
	})
	wg.Wait()
	for p := range posters {
		if want := bytes.Repeat([]byte{each - 1}, 4096); !bytes.Equal(dst[p*4096:(p+1)*4096], want) {
			c.Errorf("region of poster %d does not hold its last Write", p)
		}
	}
}
