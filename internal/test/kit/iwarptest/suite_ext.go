package iwarptest

import (
	"bytes"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Cases for RFC 7306, on connections for which both sides have enabled it.
var extCases = []suiteCase{
	{"Immediate", (*conn).immediate},
	{"WriteWithImmediate", (*conn).writeImm},
	{"ImmediatesAmongSends", (*conn).immediatesInOrder},
	{"ImmediateWithoutReceive", (*conn).immediateWithoutReceive},
	{"FetchAdd", (*conn).fetchAdd},
	{"CmpSwap", (*conn).cmpSwap},
	{"AtomicsAmongReads", (*conn).atomicsAmongReads},
	{"AtomicErrors", (*conn).atomicErrors},
	{"AtomicContention", (*conn).atomicContention},
	{"ExtensionsOff", (*conn).extensionsOff},
	{"ExtensionsOffAtPeer", (*conn).extensionsOffAtPeer},
}

// atomicRights are the rights of a region for atomics; a provider may require them all.
const atomicRights = iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic

// extPair connects a pair with the extensions enabled.
func (c *conn) extPair(depth uint16) (a, b *End) {
	c.Helper()
	a, b = NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: depth, IRD: depth, Extensions: true}
	Connect(c, a, b, c.addr, p, p)
	return a, b
}

func (c *conn) needImmediate() {
	c.need("Immediate Data", func(a iwarp.DeviceAttr) bool { return a.Immediate })
}

func (c *conn) needAtomics() {
	c.need("atomics", func(a iwarp.DeviceAttr) bool { return a.Atomics })
}

func (c *conn) immediate() {
	c.needImmediate()
	a, b := c.extPair(0)
	imm := [iwarp.ImmSize]byte{1, 2, 3, 4, 5, 6, 7, 8}
	for i, flags := range []iwarp.SendFlags{0, iwarp.Solicited, iwarp.Unsignaled} {
		id := uint64(i)
		got := b.Recv(c, id, 8)
		a.Post(c, &iwarp.SendWR{ID: id, Op: iwarp.OpImmediate, Flags: flags, Imm: imm})
		wc := b.WaitOK(c, id)
		if wc.Op != iwarp.OpRecv || !wc.HasImm || wc.Imm != imm || wc.ByteLen != 0 || wc.Inv ||
			c.db.Attr().WCMarks && wc.Solicited != (flags == iwarp.Solicited) {
			c.Errorf("flags %d: %+v", flags, wc)
		}
		if !bytes.Equal(got, make([]byte, 8)) {
			c.Error("Immediate Data was placed in the receive's memory")
		}
		if flags != iwarp.Unsignaled {
			if wc := a.WaitOK(c, id); wc.Op != iwarp.OpImmediate {
				c.Errorf("flags %d: sender %+v", flags, wc)
			}
		}
	}
	if err := a.QP.PostSend(&iwarp.SendWR{Op: iwarp.OpImmediate, Flags: iwarp.Inline, Data: []byte("x")}); !errors.Is(err, iwarp.ErrInvalid) {
		c.Errorf("Immediate Data with payload: %v", err)
	}
	if s, r := a.QP.Stats(), b.QP.Stats(); s.ImmsSent != 3 || r.ImmsReceived != 3 || s.SendsSent+r.SendsReceived != 0 {
		c.Errorf("counted %+v and %+v", s, r)
	}
}

