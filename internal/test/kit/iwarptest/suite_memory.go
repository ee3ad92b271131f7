package iwarptest

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var memoryCases = []suiteCase{
	{"WindowOpensAPart", (*conn).windowPart},
	{"WindowErrors", (*conn).windowErrors},
	{"WindowForReads", (*conn).windowReads},
	{"WindowCloses", (*conn).windowCloses},
	{"WindowRebinds", (*conn).windowRebinds},
	{"WindowHoldsItsRegion", (*conn).windowHolds},
	{"FastRegister", (*conn).fastRegister},
	{"FastRegisterErrors", (*conn).fastErrors},
	{"FastRegisterIsOneStreams", (*conn).fastBound},
	{"RightsAreSeparate", (*conn).rights},
	{"EndingMemoryStopsWrites", (*conn).endingStopsWrites},
	{"LocalInvalidateAmidReads", (*conn).localInvAmidReads},
	{"AbsentIsUnsupported", (*conn).absent},
}

func (c *conn) needFastReg() {
	c.Helper()
	c.need("fast registration", func(a iwarp.DeviceAttr) bool { return a.FastReg && a.LocalInv })
}

// register gives a region of AllocMR memory, and waits until that is done.
func (e *End) register(c *conn, mr iwarp.MR, buf []byte, a iwarp.Access, base uint64) iwarp.STag {
	c.Helper()
	e.Post(c, &iwarp.SendWR{ID: 56, Op: iwarp.OpFastReg, Reg: &iwarp.FastReg{MR: mr, Buf: buf, Access: a, Base: base}})
	stag := mr.STag()
	if wc := e.WaitOK(c, 56); wc.Op != iwarp.OpFastReg {
		c.Errorf("completion of a fast registration: %+v", wc)
	}
	return stag
}

// localInv invalidates stag by an OpLocalInv.
func (e *End) localInv(c *conn, stag iwarp.STag) {
	c.Helper()
	e.Post(c, &iwarp.SendWR{ID: 57, Op: iwarp.OpLocalInv, InvSTag: stag})
	e.WaitOK(c, 57)
}

// write writes text to the peer, followed by a Send that the peer waits for.
func (c *conn) write(a, b *End, text string, stag iwarp.STag, to uint64) {
	c.Helper()
	b.Recv(c, 66, 8)
	a.Post(c, &iwarp.SendWR{ID: 65, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte(text), STag: stag, TO: to})
	a.send2(c, 65)
	b.WaitOK(c, 66)
}

func (e *End) send2(c *conn, first uint64) {
	c.Helper()
	e.Post(c, &iwarp.SendWR{ID: 66, Op: iwarp.OpSend})
	e.WaitOK(c, first)
	e.WaitOK(c, 66)
}

// refuse checks that a Write of 4 bytes ends the stream with 1/1/code.
func (c *conn) refuse(a, b *End, stag iwarp.STag, to uint64, code uint8) {
	c.Helper()
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("evil"), STag: stag, TO: to})
	c.wantTerminate(a, b, 1, 1, code)
}

// sub runs f as a subtest of its own.
func (c *conn) sub(name string, f func(c *conn)) {
	c.Helper()
	c.Run(name, func(t *testing.T) {
		s := *c
		s.T = t
		f(&s)
	})
}

// fastRegister covers VRB-21 and RDMAP-27: each registration has another STag; the peer that knows
// it, or a request of the owner's, ends it.
func (c *conn) fastRegister() {
	c.needFastReg()
	a, b := c.pair()
	mr, err := b.PD.AllocMR(64)
	if err != nil {
		c.Fatal(err)
	}
	if s := mr.STag(); s != 0 {
		c.Errorf("a region that was never registered has STag %#x", s)
	}
	seen := make(map[iwarp.STag]bool)
	var last, now iwarp.STag
	for i := range 100 {
		memory := make([]byte, 1+i%64)
		base := uint64(0)
		if c.db.Attr().AnyBase {
			base = uint64(i * 1000)
		}
		last, now = now, b.register(c, mr, memory, iwarp.LocalWrite|iwarp.RemoteWrite, base)
		if seen[now] || now == 0 {
			c.Fatalf("STag %#x came again at registration %d", now, i)
		}
		seen[now] = true
		if mr.Len() != len(memory) || c.db.Attr().AnyBase && mr.Base() != base {
			c.Errorf("registration %d: %d bytes from %d on", i, mr.Len(), mr.Base())
		}
		c.write(a, b, "x", now, mr.Base())
		if memory[0] != 'x' {
			c.Fatalf("registration %d: nothing was placed", i)
		}
		// It works for our own requests too.
		got := a.Recv(c, 7, 8)
		b.Post(c, &iwarp.SendWR{ID: 8, Op: iwarp.OpSend, SGL: []iwarp.SGE{Seg(mr, 0, 1)}})
		b.WaitOK(c, 8)
		if a.WaitOK(c, 7); got[0] != 'x' {
			c.Fatalf("registration %d: sent %q", i, got[:1])
		}
		if i == 99 {
			break
		}
		if i%2 == 0 {
			b.localInv(c, now)
			continue
		}
		b.Recv(c, 1, 8)
		a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSendInv, InvSTag: now})
		a.WaitOK(c, 2)
		b.WaitOK(c, 1)
	}
	c.refuse(a, b, last, mr.Base(), 0)
	if err := mr.Dereg(); err != nil {
		c.Error(err)
	}
	if err := mr.Dereg(); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("second Dereg: %v", err)
	}
}

