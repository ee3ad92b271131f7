package iwarptest

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// choices makes a program out of bytes: every sequence of bytes is one, and changing one byte
// changes little. After the last byte every choice is the first.
type choices struct{ data []byte }

func (c *choices) byte() byte {
	if len(c.data) == 0 {
		return 0
	}
	b := c.data[0]
	c.data = c.data[1:]
	return b
}

// pick returns a number below n, which is at most 256.
func (c *choices) pick(n int) int { return int(c.byte()) % max(n, 1) }

// odd is occasionally true: the program then does something that it should not.
func (c *choices) odd() bool { return c.byte() >= 0xf2 }

// choose returns one of xs, or the zero value if there is none.
func choose[T any](c *choices, xs []T) (x T) {
	i := c.pick(len(xs))
	if len(xs) > 0 {
		x = xs[i]
	}
	return x
}

// step does one step of the program.
func (r *run) step(c *choices) error {
	q := r.m.qps[c.pick(2)][c.pick(modelQPs)]
	op := c.pick(32)
	if q.state == iwarp.StateIdle || q.state == iwarp.StateError && !q.fresh && c.pick(4) != 0 {
		op = 31 // QPs should be connected most of the time
	}
	switch {
	case op < 16:
		return r.burst(c, func() error { return r.stepSend(c, q) })
	case op < 18:
		return r.stepMemory(c, q)
	case op < 24:
		return r.burst(c, func() error { return r.stepRecv(c, q) })
	case op < 26:
		return r.stepRegister(c)
	case op == 26:
		return r.stepUnregister(c)
	case op == 27:
		return r.stepFill(c)
	case op == 28:
		return r.stepArm(c)
	case op == 29:
		return r.settle()
	case op == 30:
		return r.stepEnd(c, q)
	}
	return r.stepConnect(c)
}