func (c *conn) writeImm() {
	c.needImmediate()
	a, b := c.extPair(0)
	const size = 300_000
	dst := make([]byte, size)
	dm := b.Reg(c, dst, iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	for i, n := range []int{0, 1, 1000, size} {
		src := pattern(size, byte(i+1))
		sm := a.Reg(c, src, 0, nil)
		id := uint64(i)
		b.Recv(c, id, 0)
		imm := [iwarp.ImmSize]byte{byte(i)}
		a.Post(c, &iwarp.SendWR{ID: id, Op: iwarp.OpWriteImm, Flags: iwarp.Solicited, Imm: imm, STag: dm.STag(), TO: dm.Base(),
			SGL: []iwarp.SGE{{Addr: sm.Base(), Length: uint32(n), LKey: sm.STag()}}})
		wc := b.WaitOK(c, id)
		if wc.Op != iwarp.OpRecvWriteImm || !wc.HasImm || wc.Imm != imm || wc.ByteLen != uint32(n) {
			c.Errorf("Write of %d bytes with Immediate: %+v", n, wc)
		}
		if !bytes.Equal(dst[:n], src[:n]) {
			c.Errorf("%d bytes are not there when the Immediate is delivered", n)
		}
		if wc := a.WaitOK(c, id); wc.Op != iwarp.OpWriteImm {
			c.Errorf("sender: %+v", wc)
		}
	}
	// Other messages in between: the Immediate stands alone again.
	b.Recv(c, 10, 8)
	b.Recv(c, 11, 8)
	a.Post(c, &iwarp.SendWR{ID: 9, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("x"), STag: dm.STag(), TO: dm.Base()})
	a.Post(c, &iwarp.SendWR{ID: 10, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("y")})
	a.Post(c, &iwarp.SendWR{ID: 11, Op: iwarp.OpImmediate})
	for id := uint64(9); id < 12; id++ {
		a.WaitOK(c, id)
	}
	b.WaitOK(c, 10)
	if wc := b.WaitOK(c, 11); wc.Op != iwarp.OpRecv || wc.ByteLen != 0 {
		c.Errorf("Immediate behind a Send: %+v", wc)
	}
}

// immediatesInOrder: Sends and Immediates take receives in the order of posting.
func (c *conn) immediatesInOrder() {
	c.needImmediate()
	a, b := c.extPair(0)
	const n = 60
	for i := range uint64(n) {
		b.Recv(c, i, 8)
	}
	for i := range uint64(n) {
		wr := &iwarp.SendWR{ID: i, Op: iwarp.OpImmediate, Imm: [iwarp.ImmSize]byte{byte(i)}}
		if i%3 == 0 {
			wr = &iwarp.SendWR{ID: i, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte{byte(i)}}
		}
		a.Post(c, wr)
	}
	for i := range uint64(n) {
		if wc := b.WaitOK(c, i); wc.HasImm == (i%3 == 0) || wc.HasImm && wc.Imm[0] != byte(i) {
			c.Errorf("message %d: %+v", i, wc)
		}
		a.WaitOK(c, i)
	}
}

func (c *conn) immediateWithoutReceive() {
	c.needImmediate()
	a, b := c.extPair(0)
	a.Post(c, &iwarp.SendWR{Op: iwarp.OpImmediate})
	c.wantTerminate(a, b, 1, 2, 2)
}

// words is n registered words of 8 bytes, aligned, together with the place for the results of
// atomics at a.
type words struct {
	c    *conn
	a    *End
	mr   iwarp.MR // the peer's words
	mem  []uint64
	sink []uint64
	sm   iwarp.MR
}

func (c *conn) words(a, b *End, n int) *words {
	w := &words{c: c, a: a, mem: make([]uint64, n), sink: make([]uint64, n)}
	w.mr = b.Reg(c, octets(w.mem), atomicRights, nil)
	w.sm = a.Reg(c, octets(w.sink), sinkRights, nil)
	return w
}

// octets returns the memory of w, which is aligned as words are.
func octets(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*len(w))
}

func (w *words) request(op iwarp.Opcode, id uint64, i int, args iwarp.AtomicArgs) *iwarp.SendWR {
	return &iwarp.SendWR{ID: id, Op: op, STag: w.mr.STag(), TO: w.mr.Base() + uint64(8*i), Atomic: args,
		SGL: []iwarp.SGE{{Addr: w.sm.Base() + uint64(8*i), Length: 8, LKey: w.sm.STag()}}}
}

// do posts an atomic on word i, and returns its result.
func (w *words) do(op iwarp.Opcode, i int, args iwarp.AtomicArgs) uint64 {
	w.c.Helper()
	w.sink[i] = ^uint64(0)
	w.a.Post(w.c, w.request(op, uint64(i), i, args))
	if wc := w.a.WaitOK(w.c, uint64(i)); wc.Op != op || wc.ByteLen != 8 {
		w.c.Errorf("%+v", wc)
	}
	return w.sink[i]
}