func (c *conn) fastErrors() {
	c.needFastReg()
	a, b := c.pair()
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	alloc := func(e *End) iwarp.MR {
		mr, err := e.PD.AllocMR(16)
		if err != nil {
			c.Fatal(err)
		}
		return mr
	}
	mr, foreign := alloc(b), alloc(other)
	buf := make([]byte, 17)
	for name, r := range map[string]*iwarp.FastReg{
		"nothing":           nil,
		"no region":         {Buf: buf[:8]},
		"no memory":         {MR: mr},
		"too much memory":   {MR: mr, Buf: buf},
		"an ordinary one":   {MR: b.Reg(c, buf, 0, nil), Buf: buf[:8]},
		"another's":         {MR: foreign, Buf: buf[:8]},
		"remote write only": {MR: mr, Buf: buf[:8], Access: iwarp.RemoteWrite},
	} {
		if err := b.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpFastReg, Reg: r}); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%s: %v", name, err)
		}
	}
	if _, err := b.PD.AllocMR(0); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("AllocMR(0): %v", err)
	}
	stag := b.register(c, mr, buf[:16], iwarp.LocalWrite|iwarp.RemoteWrite, 0)
	c.write(a, b, "ok", stag, mr.Base()) // none of that did harm
	// Registered twice: the second request fails, and with it the stream.
	b.Post(c, &iwarp.SendWR{ID: 3, Op: iwarp.OpFastReg, Reg: &iwarp.FastReg{MR: mr, Buf: buf[:8]}})
	if wc := b.Wait(c); wc.ID != 3 || wc.Status != iwarp.StatusLocProtErr {
		c.Errorf("a second registration: %+v", wc)
	}
	c.wantTerminate(a, b, 0, 0, 0)
}

// fastBound covers SEC-02: a registration by a request belongs to the stream of that request.
func (c *conn) fastBound() {
	c.needFastReg()
	c.need("regions of one stream", func(a iwarp.DeviceAttr) bool { return a.BoundMR })
	a, b := c.pair()
	cq, err := c.db.CreateCQ(16)
	if err != nil {
		c.Fatal(err)
	}
	qp, err := b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8})
	if err != nil {
		c.Fatal(err)
	}
	b2 := &End{Dev: c.db, PD: b.PD, CQ: cq, QP: qp}
	a2 := NewEnd(c, c.da, iwarp.QPInitAttr{})
	Connect(c, a2, b2, c.addr, nil, nil)
	mr, err := b.PD.AllocMR(16)
	if err != nil {
		c.Fatal(err)
	}
	memory := make([]byte, 16)
	stag := b.register(c, mr, memory, iwarp.LocalWrite|iwarp.RemoteWrite, 0)
	c.refuse(a2, b2, stag, mr.Base(), 2)
	c.write(a, b, "mine", stag, mr.Base())
	if c.db.Attr().MemoryWindow {
		plain := b.Reg(c, memory, iwarp.LocalWrite, nil)
		stag := b.bind(c, b.window(c), plain, 0, 16, iwarp.RemoteWrite)
		a3 := NewEnd(c, c.da, iwarp.QPInitAttr{})
		qp, err := b.PD.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 0, MaxRecv: 0, Overcommit: true})
		if err != nil {
			c.Fatal(err)
		}
		b3 := &End{Dev: c.db, PD: b.PD, CQ: cq, QP: qp}
		Connect(c, a3, b3, c.addr, nil, nil)
		c.refuse(a3, b3, stag, plain.Base(), 2)
	}
	if string(memory[:4]) != "mine" {
		c.Errorf("memory is %q", memory)
	}
}

