package iwarptest

import (
	"bytes"
	"errors"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var readCases = []suiteCase{
	{"ReadSizes", (*conn).readSizes},
	{"ReadsInOrder", (*conn).readsInOrder},
	{"ReadsBothWays", (*conn).readsBothWays},
	{"ReadBoundsAndRights", (*conn).readErrors},
	{"ReadDepthZero", (*conn).readDepthZero},
	{"ReadAfterWrite", (*conn).readAfterWrite},
	{"SendWaitsForReadCompletion", (*conn).completionsInOrder},
	{"FenceWaitsForReads", (*conn).fence},
	{"LocalInvalidateAfterRead", (*conn).localInvAfterRead},
	{"DisconnectAwaitsReads", (*conn).disconnectAwaitsReads},
	{"PeerClosesAmidRead", (*conn).peerClosesAmidRead},
	{"DeregStopsRead", (*conn).deregStopsRead},
	{"BadReadSink", (*conn).badReadSink},
	{"RTRByRead", (*conn).rtrByRead},
}

// Every Read of the suite has one SGE, and its sink may be written by the peer:
// what every provider can do.
const sinkRights = iwarp.LocalWrite | iwarp.RemoteWrite

// readPair connects a pair whose sides may each have depth Reads outstanding.
func (c *conn) readPair(depth uint16) (a, b *End) {
	c.Helper()
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead })
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: depth, IRD: depth}
	Connect(c, a, b, c.addr, p, p)
	return a, b
}

// read is a Read of n bytes from offset to of the peer's region into offset at of
// mr.
func read(id uint64, mr iwarp.MR, at, n int, stag iwarp.STag, to uint64) *iwarp.SendWR {
	return &iwarp.SendWR{ID: id, Op: iwarp.OpRead, STag: stag, TO: to,
		SGL: []iwarp.SGE{{Addr: mr.Base() + uint64(at), Length: uint32(n), LKey: mr.STag()}}}
}

func (c *conn) readSizes() {
	a, b := c.readPair(1)
	const size = 4 << 20
	src, dst := pattern(size, 3), make([]byte, size)
	sm := b.Reg(c, src, iwarp.RemoteRead, c.base(1<<40))
	dm := a.Reg(c, dst, sinkRights, nil)
	for i, n := range []int{0, 1, 2, 3, 7, 1424, 4096, 4097, 32 << 10, 64<<10 + 1, 1 << 20, size} {
		clear(dst)
		at := (size - n) / 3
		a.Post(c, read(uint64(i), dm, at, n, sm.STag(), sm.Base()+uint64(size-n)))
		if wc := a.WaitOK(c, uint64(i)); wc.Op != iwarp.OpRead || wc.ByteLen != uint32(n) || wc.QP != a.QP {
			c.Errorf("Read of %d bytes: %+v", n, wc)
		}
		want := make([]byte, size)
		copy(want[at:], src[size-n:])
		if !bytes.Equal(dst, want) {
			c.Errorf("Read of %d bytes did not bring what the source holds, or wrote beside its sink", n)
		}
	}
}

// readsInOrder has more Reads posted than may be outstanding.
func (c *conn) readsInOrder() {
	for _, depth := range []uint16{1, 2, 8} {
		a, b := c.readPair(depth)
		const n, size = 40, 20_000
		src, dst := pattern(n*size, 9), make([]byte, n*size)
		sm, dm := b.Reg(c, src, iwarp.RemoteRead, nil), a.Reg(c, dst, sinkRights, nil)
		for i := range n {
			a.Post(c, read(uint64(i), dm, i*size, size, sm.STag(), sm.Base()+uint64(i*size)))
		}
		for i := range uint64(n) {
			a.WaitOK(c, i)
		}
		if !bytes.Equal(src, dst) {
			c.Errorf("depth %d: the Reads did not bring what the source holds", depth)
		}
	}
}