func (c *conn) fetchAdd() {
	c.needAtomics()
	a, b := c.extPair(1)
	w := c.words(a, b, 4)
	for i, x := range []struct{ old, add, mask, want uint64 }{
		{40, 2, 0, 42},
		{^uint64(0), 1, 0, 0},
		{0x01ff01ff01ff01ff, 0x0101010101010101, 0x8080808080808080, 0x0200020002000200},
		{0x00ff, 1, 0x0080, 0}, // the carry out of the low field is dropped
	} {
		w.mem[i] = x.old
		if got := w.do(iwarp.OpFetchAdd, i, iwarp.AtomicArgs{Add: x.add, AddMask: x.mask}); got != x.old {
			c.Errorf("FetchAdd brought %#x, want %#x", got, x.old)
		}
		if w.mem[i] != x.want {
			c.Errorf("%#x + %#x in fields %#x: got %#x, want %#x", x.old, x.add, x.mask, w.mem[i], x.want)
		}
	}
	if s, r := a.QP.Stats(), b.QP.Stats(); s.AtomicsSent != 4 || r.AtomicsReceived != 4 || s.ReadsSent+r.ReadsReceived != 0 {
		c.Errorf("counted %+v and %+v", s, r)
	}
}

func (c *conn) cmpSwap() {
	c.needAtomics()
	a, b := c.extPair(1)
	w := c.words(a, b, 3)
	for i, x := range []struct {
		old  uint64
		args iwarp.AtomicArgs
		want uint64
	}{
		{7, iwarp.AtomicArgs{Compare: 7, CompareMask: ^uint64(0), Swap: 9, SwapMask: ^uint64(0)}, 9},
		{7, iwarp.AtomicArgs{Compare: 8, CompareMask: ^uint64(0), Swap: 9, SwapMask: ^uint64(0)}, 7},
		{0x1234, iwarp.AtomicArgs{Compare: 0x0034, CompareMask: 0xff, Swap: 0xffff, SwapMask: 0xf00}, 0x1f34},
	} {
		w.mem[i] = x.old
		if got := w.do(iwarp.OpCmpSwap, i, x.args); got != x.old {
			c.Errorf("CmpSwap brought %#x, want %#x", got, x.old)
		}
		if w.mem[i] != x.want {
			c.Errorf("%#x by %+v: got %#x, want %#x", x.old, x.args, w.mem[i], x.want)
		}
	}
}

// atomicsAmongReads: both count against ORD, and are done and answered in order.
func (c *conn) atomicsAmongReads() {
	c.needAtomics()
	c.need("RDMA Read", func(a iwarp.DeviceAttr) bool { return a.RDMARead })
	a, b := c.extPair(3)
	w := c.words(a, b, 1)
	const n = 20
	seen := make([]uint64, n)
	rm := a.Reg(c, octets(seen), sinkRights, nil)
	old := make([]uint64, n)
	om := a.Reg(c, octets(old), sinkRights, nil)
	for i := range uint64(n) {
		add := w.request(iwarp.OpFetchAdd, 2*i, 0, iwarp.AtomicArgs{Add: 1})
		add.SGL = []iwarp.SGE{{Addr: om.Base() + 8*i, Length: 8, LKey: om.STag()}}
		a.Post(c, add)
		wr := read(2*i+1, rm, int(8*i), 8, w.mr.STag(), w.mr.Base())
		a.Post(c, wr)
	}
	for i := range uint64(n) {
		a.WaitOK(c, 2*i)
		a.WaitOK(c, 2*i+1)
		// Atomics after the Read may be executed before its data is fetched.
		if old[i] != i || seen[i] <= i || seen[i] > n {
			c.Errorf("atomic %d found %d, and the Read behind it %d", i, old[i], seen[i])
		}
	}
	if w.mem[0] != n {
		c.Errorf("the word is %d, want %d", w.mem[0], n)
	}
}

