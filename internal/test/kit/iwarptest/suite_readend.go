package iwarptest

import (
	"bytes"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Reads that are refused, or under way when a stream or a region ends.
var readEndCases = []suiteCase{
	{"ReadBoundsAndRights", (*conn).readErrors},
	{"ReadDepthZero", (*conn).readDepthZero},
	{"DisconnectAwaitsReads", (*conn).disconnectAwaitsReads},
	{"PeerClosesAmidRead", (*conn).peerClosesAmidRead},
	{"DeregStopsRead", (*conn).deregStopsRead},
	{"BadReadSink", (*conn).badReadSink},
}

func (c *conn) readErrors() {
	c.readPair(1) // skips the case if need be
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	for _, w := range []struct {
		name    string
		access  iwarp.Access
		foreign bool
		stale   bool
		flip    iwarp.STag
		to      uint64
		n       int
		code    uint8
	}{
		{name: "unknown STag", access: iwarp.RemoteRead, flip: 1, n: 8},
		{name: "stale STag", access: iwarp.RemoteRead, stale: true, n: 8},
		{name: "other PD", access: iwarp.RemoteRead, foreign: true, n: 8, code: 3},
		{name: "no right", access: iwarp.LocalWrite | iwarp.RemoteWrite, n: 8, code: 2},
		{name: "wrap", access: iwarp.RemoteRead, to: 1<<64 - 4, n: 8, code: 4},
		{name: "below base", access: iwarp.RemoteRead, to: 0xfff, n: 8, code: 1},
		{name: "past end", access: iwarp.RemoteRead, to: 0x1039, n: 8, code: 1},
		{name: "too long", access: iwarp.RemoteRead, n: 65, code: 1},
	} {
		if w.access&iwarp.RemoteRead == 0 && !c.db.Attr().ReadRight {
			continue
		}
		a, b := c.readPair(4)
		owner := b
		if w.foreign {
			owner = other
		}
		mr := owner.Reg(c, pattern(64, 5), w.access, c.base(0x1000))
		good := b.Reg(c, pattern(64, 6), iwarp.RemoteRead, nil)
		if w.stale {
			if err := mr.Invalidate(); err != nil {
				c.Fatal(err)
			}
		}
		if w.to == 0 {
			w.to = mr.Base()
		} else if w.to < 1<<32 {
			w.to += mr.Base() - 0x1000
		}
		sink := make([]byte, 256)
		dm := a.Reg(c, sink, sinkRights, nil)
		c.Run(w.name, func(t *testing.T) {
			sub := *c
			sub.T = t
			a.Post(t, read(1, dm, 0, 64, good.STag(), good.Base()))
			a.Post(t, read(2, dm, 128, w.n, mr.STag()^w.flip, w.to))
			last := read(3, dm, 0, 64, good.STag(), good.Base())
			behind := a.QP.PostSend(last) == nil // otherwise it was refused at once
			a.WaitOK(t, 1)
			if wc := a.Wait(t); wc.ID != 2 || !sub.failed(wc.Status, iwarp.StatusRemAccessErr, a) {
				t.Errorf("the refused Read: %+v", wc)
			}
			if behind {
				if wc := a.Wait(t); wc.ID != 3 || wc.Status != iwarp.StatusWRFlushErr {
					t.Errorf("the Read behind it: %+v", wc)
				}
			}
			sub.wantTerminate(a, b, 0, 1, w.code)
			if !bytes.Equal(sink[128:], make([]byte, 128)) {
				t.Error("a refused Read has changed its sink")
			}
		})
	}
}

func (c *conn) readDepthZero() {
	c.readPair(1)
	a, b := c.pair() // without Reads
	mr := a.Reg(c, make([]byte, 8), sinkRights, nil)
	if err := a.QP.PostSend(read(1, mr, 0, 8, 1, 0)); err == nil {
		c.Error("a Read could be posted with ORD 0")
	}
	b.Recv(c, 1, 1)
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend}) // the refused Read did no harm
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
}

func (c *conn) disconnectAwaitsReads() {
	a, b := c.readPair(2)
	const size = 4 << 20
	src, dst := pattern(size, 4), make([]byte, size)
	sm, dm := b.Reg(c, src, iwarp.RemoteRead, nil), a.Reg(c, dst, sinkRights, nil)
	for i := range uint64(4) {
		a.Post(c, read(i, dm, int(i)*size/4, size/4, sm.STag(), sm.Base()+i*size/4))
	}
	if err := a.QP.Disconnect(Context(c)); err != nil {
		c.Errorf("Disconnect: %v", err)
	}
	for i := range uint64(4) {
		a.WaitOK(c, i)
	}
	if !bytes.Equal(src, dst) {
		c.Error("Disconnect lost data that was being read")
	}
	if err := b.WaitDone(c); err != nil {
		c.Errorf("the other side: %v", err)
	}
}