// rights covers SEC-05 and SEC-21: each right stands alone, and no right exists that was not given.
func (c *conn) rights() {
	attr := c.db.Attr()
	all := map[string]iwarp.Access{
		"none":          0,
		"local write":   iwarp.LocalWrite,
		"remote write":  iwarp.LocalWrite | iwarp.RemoteWrite,
		"remote read":   iwarp.RemoteRead,
		"remote atomic": iwarp.LocalWrite | iwarp.RemoteAtomic,
		"all but write": iwarp.LocalWrite | iwarp.RemoteRead | iwarp.RemoteAtomic,
		"all but read":  iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteAtomic,
		"all but atom":  iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead,
	}
	for _, op := range []struct {
		name     string
		op       iwarp.Opcode
		need     iwarp.Access
		has      bool
		ty, code uint8 // the layer is DDP for a Write, else RDMAP
		layer    uint8
	}{
		{"write", iwarp.OpWrite, iwarp.RemoteWrite, true, 1, 0, 1},
		{"read", iwarp.OpRead, iwarp.RemoteRead, attr.RDMARead, 1, 2, 0},
		{"atomic", iwarp.OpFetchAdd, iwarp.RemoteAtomic, attr.Atomics, 1, 2, 0},
	} {
		if !op.has {
			continue
		}
		for name, access := range all {
			if access&iwarp.RemoteAtomic != 0 && !attr.Atomics || op.op == iwarp.OpRead && access&op.need == 0 && !attr.ReadRight {
				continue
			}
			c.sub(op.name+" with "+name, func(c *conn) {
				a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
				p := &iwarp.ConnParam{ORD: 2, IRD: 2, Extensions: attr.Atomics}
				if !attr.RDMARead {
					p = nil
				}
				Connect(c, a, b, c.addr, p, p)
				words, sink := []uint64{41}, []uint64{0}
				mr := b.Reg(c, octets(words), access, nil)
				sm := a.Reg(c, octets(sink), sinkRights, nil)
				wr := &iwarp.SendWR{ID: 5, Op: op.op, STag: mr.STag(), TO: mr.Base(),
					SGL: []iwarp.SGE{Seg(sm, 0, 8)}, Atomic: iwarp.AtomicArgs{Add: 1}}
				a.Post(c, wr)
				if access&op.need == 0 {
					c.wantTerminate(a, b, op.layer, op.ty, op.code)
					if words[0] != 41 || sink[0] != 0 {
						c.Errorf("memory is %d, sink %d", words[0], sink[0])
					}
					return
				}
				a.WaitOK(c, 5)
				b.Recv(c, 66, 8) // a Write has been placed once the Send after it arrives
				a.Post(c, &iwarp.SendWR{ID: 66, Op: iwarp.OpSend})
				a.WaitOK(c, 66)
				b.WaitOK(c, 66)
				want := map[iwarp.Opcode][2]uint64{iwarp.OpWrite: {0, 0}, iwarp.OpRead: {41, 41}, iwarp.OpFetchAdd: {42, 41}}[op.op]
				if words[0] != want[0] || sink[0] != want[1] {
					c.Errorf("memory is %d, sink %d, want %d", words[0], sink[0], want)
				}
			})
		}
	}
	pd, err := c.da.AllocPD()
	if err != nil {
		c.Fatal(err)
	}
	for _, a := range []iwarp.Access{iwarp.RemoteWrite, iwarp.RemoteAtomic} { // covers VRB-18
		if _, err := pd.RegMR(make([]byte, 8), a, nil); !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("rights %#x without LocalWrite: %v", a, err)
		}
	}
	if err := pd.Dealloc(); err != nil {
		c.Error(err)
	}
}

// absent covers VRB-30: a device clearly refuses what its attributes say it lacks.
func (c *conn) absent() {
	attr := c.da.Attr()
	a, _ := c.pair()
	for _, x := range []struct {
		what string
		has  bool
		call func() error
	}{
		{"memory windows", attr.MemoryWindow, func() error { _, err := a.PD.AllocMW(); return err }},
		{"fast registration", attr.FastReg, func() error { _, err := a.PD.AllocMR(8); return err }},
		{"SRQs", attr.MaxSRQ > 0, func() error { _, err := a.PD.CreateSRQ(iwarp.SRQInitAttr{}); return err }},
		{"local invalidate", attr.LocalInv, func() error {
			mr := a.Reg(c, make([]byte, 8), 0, nil)
			return a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpLocalInv, InvSTag: mr.STag()})
		}},
	} {
		if err := x.call(); !x.has && !errors.Is(err, iwarp.ErrUnsupported) {
			c.Errorf("%s is not there, and a call says: %v", x.what, err)
		}
	}
	if attr.MemoryWindow != (attr.MaxMW > 0) {
		c.Errorf("MemoryWindow is %v, MaxMW %d", attr.MemoryWindow, attr.MaxMW)
	}
}