func (c *conn) atomicErrors() {
	c.needAtomics()
	other := NewEnd(c, c.db, iwarp.QPInitAttr{})
	for _, w := range []struct {
		name    string
		access  iwarp.Access
		foreign bool
		flip    iwarp.STag
		to      uint64
		code    uint8
	}{
		{name: "unknown STag", access: atomicRights, flip: 1},
		{name: "other PD", access: atomicRights, foreign: true, code: 3},
		{name: "no right", access: iwarp.LocalWrite | iwarp.RemoteWrite | iwarp.RemoteRead, code: 2},
		{name: "past end", access: atomicRights, to: 64, code: 1},
		{name: "wrap", access: atomicRights, to: 1<<64 - 8, code: 1},
	} {
		a, b := c.extPair(2)
		owner := b
		if w.foreign {
			owner = other
		}
		memory := make([]uint64, 8)
		mr := owner.Reg(c, octets(memory), w.access, c.base(0x1000))
		sm := a.Reg(c, octets(make([]uint64, 1)), sinkRights, nil)
		c.Run(w.name, func(t *testing.T) {
			sub := *c
			sub.T = t
			a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpFetchAdd, STag: mr.STag() ^ w.flip, TO: mr.Base() + w.to,
				Atomic: iwarp.AtomicArgs{Add: 1}, SGL: []iwarp.SGE{{Addr: sm.Base(), Length: 8, LKey: sm.STag()}}})
			if wc := a.Wait(t); wc.ID != 1 || wc.Status != iwarp.StatusRemAccessErr {
				t.Errorf("the refused atomic: %+v", wc)
			}
			sub.wantTerminate(a, b, 0, 1, w.code)
			if !bytes.Equal(octets(memory), make([]byte, 64)) {
				t.Error("a refused atomic has changed memory")
			}
		})
	}
	a, b := c.extPair(1)
	w := c.words(a, b, 2)
	for name, wr := range map[string]*iwarp.SendWR{
		"not aligned": {Op: iwarp.OpFetchAdd, TO: w.mr.Base() + 4, STag: w.mr.STag(), SGL: []iwarp.SGE{{Addr: w.sm.Base(), Length: 8, LKey: w.sm.STag()}}},
		"of 4 bytes":  {Op: iwarp.OpFetchAdd, TO: w.mr.Base(), STag: w.mr.STag(), SGL: []iwarp.SGE{{Addr: w.sm.Base(), Length: 4, LKey: w.sm.STag()}}},
		"no sink":     {Op: iwarp.OpCmpSwap, TO: w.mr.Base(), STag: w.mr.STag()},
	} {
		err := a.QP.PostSend(wr)
		if name == "not aligned" && err == nil {
			break // the peer must reject it
		}
		if !errors.Is(err, iwarp.ErrInvalid) {
			c.Errorf("%s: PostSend: %v", name, err)
		}
	}
}