// burst calls f once, or often enough to fill a queue.
func (r *run) burst(c *choices, f func() error) error {
	n := 1
	if c.pick(4) == 0 {
		n += c.pick(2 * modelSends)
	}
	for range n {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// pickRegion returns a region that suits, or now and then one that does not. It may be nil.
func (r *run) pickRegion(c *choices, suits func(*mRegion) bool) *mRegion {
	var good, bad []*mRegion
	for _, g := range r.regions {
		if suits(g) {
			good = append(good, g)
		} else {
			bad = append(bad, g)
		}
	}
	if !c.odd() && len(good) > 0 || len(bad) == 0 {
		return choose(c, good)
	}
	var near []*mRegion // near misses reveal the most
	for _, g := range bad {
		if len(good) > 0 && g.side == good[0].side && g.pd == good[0].pd {
			near = append(near, g)
		}
	}
	if len(near) > 0 && c.pick(4) != 0 {
		return choose(c, near)
	}
	return choose(c, bad)
}

// stag returns the STag of g, or one that names nothing.
func (r *run) stag(c *choices, g **mRegion) iwarp.STag {
	if *g != nil && !c.odd() {
		return (*g).stag
	}
	*g = nil
	for s := iwarp.STag(0xdead0000); ; s++ {
		if !r.drawn[s] {
			return s
		}
	}
}

// sgl chooses memory of q for an SGL of at most budget bytes in all.
func (r *run) sgl(c *choices, q *mQP, need iwarp.Access, budget uint64) (sgl []mSGE) {
	n := c.pick(4)
	if c.odd() {
		n = modelSGEs + 1
	}
	for range n {
		g := r.pickRegion(c, func(g *mRegion) bool {
			return g.side == q.side && g.pd == q.pd && g.kind != mWindow && g.local && g.access&need == need
		})
		s := mSGE{r: g}
		s.key = r.stag(c, &s.r)
		if s.r != nil {
			size := uint64(s.r.hi - s.r.lo)
			at := uint64(c.byte()) * size / 256
			s.to = s.r.base + at
			s.n = uint32(min(uint64(c.byte())*(size-at)/255, budget))
			if c.odd() {
				s.n += uint32(size)
			}
		} else {
			s.n = uint32(c.pick(3)) // an empty SGE's key does not matter
		}
		budget -= min(budget, uint64(s.n))
		sgl = append(sgl, s)
	}
	return sgl
}

func (r *run) stepRecv(c *choices, q *mQP) error {
	return r.postRecv(q, &mRecv{id: r.nextID(), sgl: r.sgl(c, q, iwarp.LocalWrite, 1<<32)})
}

var modelOps = []iwarp.Opcode{
	iwarp.OpSend, iwarp.OpWrite, iwarp.OpRead, iwarp.OpSend, iwarp.OpWrite, iwarp.OpRead, iwarp.OpSendInv, iwarp.OpFetchAdd,
	iwarp.OpWrite, iwarp.OpSend, iwarp.OpRead, iwarp.OpWriteImm, iwarp.OpImmediate, iwarp.OpCmpSwap, iwarp.OpLocalInv, iwarp.OpWrite,
}

func (r *run) stepSend(c *choices, q *mQP) error {
	w := &mWR{SendWR: iwarp.SendWR{ID: r.nextID(), Op: choose(c, modelOps)}}
	a := &r.attr[q.side]
	switch flags := c.byte(); { // one at a time is enough
	case flags < 30:
		w.Flags |= iwarp.Unsignaled
	case flags < 60:
		w.Flags |= iwarp.Solicited
	case flags < 90:
		w.Flags |= iwarp.Fence
	case flags < 110:
		w.Flags |= iwarp.More
	case flags < 130:
		w.Flags |= iwarp.More | iwarp.Unsignaled
	}
	budget := uint64(1 << 32)
	if p := q.peer; p != nil && takesReceive(w.Op) && !c.odd() {
		next := p.next()
		switch {
		case next != nil:
			budget = next.room()
		case p.srq == nil || len(p.srq.queue) == 0:
			return r.stepRecv(c, p)
		case c.pick(4) != 0:
			return r.settle() // p holds its share of them
		}
	}
	var need iwarp.Access
	switch w.Op {
	case iwarp.OpWrite, iwarp.OpWriteImm:
		need = iwarp.RemoteWrite
	case iwarp.OpRead:
		need = iwarp.RemoteRead
	case iwarp.OpFetchAdd, iwarp.OpCmpSwap:
		need = iwarp.RemoteAtomic
	}
	if need != 0 {
		w.target = r.pickRegion(c, func(g *mRegion) bool {
			p := q.peer
			return p != nil && g.side == p.side && g.pd == p.pd && g.remote && g.access&need != 0 && (g.bound == nil || g.boundTo(p))
		})
		w.STag = r.stag(c, &w.target)
		if w.target != nil && !c.odd() {
			budget = uint64(w.target.hi - w.target.lo)
		}
	}
	local := iwarp.Access(0)
	switch w.Op {
	case iwarp.OpLocalInv, iwarp.OpImmediate:
		budget = 0
	case iwarp.OpRead:
		local = iwarp.LocalWrite
	}
	switch {
	case w.Op == iwarp.OpFetchAdd || w.Op == iwarp.OpCmpSwap:
		s := r.atomicSink(c, q)
		if s == nil {
			return nil
		}
		w.sgl = []mSGE{*s}
		values := []uint64{0, 1, 0xff, 1 << 63, 0x8080808080808080, 0x0102030405060708, ^uint64(0)}
		w.Atomic = iwarp.AtomicArgs{
			Add: choose(c, values), AddMask: choose(c, values), Compare: choose(c, values), CompareMask: choose(c, values),
			Swap: choose(c, values), SwapMask: choose(c, values),
		}
	case budget > 0 && local == 0 && c.pick(4) == 0:
		w.Flags |= iwarp.Inline
		w.Data = pattern(min(int(min(budget, 600)), 3*c.pick(200)), byte(w.ID))
	case budget > 0:
		w.sgl = r.sgl(c, q, local, budget)
		if local == 0 && w.length() <= uint64(a.MaxInline) && c.pick(8) == 0 {
			w.Flags |= iwarp.Inline
		}
	}
	if g := w.target; g != nil {
		size, n := uint64(g.hi-g.lo), max(w.length(), 1)
		if w.Op == iwarp.OpFetchAdd || w.Op == iwarp.OpCmpSwap {
			n = 8
		}
		w.TO = g.base
		if at := c.byte(); n <= size {
			w.TO += uint64(at) * (size - n) / 255
		}
		if need == iwarp.RemoteAtomic && !c.odd() {
			w.TO &^= 7
		}
		if c.odd() {
			far := []uint64{g.base - 1, g.base + size, g.base + size - 1, g.base + 1<<40, ^uint64(0) - 2}
			w.TO = choose(c, far)
		}
	}
	if w.length() > 64 && w.TO+w.length() < w.TO {
		return nil // which segment is the first to fail depends on their length
	}
	switch w.Op {
	case iwarp.OpSendInv:
		w.inv = r.pickRegion(c, func(g *mRegion) bool {
			p := q.peer
			return p != nil && g.side == p.side && g.pd == p.pd && g.boundTo(p) && g.access&mRemoteRights != 0 && g.windows == 0
		})
		w.InvSTag = r.stag(c, &w.inv)
	case iwarp.OpLocalInv:
		w.inv = r.pickRegion(c, func(g *mRegion) bool { return g.side == q.side && g.pd == q.pd && g.windows == 0 })
		w.InvSTag = r.stag(c, &w.inv)
	case iwarp.OpImmediate, iwarp.OpWriteImm:
		w.Imm = [8]byte{1, 2, 3, byte(w.ID)}
	}
	return r.postSend(q, w)
}

func takesReceive(op iwarp.Opcode) bool {
	return op == iwarp.OpSend || op == iwarp.OpSendInv || op == iwarp.OpImmediate || op == iwarp.OpWriteImm
}

// atomicSink returns 8 bytes for the old value, or nil.
func (r *run) atomicSink(c *choices, q *mQP) *mSGE {
	g := r.pickRegion(c, func(g *mRegion) bool {
		return g.side == q.side && g.pd == q.pd && g.kind != mWindow && g.local && g.access&iwarp.LocalWrite != 0 && g.hi-g.lo >= 8
	})
	if g == nil {
		return nil
	}
	return &mSGE{r: g, key: g.stag, to: g.base + uint64(c.pick(max(g.hi-g.lo-7, 1)))&^7, n: 8}
}

// rights lists rights of regions, most of them useful.
var rights = []iwarp.Access{
	iwarp.LocalWrite | mRemoteRights,
	iwarp.LocalWrite | iwarp.RemoteWrite,
	iwarp.LocalWrite | iwarp.RemoteRead,
	iwarp.LocalWrite | mRemoteRights,
	iwarp.LocalWrite,
	iwarp.LocalWrite | iwarp.RemoteAtomic,
	iwarp.RemoteRead,
	0,
	iwarp.RemoteWrite, // requires LocalWrite
}

func (r *run) stepRegister(c *choices) error {
	if len(r.regions) >= modelRegions {
		if err := r.stepUnregister(c); err != nil {
			return err
		}
	}
	side := c.pick(2)
	g := &mRegion{side: side, pd: c.pick(2), access: choose(c, rights), remote: true, local: true}
	r.place(c, g)
	if q := r.m.qps[side][c.pick(modelQPs)]; r.attr[side].BoundMR && c.pick(3) == 0 {
		if q.pd != g.pd && !c.odd() {
			g.pd = q.pd
		}
		g.bound, g.life = q, q.life
	}
	return r.register(g)
}

// place chooses memory and TOs for g.
func (r *run) place(c *choices, g *mRegion) {
	g.buf = choose(c, r.bufs[g.side])
	words := len(g.buf.want) / 8
	g.lo = 8 * (int(c.byte()) * words / 256)
	g.hi = min(len(g.buf.want), g.lo+1+int(c.byte())*len(g.buf.want)/256)
	if r.attr[g.side].AnyBase {
		g.base = choose(c, []uint64{0, 0x1000, 1 << 40, 0x7fff_ffff_fff8, 1 << 63})
	}
}

func (r *run) stepUnregister(c *choices) error {
	if len(r.regions) == 0 {
		return nil
	}
	g := choose(c, r.regions)
	if g.kind == mWindow {
		return nil
	}
	if g.kind == mFast || c.pick(3) == 0 {
		return r.invalidate(g)
	}
	return r.deregister(g)
}

func (r *run) stepFill(c *choices) error {
	if err := r.settle(); err != nil {
		return err
	}
	b := choose(c, r.bufs[c.pick(2)])
	copy(b.want, pattern(len(b.want), c.byte()))
	copy(b.real, b.want)
	r.log("fill")
	return nil
}

func (r *run) stepArm(c *choices) error {
	if err := r.settle(); err != nil {
		return err
	}
	return r.arm(c.pick(2), c.pick(2) == 0)
}

func (r *run) stepEnd(c *choices, q *mQP) error {
	switch c.pick(8) {
	case 0, 1, 2:
		return r.disconnect(q)
	case 3:
		return r.abort(q)
	case 4:
		return r.modify(q, iwarp.QPState(c.pick(6)))
	case 5:
		return r.recycle(q)
	}
	return nil
}

func (r *run) stepConnect(c *choices) error {
	var idle [2][]*mQP
	for side := range idle {
		for _, q := range r.m.qps[side] {
			if q.state != iwarp.StateRTS {
				idle[side] = append(idle[side], q)
			}
		}
		if len(idle[side]) == 0 {
			return r.settle()
		}
	}
	a, b := choose(c, idle[0]), choose(c, idle[1])
	if err := r.settle(); err != nil {
		return err
	}
	for _, q := range []*mQP{a, b} {
		if q.state != iwarp.StateError {
			continue
		}
		how := r.recycle
		if c.pick(2) == 0 {
			how = func(q *mQP) error { return r.modify(q, iwarp.StateIdle) }
		}
		if err := how(q); err != nil {
			return err
		}
	}
	p := iwarp.ConnParam{ORD: uint16(1 + c.pick(3)), IRD: uint16(1 + c.pick(3)), Extensions: c.pick(8) != 0}
	if r.quiet != nil && c.pick(8) == 0 {
		p.ORD, p.IRD = 0, 0
	}
	if p.Extensions && !(r.attr[0].Immediate && r.attr[1].Immediate) {
		p.Extensions = false
	}
	if r.attr[0].StartUp && r.attr[1].StartUp {
		p.MaxULPDU = choose(c, []int{0, 128, 200, 1000})
		p.Markers = c.pick(8) == 0
	}
	return r.connect(a, b, p, c.pick(16) == 0)
}

func describe(w *mWR) string {
	s := fmt.Sprintf("op %d flags %#x data %d sgl", w.Op, w.Flags, len(w.Data))
	for _, x := range w.sgl {
		s += fmt.Sprintf(" %#x+%#x:%d", x.key, x.to, x.n)
	}
	if w.STag != 0 {
		s += fmt.Sprintf(" target %#x+%#x", w.STag, w.TO)
	}
	if w.InvSTag != 0 {
		s += fmt.Sprintf(" inv %#x", w.InvSTag)
	}
	return s
}