// peerClosesAmidRead: Reads that cannot be answered any more are flushed.
func (c *conn) peerClosesAmidRead() {
	a, b := c.readPair(4)
	const size = 8 << 20
	sm := b.Reg(c, pattern(size, 4), iwarp.RemoteRead, nil)
	dm := a.Reg(c, make([]byte, size), sinkRights, nil)
	const n = 20
	for i := range uint64(n) {
		a.Post(c, read(i, dm, 0, size, sm.STag(), sm.Base()))
	}
	a.WaitOK(c, 0)
	b.QP.Abort()
	if err := a.WaitDone(c); err == nil {
		c.Error("Err is nil although Reads were not answered")
	}
	flushed := false
	for i := range uint64(n - 1) {
		wc := a.Wait(c)
		if wc.ID != i+1 || wc.Status != iwarp.StatusSuccess && wc.Status != iwarp.StatusWRFlushErr || flushed && wc.Status == iwarp.StatusSuccess {
			c.Errorf("Read %d: %+v", i+1, wc)
		}
		flushed = flushed || wc.Status != iwarp.StatusSuccess
	}
	if !flushed {
		c.Skip("every Read was complete before the end")
	}
}

// deregStopsRead: when Dereg has returned, no content of the region is sent any more.
func (c *conn) deregStopsRead() {
	c.kernelPlaces()
	a, b := c.readPair(4)
	const size = 4 << 20
	memory := bytes.Repeat([]byte{0x11}, size)
	mr, err := b.PD.RegMR(memory, iwarp.RemoteRead, nil)
	if err != nil {
		c.Fatal(err)
	}
	dst := make([]byte, size)
	dm := a.Reg(c, dst, sinkRights, nil)
	const n = 30
	for i := range uint64(n) {
		a.Post(c, read(i, dm, 0, size, mr.STag(), mr.Base()))
	}
	a.WaitOK(c, 0)
	if err := mr.Dereg(); err != nil {
		c.Fatal(err)
	}
	for i := range memory {
		memory[i] = 0x22
	}
	posted := uint64(n)
	if a.QP.PostSend(read(posted, dm, 0, size, mr.STag(), mr.Base())) == nil { // otherwise the stream has ended
		posted++
	}
	a.WaitDone(c)
	b.WaitDone(c)
	if bytes.IndexByte(dst, 0x22) >= 0 {
		c.Error("a Read brought what the memory held after Dereg")
	}
	refused := uint64(0)
	for i := range posted - 1 {
		switch wc := a.Wait(c); {
		case wc.ID != i+1:
			c.Fatalf("%+v, want id %d", wc, i+1)
		case wc.Status == iwarp.StatusRemAccessErr && refused == 0:
			refused = wc.ID
		case wc.Status == iwarp.StatusWRFlushErr && refused > 0:
		case wc.Status != iwarp.StatusSuccess || refused > 0:
			c.Errorf("Read %d: %s", wc.ID, wc.Status)
		}
	}
	if refused == 0 {
		c.Error("no Read was refused")
	}
}

func (c *conn) badReadSink() {
	for _, w := range []struct {
		name   string
		access iwarp.Access
		n      int
		dead   bool
	}{
		{"read-only sink", 0, 64, false},
		{"past its end", sinkRights, 65, false},
		{"deregistered", sinkRights, 64, true},
	} {
		a, b := c.readPair(2)
		sm := b.Reg(c, pattern(128, 1), iwarp.RemoteRead, nil)
		good := a.Reg(c, make([]byte, 64), sinkRights, nil)
		dm, err := a.PD.RegMR(make([]byte, 64), w.access, nil)
		if err != nil {
			c.Fatal(err)
		}
		if w.dead {
			if err := dm.Dereg(); err != nil {
				c.Fatal(err)
			}
		}
		c.Run(w.name, func(t *testing.T) {
			sub := *c
			sub.T = t
			a.Post(t, read(1, good, 0, 64, sm.STag(), sm.Base()))
			a.WaitOK(t, 1)
			a.Post(t, read(2, dm, 0, w.n, sm.STag(), sm.Base()))
			if wc := a.Wait(t); wc.ID != 2 || !sub.failed(wc.Status, iwarp.StatusLocProtErr, a) {
				t.Errorf("a Read into a bad sink: %+v", wc)
			}
			sub.wantTerminate(b, a, 0, 0, 0)
		})
	}
}