// readsBothWays mixes Reads with Sends and Writes of both sides.
func (c *conn) readsBothWays() {
	a, b := c.readPair(4)
	const n, size = 30, 50_000
	ends := [2]*End{a, b}
	var memory [2][]byte
	var regions [2]iwarp.MR
	var sinks [2][]byte
	var sinkMRs, sources [2]iwarp.MR
	for i, e := range ends {
		memory[i], sinks[i] = make([]byte, 2*size), make([]byte, size)
		copy(memory[i], pattern(size, byte(i)))
		regions[i] = e.Reg(c, memory[i], sinkRights|iwarp.RemoteRead, nil)
		sinkMRs[i], sources[i] = e.Reg(c, sinks[i], sinkRights, nil), e.Reg(c, make([]byte, size), 0, nil)
		for k := range uint64(n) {
			e.Recv(c, 1000+k, 8)
		}
	}
	done := make(chan error, 2)
	for i, e := range ends {
		peer := regions[1-i]
		go func() {
			next, received := uint64(0), uint64(0)
			drain := func(until uint64) error {
				for next < until {
					if err := e.CQ.Wait(Context(c)); err != nil {
						return err
					}
					var wcs [8]iwarp.WC
					for _, wc := range wcs[:e.CQ.Poll(wcs[:])] {
						want := &next
						if wc.Op == iwarp.OpRecv {
							want = &received
							wc.ID -= 1000
						}
						if wc.Status != iwarp.StatusSuccess || wc.ID != *want {
							return errors.New("completion of " + wc.Status.String())
						}
						*want++
					}
				}
				return nil
			}
			var err error
			for k := uint64(0); k < n && err == nil; k++ {
				err = errors.Join(
					e.QP.PostSend(read(3*k, sinkMRs[i], 0, size, peer.STag(), peer.Base())),
					e.QP.PostSend(&iwarp.SendWR{ID: 3*k + 1, Op: iwarp.OpWrite, STag: peer.STag(), TO: peer.Base() + size,
						SGL: []iwarp.SGE{{Addr: sources[i].Base(), Length: size, LKey: sources[i].STag()}}}),
					e.QP.PostSend(&iwarp.SendWR{ID: 3*k + 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("mixed")}),
				)
				if k%4 == 3 && err == nil {
					err = drain(3*k + 3)
				}
			}
			if err == nil {
				err = drain(3 * n)
			}
			done <- err
		}()
	}
	for range ends {
		if err := <-done; err != nil {
			c.Fatal(err)
		}
	}
	for i := range ends {
		if !bytes.Equal(sinks[i], pattern(size, byte(1-i))) {
			c.Errorf("side %d has not read what the other one holds", i)
		}
	}
}

func (c *conn) readErrors() {
	c.readPair(1) // or skip
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
			behind := a.QP.PostSend(last) == nil // else it was refused at once
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
	a, b := c.pair() // nobody asked for Reads
	mr := a.Reg(c, make([]byte, 8), sinkRights, nil)
	if err := a.QP.PostSend(read(1, mr, 0, 8, 1, 0)); err == nil {
		c.Error("a Read could be posted with ORD 0")
	}
	b.Recv(c, 1, 1)
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend}) // it did no harm
	a.WaitOK(c, 2)
	b.WaitOK(c, 1)
}

// readAfterWrite: "a Read Request is executed after what was sent before it"
// (after RFC 5040 §5.5, rule 12).
func (c *conn) readAfterWrite() {
	a, b := c.readPair(2)
	const size = 100_000
	mr := b.Reg(c, make([]byte, size), sinkRights|iwarp.RemoteRead, nil)
	back := make([]byte, size)
	bm := a.Reg(c, back, sinkRights, nil)
	for i := range uint64(20) {
		src := pattern(size, byte(i))
		sm := a.Reg(c, src, 0, nil)
		a.Post(c, &iwarp.SendWR{ID: 2 * i, Op: iwarp.OpWrite, STag: mr.STag(), TO: mr.Base(), SGL: []iwarp.SGE{{Addr: sm.Base(), Length: size, LKey: sm.STag()}}})
		a.Post(c, read(2*i+1, bm, 0, size, mr.STag(), mr.Base()))
		a.WaitOK(c, 2*i)
		a.WaitOK(c, 2*i+1)
		if !bytes.Equal(back, src) {
			c.Fatalf("round %d: the Read does not bring what was written before it", i)
		}
	}
}

// completionsInOrder: a Send behind a Read arrives, and completes after it.
func (c *conn) completionsInOrder() {
	a, b := c.readPair(1)
	const n, size = 8, 1 << 20
	src, dst := pattern(size, 1), make([]byte, n*size)
	sm := b.Reg(c, src, iwarp.RemoteRead, nil)
	dm := a.Reg(c, dst, sinkRights, nil)
	for i := range uint64(n) {
		b.Recv(c, i, 8)
	}
	for i := range uint64(n) {
		flags := iwarp.SendFlags(0)
		if i%2 == 1 {
			flags = iwarp.Unsignaled // a Read that nobody hears of
		}
		wr := read(10*i, dm, int(i)*size, size, sm.STag(), sm.Base())
		wr.Flags = flags
		a.Post(c, wr)
		a.Post(c, &iwarp.SendWR{ID: 10*i + 1, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("behind")})
	}
	for i := range uint64(n) {
		if i%2 == 0 {
			a.WaitOK(c, 10*i)
		} else {
			a.WaitOK(c, 10*i+1)
		}
		if !bytes.Equal(dst[i*size:][:size], src) {
			c.Errorf("Read %d is not there when it, or the Send behind it, has completed", i)
		}
		if i%2 == 0 {
			a.WaitOK(c, 10*i+1)
		}
		b.WaitOK(c, i)
	}
}