// atomicContention: two connections and this process increment one counter.
func (c *conn) atomicContention() {
	c.needAtomics()
	const each = 200
	var ends [2]*End
	shared := NewEnd(c, c.db, iwarp.QPInitAttr{MaxSend: 8, MaxRecv: 8})
	memory := make([]uint64, 1)
	mr := shared.Reg(c, octets(memory), atomicRights, nil)
	p := &iwarp.ConnParam{ORD: 4, IRD: 4, Extensions: true}
	for i := range ends {
		ends[i] = NewEnd(c, c.da, iwarp.QPInitAttr{})
		cq, err := c.db.CreateCQ(16)
		if err != nil {
			c.Fatal(err)
		}
		b := &End{Dev: c.db, PD: shared.PD, CQ: cq}
		if b.QP, err = shared.PD.CreateQP(iwarp.QPInitAttr{SendCQ: cq, RecvCQ: cq, MaxSend: 8, MaxRecv: 8}); err != nil {
			c.Fatal(err)
		}
		Connect(c, ends[i], b, c.addr, p, p)
	}
	var wg sync.WaitGroup
	seen := make([][]uint64, len(ends))
	for i, e := range ends {
		sink := make([]uint64, 1)
		sm := e.Reg(c, octets(sink), sinkRights, nil)
		wg.Go(func() {
			for k := range uint64(each) {
				err := e.QP.PostSend(&iwarp.SendWR{ID: k, Op: iwarp.OpFetchAdd, STag: mr.STag(), TO: mr.Base(), Atomic: iwarp.AtomicArgs{Add: 1},
					SGL: []iwarp.SGE{{Addr: sm.Base(), Length: 8, LKey: sm.STag()}}})
				if err == nil {
					err = e.CQ.Wait(Context(c))
				}
				var wc [1]iwarp.WC
				if err != nil || e.CQ.Poll(wc[:]) != 1 || wc[0].Status != iwarp.StatusSuccess {
					c.Errorf("%v, %+v", err, wc[0])
					return
				}
				seen[i] = append(seen[i], sink[0])
			}
		})
	}
	local := 0
	if c.db.Attr().Provider == "soft" { // its atomics are the processor's
		for ; local < each; local++ {
			atomic.AddUint64(&memory[0], 1)
		}
	}
	wg.Wait()
	if want := uint64(2*each + local); memory[0] != want {
		c.Errorf("the counter is %d, want %d", memory[0], want)
	}
	all := make(map[uint64]bool)
	for _, s := range seen {
		for i, v := range s {
			if all[v] || i > 0 && v <= s[i-1] {
				c.Fatalf("the value %d was brought twice, or goes back", v)
			}
			all[v] = true
		}
	}
}

// extWRs returns requests that need ConnParam.Extensions.
func extWRs(mr iwarp.MR, attr iwarp.DeviceAttr) (wrs []*iwarp.SendWR) {
	sgl := []iwarp.SGE{{Addr: mr.Base(), Length: 8, LKey: mr.STag()}}
	if attr.Immediate {
		wrs = append(wrs, &iwarp.SendWR{Op: iwarp.OpImmediate}, &iwarp.SendWR{Op: iwarp.OpWriteImm, STag: 1, SGL: sgl})
	}
	if attr.Atomics {
		wrs = append(wrs, &iwarp.SendWR{Op: iwarp.OpFetchAdd, STag: 1, SGL: sgl}, &iwarp.SendWR{Op: iwarp.OpCmpSwap, STag: 1, SGL: sgl})
	}
	return wrs
}

func (c *conn) extensionsOff() {
	c.need("extensions", func(a iwarp.DeviceAttr) bool { return a.Immediate || a.Atomics })
	a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
	p := &iwarp.ConnParam{ORD: 1, IRD: 1}
	Connect(c, a, b, c.addr, p, p)
	mr := a.Reg(c, octets(make([]uint64, 1)), sinkRights, nil)
	for _, wr := range extWRs(mr, c.da.Attr()) {
		if err := a.QP.PostSend(wr); !errors.Is(err, iwarp.ErrUnsupported) {
			c.Errorf("opcode %d without Extensions: PostSend: %v", wr.Op, err)
		}
	}
	b.Recv(c, 1, 1)
	a.Post(c, &iwarp.SendWR{ID: 1, Op: iwarp.OpSend})
	b.WaitOK(c, 1)
}

func (c *conn) extensionsOffAtPeer() {
	c.need("extensions", func(a iwarp.DeviceAttr) bool { return a.Immediate || a.Atomics })
	for i := 0; ; i++ {
		a, b := NewEnd(c, c.da, iwarp.QPInitAttr{}), NewEnd(c, c.db, iwarp.QPInitAttr{})
		Connect(c, a, b, c.addr, &iwarp.ConnParam{ORD: 1, IRD: 1, Extensions: true}, &iwarp.ConnParam{ORD: 1, IRD: 1})
		mr := a.Reg(c, octets(make([]uint64, 1)), sinkRights, nil)
		dm := b.Reg(c, octets(make([]uint64, 1)), atomicRights, nil)
		b.Recv(c, 1, 8)
		wrs := extWRs(mr, c.da.Attr())
		if i == len(wrs) {
			break
		}
		wr := wrs[i]
		wr.STag, wr.TO = dm.STag(), dm.Base()
		a.Post(c, wr)
		c.wantTerminate(a, b, 0, 2, 6)
	}
}
