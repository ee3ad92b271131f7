package iwarptest

import (
	"encoding/binary"
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Sizes of the model's queues, small enough to fill up now and then.
const (
	modelSends = 12
	modelRecvs = 8
	modelShare = 3 // receives of an SRQ that one QP may hold
	modelSGEs  = 4
)

var errAny = errors.New("an error")

const (
	success = iwarp.StatusSuccess
	flushed = iwarp.StatusWRFlushErr
)

// send returns the effect of posting w to q.
func (m *model) send(q *mQP, w *mWR, attr *iwarp.DeviceAttr) effect {
	if err := malformed(q, w, attr); err != nil {
		return effect{err: err}
	}
	switch {
	case q.fresh:
		return m.trailing(q, w)
	case q.state == iwarp.StateIdle:
		return effect{err: iwarp.ErrState}
	case held(q.sends) >= modelSends:
		return effect{err: iwarp.ErrQueueFull}
	case len(q.sends) >= modelSends:
		return effect{settle: true} // the silent ones may or may not hold their places
	case q.state == iwarp.StateError:
		return effect{do: func() { q.sends = append(q.sends, &expect{id: w.ID, ok: only(flushed)}) }}
	}
	e := m.execute(q, w)
	under := access{flow: q, kind: gather} // at least, the request is under way
	if w.Op == iwarp.OpRead {
		under.kind = fetch
	}
	e.uses = append(e.uses, under)
	e.fence = w.Flags&iwarp.Fence != 0 || w.Op == iwarp.OpLocalInv || w.Op == iwarp.OpFastReg || w.Op == iwarp.OpBindMW
	return e
}

// malformed returns why w is always refused, or nil.
func malformed(q *mQP, w *mWR, attr *iwarp.DeviceAttr) error {
	inline := w.Flags&iwarp.Inline != 0
	has := true
	switch w.Op {
	case iwarp.OpRead:
		has = attr.RDMARead && (q.state != iwarp.StateRTS || q.reads)
	case iwarp.OpCmpSwap, iwarp.OpFetchAdd:
		has = attr.Atomics && w.TO%8 == 0 && (q.state != iwarp.StateRTS || q.reads && q.ext)
	case iwarp.OpImmediate, iwarp.OpWriteImm:
		has = attr.Immediate && (q.state != iwarp.StateRTS || q.ext)
	case iwarp.OpLocalInv:
		has = attr.LocalInv
	}
	if !has || len(w.sgl) > modelSGEs {
		return errAny
	}
	if inline && q.state == iwarp.StateRTS && !q.fresh {
		if _, ok := q.locals(w.sgl, 0, q, byPoster); !ok {
			return errAny
		}
	}
	return nil
}

// trailing returns the effect of a request that follows one that has ended the stream. The end may
// not have been noticed yet.
func (m *model) trailing(q *mQP, w *mWR) effect {
	switch w.Op {
	case iwarp.OpSend, iwarp.OpWrite, iwarp.OpRead:
	default:
		return effect{settle: true}
	}
	// Another fault might be found before the first one.
	if _, ok := q.locals(w.sgl, 0, q, gather); !ok || !q.guilty {
		return effect{settle: true}
	}
	if w.Op == iwarp.OpRead {
		if _, ok := q.locals(w.sgl, iwarp.LocalWrite, q, sink); !ok {
			return effect{settle: true}
		}
	}
	if len(q.sends) >= modelSends || w.Flags&iwarp.Inline != 0 && len(w.sgl) > 0 {
		return effect{settle: true}
	}
	return effect{err: errPerhaps, do: func() {
		x := &expect{id: w.ID, ok: only(flushed), silent: w.Flags&iwarp.Unsignaled != 0, wc: iwarp.WC{Op: w.Op}}
		if w.Op != iwarp.OpRead {
			x.ok |= only(success)
		}
		x.ok |= blame(q.end.code, w.Op)
		q.sends = append(q.sends, x)
	}}
}

// errPerhaps stands for an error or none.
var errPerhaps = errors.New("perhaps an error")

// execute returns the effect of w on a stream.
func (m *model) execute(q *mQP, w *mWR) effect {
	k := gather
	if w.Flags&iwarp.Inline != 0 {
		k = byPoster
	}
	switch w.Op {
	case iwarp.OpSend, iwarp.OpSendInv, iwarp.OpImmediate, iwarp.OpWrite, iwarp.OpWriteImm:
		uses, ok := q.locals(w.sgl, 0, q, k)
		if !ok {
			return m.localFault(q, w)
		}
		if len(uses) > 0 && k == byPoster {
			for i := range uses {
				uses[i].flow = nil // it is ordered neither before nor after anything
			}
		}
		e := m.message(q, w)
		e.uses = append(e.uses, uses...)
		return e
	case iwarp.OpRead:
		return m.rdmaRead(q, w)
	case iwarp.OpCmpSwap, iwarp.OpFetchAdd:
		return m.amo(q, w)
	}
	if w.Op == iwarp.OpFastReg {
		return m.fastReg(q, w)
	}
	if w.Op == iwarp.OpBindMW {
		return m.bindMW(q, w)
	}
	return m.localInv(q, w) // the only one left
}

// completes records that w succeeds.
func (q *mQP) completes(w *mWR, n uint32) {
	q.more = w.Flags&iwarp.More != 0
	q.sends = append(q.sends, &expect{id: w.ID, ok: only(success), silent: w.Flags&iwarp.Unsignaled != 0, wc: iwarp.WC{Op: w.Op, ByteLen: n}})
}

// held returns how many places signaled requests hold.
func held(xs []*expect) (n int) {
	for _, x := range xs {
		if !x.silent {
			n++
		}
	}
	return n
}

// localFault returns the effect of a request that cannot be executed on its own side.
func (m *model) localFault(q *mQP, w *mWR) effect {
	return effect{ends: true, do: func() {
		q.sends = append(q.sends, &expect{id: w.ID, ok: only(iwarp.StatusLocProtErr)})
		m.terminate(q, code{0, 0, 0})
		q.guilty = true
	}}
}

// remoteFault returns the effect of a request that q's peer refuses by a Terminate c.
func (m *model) remoteFault(q *mQP, w *mWR, c code, ok statusSet, also func()) effect {
	return effect{ends: true, do: func() {
		p := q.peer
		q.sends = append(q.sends, &expect{id: w.ID, ok: ok, silent: w.Flags&iwarp.Unsignaled != 0, wc: iwarp.WC{Op: w.Op}})
		if also != nil {
			also()
		}
		m.terminate(p, c)
		q.guilty = true
	}}
}

// blame returns the statuses that the peer's Terminate c may give to a request of op that is the
// oldest unfinished one of its kind.
func blame(c code, op iwarp.Opcode) statusSet {
	switch {
	case c.layer == 1 && c.typ == 1:
		if op == iwarp.OpWrite || op == iwarp.OpWriteImm {
			return only(iwarp.StatusRemAccessErr)
		}
	case c.layer == 1 && c.typ == 2:
		if op == iwarp.OpSend || op == iwarp.OpSendInv || op == iwarp.OpImmediate || op == iwarp.OpWriteImm {
			return only(iwarp.StatusRemInvReqErr)
		}
	case c.layer == 0 && c.code == 9:
		if op == iwarp.OpSendInv {
			return only(iwarp.StatusRemInvReqErr)
		}
	case c.layer == 0 && c.typ == 1:
		if op == iwarp.OpRead || op == iwarp.OpCmpSwap || op == iwarp.OpFetchAdd {
			return only(iwarp.StatusRemAccessErr)
		}
	case c.layer != 2 && c.typ == 0:
		return only(iwarp.StatusFatalErr)
	default:
		return only(iwarp.StatusRemOpErr)
	}
	return 0
}

// terminate ends q's stream by a Terminate of q.
func (m *model) terminate(q *mQP, c code) {
	p := q.peer
	for _, x := range p.sends {
		if x.ok == only(success) {
			x.ok |= only(flushed) | blame(c, x.wc.Op)
		}
	}
	q.finish(ending{endFound, c})
	p.finish(ending{endTerminated, c})
}

// finish flushes q.
func (q *mQP) finish(e ending) {
	q.state = iwarp.StateError
	q.peer, q.end, q.fresh, q.more = nil, e, true, false
	for _, r := range q.rq {
		q.recvs = append(q.recvs, &expect{id: r.id, ok: only(flushed)})
	}
	q.rq = nil
}

// message returns the effect of a Send, a Write or Immediate Data.
func (m *model) message(q *mQP, w *mWR) effect {
	p := q.peer
	n := w.length()
	var uses []access
	wrote := false
	var tlo, thi int
	if w.Op == iwarp.OpWrite || w.Op == iwarp.OpWriteImm {
		if n > 0 {
			lo, hi, f := p.remote(w.target, iwarp.RemoteWrite, w.TO, n)
			if f != faultNone {
				c := code{1, 1, [...]uint8{faultSTag: 0, faultStream: 2, faultAccess: 0, faultWrap: 3, faultBounds: 1}[f]}
				// Each segment is checked against the bounds separately.
				return m.remoteFault(q, w, c, only(success, flushed)|blame(c, w.Op), func() {
					if f == faultBounds && w.TO >= w.target.base {
						w.target.buf.spoil(min(w.target.lo+int(min(w.TO-w.target.base, 1<<20)), w.target.hi), w.target.hi)
					}
				})
			}
			uses = append(uses, access{w.target.buf, lo, hi, true, q, place, false}, access{w.target, 0, 1, false, q, place, false})
			wrote, tlo, thi = true, lo, hi
		}
		uses = append(uses, access{q, 0, 1, false, q, place, false})
	}
	write := func() {
		if wrote {
			copy(w.target.buf.want[tlo:thi], q.payload(w))
		}
		q.after, q.written = afterAWrite, uint32(n)
	}
	if w.Op == iwarp.OpWrite {
		return effect{uses: uses, do: func() { write(); q.completes(w, 0) }}
	}
	// The others take a receive of the peer.
	refuse := func(c code, spoilt func()) effect {
		e := m.remoteFault(q, w, c, only(success, flushed)|blame(c, w.Op), func() {
			if w.Op == iwarp.OpWriteImm {
				write()
			}
			if spoilt != nil {
				spoilt()
			}
		})
		e.uses = uses
		return e
	}
	r := p.next()
	if r == nil {
		return refuse(code{1, 2, 2}, nil)
	}
	if p.srq != nil {
		uses = append(uses, access{p.srq, 0, 1, true, q, place, false})
	}
	wc := iwarp.WC{Op: iwarp.OpRecv, Solicited: w.Flags&iwarp.Solicited != 0}
	if w.Op == iwarp.OpImmediate || w.Op == iwarp.OpWriteImm {
		uses = append(uses, access{q, 0, 1, false, q, place, false})
		return effect{uses: uses, do: func() {
			if w.Op == iwarp.OpWriteImm {
				write()
			}
			x := &expect{id: r.id, ok: only(success), wc: wc, anyOp: q.after == perhapsAfterWrite}
			x.wc.HasImm, x.wc.Imm = true, w.Imm
			if q.after == afterAWrite {
				x.wc.Op, x.wc.ByteLen = iwarp.OpRecvWriteImm, q.written
			}
			p.take()
			p.recvs = append(p.recvs, x)
			q.after = notAfterWrite
			q.completes(w, 0)
		}}
	}
	wc.ByteLen = uint32(n)
	fail := func(s iwarp.Status, c code) effect {
		return refuse(c, func() {
			p.take()
			p.recvs = append(p.recvs, &expect{id: r.id, ok: only(s)})
			p.spoil(r.sgl, n)
		})
	}
	reached := firstSGEs(r.sgl, min(n, r.room()))
	into, ok := p.locals(reached, iwarp.LocalWrite, q, place)
	switch {
	case n > r.room() && !ok:
		return effect{err: errNever} // which fault is found first depends on the segments
	case n > r.room():
		return fail(iwarp.StatusLocLenErr, code{1, 2, 5})
	case !ok:
		return fail(iwarp.StatusLocProtErr, code{1, 0, 0})
	}
	uses = append(uses, into...)
	if w.Op == iwarp.OpSendInv {
		g := w.inv
		switch {
		case g == nil || !p.knows(g):
			return fail(iwarp.StatusRemInvReqErr, code{0, 2, 9})
		case g.side != p.side || g.pd != p.pd || !g.boundTo(p) || g.access&mRemoteRights == 0 || g.windows > 0:
			return fail(iwarp.StatusRemInvReqErr, code{0, 1, 9})
		}
		uses = append(uses, access{g, 0, 1, true, q, place, false})
		wc.Inv, wc.InvSTag = true, w.InvSTag
	}
	return effect{uses: uses, do: func() {
		p.take()
		p.scatter(r.sgl, q.payload(w))
		if w.Op == iwarp.OpSendInv {
			w.inv.end()
		}
		p.recvs = append(p.recvs, &expect{id: r.id, ok: only(success), wc: wc})
		q.after = notAfterWrite
		q.completes(w, 0)
	}}
}

const mRemoteRights = iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic

// errNever means that the request must not be posted at all.
var errNever = errors.New("not to be posted")

// payload returns what w sends.
func (q *mQP) payload(w *mWR) []byte {
	if w.Data != nil {
		return w.Data
	}
	return q.read(w.sgl)
}

// firstSGEs returns the elements that n bytes of sgl touch.
func firstSGEs(sgl []mSGE, n uint64) (part []mSGE) {
	for _, s := range sgl {
		if n == 0 {
			break
		}
		part = append(part, s)
		n -= min(n, uint64(s.n))
	}
	return part
}

// next returns the receive that a message to q takes, or nil.
func (q *mQP) next() *mRecv {
	switch {
	case q.srq == nil && len(q.rq) > 0:
		return q.rq[0]
	case q.srq != nil && len(q.recvs) < modelShare && len(q.srq.queue) > 0:
		return q.srq.queue[0]
	}
	return nil
}

func (q *mQP) take() {
	if q.srq != nil {
		q.srq.queue = q.srq.queue[1:]
		q.srq.taken++
		return
	}
	q.rq = q.rq[1:]
}

var readCodes = [...]uint8{faultSTag: 0, faultStream: 3, faultAccess: 2, faultWrap: 4, faultBounds: 1}

// responds records that a response travels from q.
func (q *mQP) responds() {
	if q.after == afterAWrite {
		q.after = perhapsAfterWrite
	}
}

func (m *model) rdmaRead(q *mQP, w *mWR) effect {
	p, n := q.peer, w.length()
	uses, ok := q.locals(w.sgl, iwarp.LocalWrite, q, sink)
	if !ok {
		return m.localFault(q, w)
	}
	uses = append(uses, access{p, 0, 1, true, q, gather, false})
	if n == 0 {
		return effect{uses: uses, do: func() { q.after = notAfterWrite; p.responds(); q.completes(w, 0) }}
	}
	lo, hi, f := p.remote(w.target, iwarp.RemoteRead, w.TO, n)
	if f != faultNone {
		return m.remoteFault(q, w, code{0, 1, readCodes[f]}, only(iwarp.StatusRemAccessErr), nil)
	}
	uses = append(uses, access{w.target.buf, lo, hi, false, q, fetch, false}, access{w.target, 0, 1, false, q, fetch, false})
	return effect{uses: uses, do: func() {
		q.after = notAfterWrite
		p.responds()
		q.scatter(w.sgl, append([]byte(nil), w.target.buf.want[lo:hi]...))
		q.completes(w, uint32(n))
	}}
}

func (m *model) amo(q *mQP, w *mWR) effect {
	p := q.peer
	uses, ok := q.locals(w.sgl, iwarp.LocalWrite, q, sink)
	if !ok {
		return m.localFault(q, w)
	}
	lo, hi, f := p.remote(w.target, iwarp.RemoteAtomic, w.TO, 8)
	if f != faultNone {
		return m.remoteFault(q, w, code{0, 1, readCodes[f]}, only(iwarp.StatusRemAccessErr, iwarp.StatusRemOpErr), nil)
	}
	uses = append(uses, access{p, 0, 1, true, q, gather, false},
		access{w.target.buf, lo, hi, true, q, alter, false}, access{w.target, 0, 1, false, q, alter, false})
	return effect{uses: uses, do: func() {
		q.after = notAfterWrite
		p.responds()
		at := w.target.buf.want[lo:hi]
		old, a := word(at), &w.Atomic
		switch {
		case w.Op == iwarp.OpFetchAdd:
			binary.NativeEndian.PutUint64(at, addFields(old, a.Add, a.AddMask))
		case old&a.CompareMask == a.Compare&a.CompareMask:
			binary.NativeEndian.PutUint64(at, old&^a.SwapMask|a.Swap&a.SwapMask)
		}
		q.scatter(w.sgl, binary.NativeEndian.AppendUint64(nil, old))
		q.completes(w, 8)
	}}
}

func (m *model) localInv(q *mQP, w *mWR) effect {
	g := w.inv
	if g == nil || g.side != q.side || g.pd != q.pd || g.kind == mWindow && !g.boundTo(q) || g.windows > 0 {
		return m.localFault(q, w)
	}
	return effect{uses: []access{{g, 0, 1, true, q, gather, false}}, do: func() { g.end(); q.completes(w, 0) }}
}

// recv returns the effect of posting a receive to q, or to its SRQ.
func (m *model) recv(q *mQP, r *mRecv) effect {
	switch {
	case len(r.sgl) > modelSGEs:
		return effect{err: errAny}
	case q.fresh: // the message that found no receive might find this one
		return effect{settle: true}
	case q.srq != nil && q.srq.taken+len(q.srq.queue) >= modelRecvs:
		return effect{err: iwarp.ErrQueueFull}
	case q.srq != nil:
		return effect{do: func() { q.srq.queue = append(q.srq.queue, r) }}
	case len(q.rq)+len(q.recvs) >= modelRecvs:
		return effect{err: iwarp.ErrQueueFull}
	case q.state == iwarp.StateError:
		return effect{do: func() { q.recvs = append(q.recvs, &expect{id: r.id, ok: only(flushed)}) }}
	}
	return effect{do: func() { q.rq = append(q.rq, r) }}
}
