package iwarptest

import (
	"bytes"
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

var readCases = []suiteCase{
	{"ReadSizes", (*conn).readSizes},
	{"ReadsInOrder", (*conn).readsInOrder},
	{"ReadsBothWays", (*conn).readsBothWays},
	{"ReadAfterWrite", (*conn).readAfterWrite},
	{"SendWaitsForReadCompletion", (*conn).completionsInOrder},
	{"FenceWaitsForReads", (*conn).fence},
	{"LocalInvalidateAfterRead", (*conn).localInvAfterRead},
	{"RTRByRead", (*conn).rtrByRead},
}

// Every Read of the suite has one SGE, and a sink that the peer may write: every provider supports
// that.
const sinkRights = iwarp.LocalWrite | iwarp.RemoteWrite

// readPair connects a pair of which each side may have depth Reads outstanding.
func (c *conn) readPair(depth uint16) (a, b *End) {
	c.Helper()
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead })
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: depth, IRD: depth}
	Connect(c, a, b, c.addr, p, p)
	return a, b
}

// read returns a Read of n bytes at TO to of the peer's region into offset at of mr.
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

// readsInOrder posts more Reads than may be outstanding.
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

// completionsInOrder: a Send after a Read arrives, and completes after it.
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
			flags = iwarp.Unsignaled // a Read without a completion
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

// fence: a fenced Write is sent once the Read before it is complete, and so cannot change that Read's
// result.
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
		a.Post(c, read(3*i+2, dm, 0, 0, mr.STag(), mr.Base())) // it completes once the Write is placed (RFC 5040 §5.5)
		a.WaitOK(c, 3*i)
		if !bytes.Equal(dst, pattern(size, byte(i))) {
			c.Fatalf("round %d: the Read brings what a fenced Write behind it wrote", i)
		}
		a.WaitOK(c, 3*i+1)
		a.WaitOK(c, 3*i+2)
	}
}

// localInvAfterRead: a local invalidate takes effect once everything before it is complete.
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

// rtrByRead: the RTR takes no request of the SQ, makes no completion, and its response is not taken
// for that of another Read.
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