// endingStopsWrites covers SEC-06 and VRB-19: once the owner has taken memory back, by whatever
// means, not a byte from a peer that goes on writing reaches it.
func (c *conn) endingStopsWrites() {
	attr := c.db.Attr()
	for name, w := range map[string]struct {
		has  bool
		open func(c *conn, b *End, memory []byte) (stag iwarp.STag, base uint64, end func() error)
	}{
		"dereg": {true, func(c *conn, b *End, memory []byte) (iwarp.STag, uint64, func() error) {
			mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
			return mr.STag(), mr.Base(), mr.Dereg
		}},
		"window": {attr.MemoryWindow, func(c *conn, b *End, memory []byte) (iwarp.STag, uint64, func() error) {
			mr := b.Reg(c, memory, iwarp.LocalWrite, nil)
			mw := b.window(c)
			return b.bind(c, mw, mr, 0, len(memory), iwarp.RemoteWrite), mr.Base(), mw.Dealloc
		}},
		"request": {attr.LocalInv, func(c *conn, b *End, memory []byte) (iwarp.STag, uint64, func() error) {
			mr := b.Reg(c, memory, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
			return mr.STag(), mr.Base(), func() error { b.localInv(c, mr.STag()); return nil }
		}},
		"fast": {attr.FastReg, func(c *conn, b *End, memory []byte) (iwarp.STag, uint64, func() error) {
			mr, err := b.PD.AllocMR(len(memory))
			if err != nil {
				c.Fatal(err)
			}
			return b.register(c, mr, memory, iwarp.LocalWrite|iwarp.RemoteWrite, 0), mr.Base(), mr.Invalidate
		}},
	} {
		if !w.has {
			continue
		}
		c.sub(name, func(c *conn) {
			a, b := c.pair()
			memory := make([]byte, 64<<10)
			stag, base, end := w.open(c, b, memory)
			src := a.Reg(c, pattern(len(memory), 0x55), 0, nil)
			stopped := make(chan struct{})
			go func() { // endless Writes
				defer close(stopped)
				for a.QP.State() == iwarp.StateRTS {
					wr := &iwarp.SendWR{Op: iwarp.OpWrite, SGL: []iwarp.SGE{Seg(src, 0, len(memory))}, STag: stag, TO: base}
					if err := a.QP.PostSend(wr); errors.Is(err, iwarp.ErrQueueFull) {
						if a.CQ.Wait(Context(c)) != nil {
							return
						}
						var wc [16]iwarp.WC
						a.CQ.Poll(wc[:])
					} else if err != nil {
						return
					}
				}
			}()
			b.Recv(c, 1, 8)
			for ours(attr) && b.QP.Stats().WritesReceived < 4 && b.QP.State() == iwarp.StateRTS {
				time.Sleep(100 * time.Microsecond)
			}
			if err := end(); err != nil {
				c.Error(err)
			}
			mine := bytes.Repeat([]byte{0xaa}, len(memory))
			copy(memory, mine)
			b.WaitDone(c)
			a.WaitDone(c)
			<-stopped
			if !bytes.Equal(memory, mine) {
				c.Error("a byte was placed afterwards")
			}
		})
	}
}

// localInvAmidReads: a request that ends a region while the peer reads it again and again is
// executed; the Reads after it are refused.
func (c *conn) localInvAmidReads() {
	c.need("local invalidate", func(a iwarp.DeviceAttr) bool { return a.LocalInv })
	a, b := c.readPair(8)
	mr := b.Reg(c, pattern(256<<10, 1), iwarp.RemoteRead, nil)
	sm := a.Reg(c, make([]byte, 256<<10), sinkRights, nil)
	for i := range uint64(60) {
		a.Post(c, read(i, sm, 0, []int{8, 256 << 10}[i%2], mr.STag(), mr.Base()))
	}
	a.WaitOK(c, 0)
	b.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpLocalInv, InvSTag: mr.STag()})
	b.WaitOK(c, 1)
	n := uint64(59)
	if a.QP.PostSend(read(60, sm, 0, 8, mr.STag(), mr.Base())) == nil { // all may have been faster
		n++
	}
	a.WaitDone(c)
	b.WaitDone(c)
	refused := false
	for i := range n {
		wc := a.Wait(c)
		if wc.ID != i+1 || refused && wc.Status != iwarp.StatusWRFlushErr {
			c.Fatalf("Read %d: %+v", i+1, wc)
		}
		refused = refused || wc.Status != iwarp.StatusSuccess
	}
	if !refused {
		c.Error("a Read behind the end of its region was answered")
	}
}