// fence: the Write goes when the Read before it is complete, and so cannot change
// what that brings.
func (c *conn) fence() {
	a, b := c.readPair(2)
	const size = 1 << 20
	memory := pattern(size, 1)
	mr := b.Reg(c, memory, sinkRights|iwarp.RemoteRead, nil)
	dst, src := make([]byte, size), bytes.Repeat([]byte{0xee}, size)
	dm, sm := a.Reg(c, dst, sinkRights, nil), a.Reg(c, src, 0, nil)
	for i := range uint64(10) {
		copy(memory, pattern(size, byte(i)))
		a.Post(c, read(3*i, dm, 0, size, mr.STag(), mr.Base()))
		a.Post(c, &iwarp.SendWR{ID: 3*i + 1, Op: iwarp.OpWrite, Flags: iwarp.Fence, STag: mr.STag(), TO: mr.Base(), SGL: []iwarp.SGE{{Addr: sm.Base(), Length: size, LKey: sm.STag()}}})
		a.Post(c, read(3*i+2, dm, 0, 0, mr.STag(), mr.Base())) // the Write was placed (RFC 5040 §5.5)
		a.WaitOK(c, 3*i)
		if !bytes.Equal(dst, pattern(size, byte(i))) {
			c.Fatalf("round %d: the Read brings what a fenced Write behind it wrote", i)
		}
		a.WaitOK(c, 3*i+1)
		a.WaitOK(c, 3*i+2)
	}
}

// localInvAfterRead: a local invalidate takes effect when all before it is complete.
func (c *conn) localInvAfterRead() {
	if !c.da.Attr().LocalInv {
		c.Skip("the device has no OpLocalInv")
	}
	a, b := c.readPair(2)
	const size = 1 << 20
	sm := b.Reg(c, pattern(size, 1), iwarp.RemoteRead, nil)
	dst := make([]byte, size)
	dm := a.Reg(c, dst, sinkRights, nil)
	a.Post(c, read(1, dm, 0, size, sm.STag(), sm.Base()))
	a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpLocalInv, InvSTag: dm.STag()})
	a.WaitOK(c, 1)
	a.WaitOK(c, 2)
	if !bytes.Equal(dst, pattern(size, 1)) {
		c.Error("the Read before a local invalidate did not bring everything")
	}
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

// peerClosesAmidRead: what cannot be answered any more is flushed.
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

// deregStopsRead: when Dereg has returned, nothing of the region leaves any more.
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
	if a.QP.PostSend(read(posted, dm, 0, size, mr.STag(), mr.Base())) == nil { // else the stream has ended
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

// rtrByRead: the RTR takes no request of the SQ, makes no completion, and its
// response is not taken for another Read's.
func (c *conn) rtrByRead() {
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead })
	c.need("choice of RTR messages", func(a iwarp.DeviceAttr) bool { return a.StartUp })
	for _, depth := range []uint16{0, 1} {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		p := &iwarp.ConnParam{RTR: iwarp.RTRRead, ORD: depth, IRD: depth}
		if info := Connect(c, a, b, c.addr, p, p); info.RTR != iwarp.RTRRead {
			c.Errorf("agreed on %+v", info)
		}
		b.Recv(c, 1, 8)
		a.Recv(c, 3, 8)
		if depth > 0 {
			sm, dm := b.Reg(c, pattern(64, 1), iwarp.RemoteRead, nil), a.Reg(c, make([]byte, 64), sinkRights, nil)
			a.Post(c, read(1, dm, 0, 64, sm.STag(), sm.Base()))
			a.WaitOK(c, 1)
		}
		a.Post(c, &iwarp.SendWR{ID: 2, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("there")})
		a.WaitOK(c, 2)
		b.WaitOK(c, 1)
		b.Post(c, &iwarp.SendWR{ID: 4, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("back")})
		b.WaitOK(c, 4)
		a.WaitOK(c, 3)
	}
}
