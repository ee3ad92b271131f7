package inproc

import (
	"encoding/binary"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// run executes the SQ as far as possible.
func (q *qp) run() {
	for len(q.sq) > 0 && q.gate && (q.state == iwarp.StateRTS || q.state == iwarp.StateClosing) {
		r := q.sq[0]
		q.sq = q.sq[1:]
		q.execute(&r)
	}
	if q.state == iwarp.StateClosing {
		q.close()
	}
}

// execute does r to its end.
func (q *qp) execute(r *request) {
	switch r.Op {
	case iwarp.OpSend, iwarp.OpSendInv, iwarp.OpImmediate, iwarp.OpWrite, iwarp.OpWriteImm:
		q.send(r)
	case iwarp.OpRead:
		q.read(r)
	case iwarp.OpCmpSwap, iwarp.OpFetchAdd:
		q.atomic(r)
	case iwarp.OpLocalInv:
		g := q.dev.stags.regions[r.InvSTag]
		if g == nil || g.pd != q.pd || g.kind == window && !g.boundTo(q) || !g.end() {
			q.localFault(r)
			return
		}
		q.complete(r, iwarp.StatusSuccess, 0)
	case iwarp.OpFastReg:
		m := r.Reg.MR.(*mr)
		if m.dead || m.r != nil && m.r.remote {
			q.localFault(r)
			return
		}
		m.set(r.next)
		q.complete(r, iwarp.StatusSuccess, 0)
	case iwarp.OpBindMW:
		if !q.bind(r) {
			q.localFault(r)
			return
		}
		q.complete(r, iwarp.StatusSuccess, 0)
	}
}

// localFault ends the stream for a request that its own side cannot execute: "the
// Terminate of a local error carries no headers" (RFC 5040 §7.1).
func (q *qp) localFault(r *request) {
	q.complete(r, iwarp.StatusLocProtErr, 0)
	q.terminate(code{0, 0, 0x00})
}

func (q *qp) bind(r *request) bool {
	w := r.Bind.MW.(*mw)
	if w.dead {
		return false
	}
	if w.r != nil {
		w.r.end()
	}
	if r.Bind.Len == 0 {
		return true
	}
	m := r.Bind.MR.(*mr)
	if m.dead || m.r == nil || !m.r.remote || !m.r.lend(r.next, r.Bind.Len) {
		return false
	}
	w.drop()
	w.r, r.next.parent = r.next, m.r
	if m.r.windows == nil {
		m.r.windows = make(map[*region]bool)
	}
	m.r.windows[r.next] = true
	q.dev.stags.regions[r.next.stag] = r.next
	return true
}

// send executes requests that carry a payload to the peer.
func (q *qp) send(r *request) {
	src, ok := q.pd.spans(r.SGL, 0)
	if !ok {
		q.localFault(r)
		return
	}
	if r.inline != nil {
		src = [][]byte{r.inline}
	}
	b := q.peer
	q.stats.BytesSent += r.length
	// "A Send or Write completes when DDP has it" (RFC 5040 §5.5, rule 14): the peer's
	// reaction comes later.
	q.complete(r, iwarp.StatusSuccess, 0)
	b.open()
	if r.Op == iwarp.OpWrite || r.Op == iwarp.OpWriteImm {
		q.stats.WritesSent++
		if !b.place(r, src) {
			return
		}
	}
	switch r.Op {
	case iwarp.OpSend, iwarp.OpSendInv:
		q.stats.SendsSent++
		b.deliver(r, src)
	case iwarp.OpImmediate, iwarp.OpWriteImm:
		q.stats.ImmsSent++
		b.deliverImm(r)
	}
}

// open lets a responder send: the initiator's first message has arrived.
func (q *qp) open() {
	if !q.gate {
		q.gate = true
		close(q.opened)
		q.dev.n.runnable = append(q.dev.n.runnable, q)
	}
}

// place executes a Write of the peer. It returns false if that ends the stream.
func (q *qp) place(r *request, src [][]byte) bool {
	// "If the DDP Segment is of zero length, the STag and TO MUST NOT be checked"
	// (after RFC 5041 §5.2).
	if r.length > 0 {
		dst, f := q.remoteSpan(r.STag, iwarp.RemoteWrite, r.TO, r.length)
		if f != faultNone {
			q.terminate(writeFault(f))
			return false
		}
		copySpans([][]byte{dst}, src)
	}
	q.stats.WritesReceived++
	q.stats.BytesReceived += r.length
	q.afterWith, q.written = true, uint32(r.length)
	return true
}

// next takes the receive for an arriving message. If there is none, or this QP already holds its
// share of an SRQ, the stream ends.
func (q *qp) next() (r receive, ok bool) {
	switch {
	case q.srq == nil && len(q.rq) > 0:
		r, ok = q.rq[0], true
		q.rq = q.rq[1:]
	case q.srq != nil && q.rqHeld < q.maxRecv:
		if r, ok = q.srq.take(); ok {
			q.rqHeld++
		}
	}
	if !ok {
		q.terminate(code{1, 2, 2})
	}
	return r, ok
}

// deliver executes a Send of the peer.
func (q *qp) deliver(r *request, src [][]byte) {
	q.afterWith = false
	w, ok := q.next()
	if !ok {
		return
	}
	wc := iwarp.WC{Op: iwarp.OpRecv, ByteLen: uint32(r.length), Solicited: r.Flags&iwarp.Solicited != 0}
	fail := func(s iwarp.Status, c code) {
		q.received(w, iwarp.WC{Op: iwarp.OpRecv, Status: s, Solicited: true})
		q.terminate(c)
	}
	if r.length > w.length {
		fail(iwarp.StatusLocLenErr, code{1, 2, 5})
		return
	}
	dst, ok := q.pd.spans(firstOf(w.sgl, r.length), iwarp.LocalWrite)
	if !ok {
		fail(iwarp.StatusLocProtErr, code{1, 0, 0})
		return
	}
	copySpans(dst, src)
	// The STag is invalidated before the message is delivered (RFC 5040 §5.3): the reader of the
	// completion owns the memory.
	if r.Op == iwarp.OpSendInv {
		if c, ok := q.invalidate(r.InvSTag); !ok {
			fail(iwarp.StatusRemInvReqErr, c)
			return
		}
		wc.Inv, wc.InvSTag = true, r.InvSTag
	}
	q.stats.SendsReceived++
	q.stats.BytesReceived += r.length
	q.received(w, wc)
}

// firstOf returns the part of sgl that n bytes fill. The rest is not checked.
func firstOf(sgl []iwarp.SGE, n uint64) (part []iwarp.SGE) {
	for _, s := range sgl {
		if n == 0 {
			break
		}
		part = append(part, s)
		n -= min(n, uint64(s.Length))
	}
	return part
}

// invalidate executes the peer's invalidation. The peer may only take back what its own stream
// alone can use, and what is open to it: otherwise one peer could take memory away from another
// (RFC 5040 §8.1.1).
func (q *qp) invalidate(s iwarp.STag) (code, bool) {
	g := q.dev.stags.regions[s]
	switch {
	case g == nil:
		return code{0, 2, 9}, false
	case g.pd != q.pd, !g.boundTo(q), g.access&remoteRights == 0, !g.end():
		return code{0, 1, 9}, false
	}
	return code{}, true
}

// deliverImm delivers Immediate Data of the peer (RFC 7306 §6).
func (q *qp) deliverImm(r *request) {
	wc := iwarp.WC{Op: iwarp.OpRecv, HasImm: true, Imm: r.Imm, Solicited: r.Flags&iwarp.Solicited != 0}
	if q.afterWith {
		wc.Op, wc.ByteLen = iwarp.OpRecvWriteImm, q.written
	}
	q.afterWith = false
	if !q.ext {
		q.terminate(code{0, 2, 6})
		return
	}
	w, ok := q.next()
	if !ok {
		return
	}
	q.stats.ImmsReceived++
	q.received(w, wc)
}

// read executes an RDMA Read.
func (q *qp) read(r *request) {
	dst, ok := q.pd.spans(r.SGL, iwarp.LocalWrite)
	if !ok {
		q.localFault(r)
		return
	}
	b := q.peer
	b.open()
	b.afterWith = false
	q.stats.ReadsSent++
	b.stats.ReadsReceived++
	if b.ird == 0 { // with MPA revision 1 this side was told nothing about it
		q.complete(r, iwarp.StatusWRFlushErr, 0)
		b.terminate(code{1, 2, 2})
		return
	}
	// "If the RDMA Read Message size is zero, the Data Source STag and Tagged
	// Offset MUST NOT be validated" (after RFC 5040 §5.2.1).
	if r.length > 0 {
		src, f := b.remoteSpan(r.STag, iwarp.RemoteRead, r.TO, r.length)
		if f != faultNone {
			q.complete(r, iwarp.StatusRemAccessErr, 0)
			b.terminate(readFault(f))
			return
		}
		if g := b.dev.stags.regions[r.STag].guard; g != nil {
			g.Lock()
			copySpans(dst, [][]byte{src})
			g.Unlock()
		} else {
			copySpans(dst, [][]byte{src})
		}
		b.stats.BytesSent += r.length
		q.stats.BytesReceived += r.length
	}
	q.complete(r, iwarp.StatusSuccess, uint32(r.length))
}

// atomic executes a FetchAdd or CmpSwap (RFC 7306 §5.1).
func (q *qp) atomic(r *request) {
	dst, ok := q.pd.spans(r.SGL, iwarp.LocalWrite)
	if !ok {
		q.localFault(r)
		return
	}
	b := q.peer
	b.open()
	b.afterWith = false
	q.stats.AtomicsSent++
	b.stats.AtomicsReceived++
	if !b.ext {
		q.complete(r, iwarp.StatusRemOpErr, 0)
		b.terminate(code{0, 2, 6})
		return
	}
	if b.ird == 0 {
		q.complete(r, iwarp.StatusWRFlushErr, 0)
		b.terminate(code{1, 2, 2})
		return
	}
	word, f := b.remoteSpan(r.STag, iwarp.RemoteAtomic, r.TO, 8)
	if f != faultNone {
		q.complete(r, iwarp.StatusRemAccessErr, 0)
		b.terminate(readFault(f))
		return
	}
	old := binary.NativeEndian.Uint64(word)
	a := &r.Atomic
	if r.Op == iwarp.OpFetchAdd {
		binary.NativeEndian.PutUint64(word, addFields(old, a.Add, a.AddMask))
	} else if (old^a.Compare)&a.CompareMask == 0 {
		binary.NativeEndian.PutUint64(word, old&^a.SwapMask|a.Swap&a.SwapMask)
	}
	copySpans(dst, [][]byte{binary.NativeEndian.AppendUint64(nil, old)})
	q.complete(r, iwarp.StatusSuccess, 8)
}

// addFields adds field by field: a set bit in mask is the highest one of a field,
// whose carry is dropped. It is written as RFC 7306 §5.1.1 has it, bit by bit.
func addFields(x, y, mask uint64) (sum uint64) {
	carry := uint64(0)
	for i := range 64 {
		s := x>>i&1 + y>>i&1 + carry
		sum |= s & 1 << i
		carry = s >> 1 &^ (mask >> i & 1)
	}
	return sum
}
