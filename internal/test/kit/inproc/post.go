package inproc

import (
	"fmt"
	"math"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// request is a posted SendWR.
type request struct {
	iwarp.SendWR         // SGL, Reg and Bind are copies
	length       uint64  // bytes to send or to read
	inline       []byte  // payload, copied at posting; nil = from SGL
	next         *region // OpFastReg, OpBindMW: what it will make
}

// sglLength returns the total length of an SGL. It fails for more than the longest message.
func sglLength(sgl []iwarp.SGE) (uint64, error) {
	var n uint64
	for _, s := range sgl {
		n += uint64(s.Length)
	}
	if n > math.MaxUint32 {
		return 0, fmt.Errorf("%w: message of %d bytes: at most %d", iwarp.ErrInvalid, n, uint32(math.MaxUint32))
	}
	return n, nil
}

func (q *qp) PostSend(wr *iwarp.SendWR) error {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	r, err := q.newRequest(wr)
	switch {
	case err != nil:
		return err
	case q.destroyed || q.state != iwarp.StateRTS && q.state != iwarp.StateError:
		return fmt.Errorf("%w: PostSend in state %s", iwarp.ErrState, q.state)
	case q.sqHeld == q.maxSend:
		return iwarp.ErrQueueFull
	}
	if q.state == iwarp.StateRTS {
		if err := q.prepare(r); err != nil {
			return err
		}
	}
	q.sqHeld++
	if q.state == iwarp.StateError {
		q.complete(r, iwarp.StatusWRFlushErr, 0)
		return nil
	}
	q.sq = append(q.sq, *r)
	q.run()
	return nil
}

// newRequest copies wr. It rejects what is wrong with it whatever the QP's state.
func (q *qp) newRequest(wr *iwarp.SendWR) (*request, error) {
	a := &q.dev.attr
	has, maxSGE := true, q.maxSGE
	switch wr.Op {
	case iwarp.OpSend, iwarp.OpSendInv, iwarp.OpWrite:
	case iwarp.OpRead:
		has, maxSGE = a.RDMARead, min(maxSGE, a.MaxSGERead)
	case iwarp.OpLocalInv:
		has = a.LocalInv
	case iwarp.OpImmediate, iwarp.OpWriteImm:
		has = a.Immediate
	case iwarp.OpCmpSwap, iwarp.OpFetchAdd:
		has = a.Atomics
	case iwarp.OpFastReg:
		has = a.FastReg
	case iwarp.OpBindMW:
		has = a.MemoryWindow
	default:
		return nil, fmt.Errorf("%w: opcode %d cannot be posted", iwarp.ErrInvalid, wr.Op)
	}
	if !has {
		return nil, fmt.Errorf("%w: opcode %d", iwarp.ErrUnsupported, wr.Op)
	}
	if len(wr.SGL) > maxSGE {
		return nil, fmt.Errorf("%w: %d SGEs: this QP takes %d", iwarp.ErrInvalid, len(wr.SGL), maxSGE)
	}
	if wr.Data != nil && (wr.Flags&iwarp.Inline == 0 || len(wr.SGL) > 0) {
		return nil, fmt.Errorf("%w: Data is for Inline requests without SGL", iwarp.ErrInvalid)
	}
	if wr.Op == iwarp.OpImmediate && (len(wr.SGL) > 0 || len(wr.Data) > 0) {
		return nil, fmt.Errorf("%w: Immediate Data has no payload besides Imm", iwarp.ErrInvalid)
	}
	r := &request{SendWR: *wr}
	r.SGL = append([]iwarp.SGE(nil), wr.SGL...)
	length, err := sglLength(r.SGL)
	if err != nil {
		return nil, err
	}
	r.length = length + uint64(len(wr.Data))
	if wr.Op == iwarp.OpCmpSwap || wr.Op == iwarp.OpFetchAdd {
		switch {
		case wr.TO%8 != 0:
			return nil, fmt.Errorf("%w: an atomic at TO %#x: not a multiple of 8", iwarp.ErrInvalid, wr.TO)
		case r.length != 8:
			return nil, fmt.Errorf("%w: an atomic's SGL has %d bytes, its result 8", iwarp.ErrInvalid, r.length)
		}
	}
	if wr.Flags&iwarp.Inline != 0 && r.length > uint64(a.MaxInline) {
		return nil, fmt.Errorf("%w: %d bytes Inline: at most %d", iwarp.ErrInvalid, r.length, a.MaxInline)
	}
	return r, nil
}

// prepare does what has to be done at posting, on a connected QP: it rejects what this connection
// does not have, copies Inline payload, and draws STags.
func (q *qp) prepare(r *request) error {
	switch r.Op {
	case iwarp.OpRead, iwarp.OpCmpSwap, iwarp.OpFetchAdd:
		if r.Op != iwarp.OpRead && !q.ext {
			return fmt.Errorf("%w: atomics need ConnParam.Extensions", iwarp.ErrUnsupported)
		}
		if r.Flags&iwarp.Inline != 0 {
			return fmt.Errorf("%w: Inline is for what is sent", iwarp.ErrInvalid)
		}
		if q.ord == 0 {
			return fmt.Errorf("%w: the connection's ORD is 0", iwarp.ErrInvalid)
		}
	case iwarp.OpImmediate, iwarp.OpWriteImm:
		if !q.ext {
			return fmt.Errorf("%w: Immediate Data needs ConnParam.Extensions", iwarp.ErrUnsupported)
		}
	case iwarp.OpFastReg:
		return q.prepareFastReg(r)
	case iwarp.OpBindMW:
		return q.prepareBind(r)
	}
	if r.Flags&iwarp.Inline == 0 {
		return nil
	}
	src, ok := q.pd.spans(r.SGL, 0)
	if !ok {
		return fmt.Errorf("%w: an SGE names no memory of this QP's protection domain", iwarp.ErrInvalid)
	}
	r.inline = append(make([]byte, 0, r.length), r.Data...)
	for _, b := range src {
		r.inline = append(r.inline, b...)
	}
	r.SGL, r.Data = nil, nil
	return nil
}

func (q *qp) prepareFastReg(r *request) error {
	if r.Reg == nil {
		return fmt.Errorf("%w: OpFastReg without Reg", iwarp.ErrInvalid)
	}
	reg := *r.Reg
	r.Reg = &reg
	m, ok := reg.MR.(*mr)
	switch {
	case !ok || m.pd != q.pd || m.limit == 0 || m.dead:
		return fmt.Errorf("%w: OpFastReg is for a region of AllocMR of the same protection domain", iwarp.ErrInvalid)
	case len(reg.Buf) > m.limit:
		return fmt.Errorf("%w: %d bytes for a region of at most %d", iwarp.ErrInvalid, len(reg.Buf), m.limit)
	}
	if err := q.dev.checkMemory(reg.Buf, reg.Access, reg.Base, false); err != nil {
		return err
	}
	m.stag = q.dev.stags.draw()
	r.next = &region{stag: m.stag, pd: q.pd, base: reg.Base, buf: reg.Buf, access: reg.Access, kind: fast, remote: true, local: true, bound: q, life: q.life}
	return nil
}

func (q *qp) prepareBind(r *request) error {
	if r.Bind == nil {
		return fmt.Errorf("%w: OpBindMW without Bind", iwarp.ErrInvalid)
	}
	bind := *r.Bind
	r.Bind = &bind
	w, ok := bind.MW.(*mw)
	if !ok || w.pd != q.pd || w.dead {
		return fmt.Errorf("%w: OpBindMW is for a window of the same protection domain", iwarp.ErrInvalid)
	}
	if w.stag = 0; bind.Len == 0 {
		return nil
	}
	m, ok := bind.MR.(*mr)
	switch {
	case !ok || m.pd != q.pd || m.dead:
		return fmt.Errorf("%w: a window is a part of a region of the same protection domain", iwarp.ErrInvalid)
	case bind.Access == 0 || bind.Access&^remoteRights != 0:
		return fmt.Errorf("%w: a window takes remote rights only, and at least one", iwarp.ErrInvalid)
	}
	next := &region{pd: q.pd, kind: window, bound: q, life: q.life, base: bind.Addr, access: bind.Access, remote: true}
	// For a region of AllocMR this can only be checked when its turn comes.
	if m.limit == 0 && !m.r.lend(next, bind.Len) {
		return fmt.Errorf("%w: a window of %d bytes from TO %#x on passes its region, or may write what that may not",
			iwarp.ErrInvalid, bind.Len, bind.Addr)
	}
	w.stag = q.dev.stags.draw()
	next.stag = w.stag
	r.next = next
	return nil
}

// lend gives window w its memory, n bytes of r, if r is not nil and can carry it.
func (r *region) lend(w *region, n uint64) bool {
	if r == nil || w.access&writeRights != 0 && r.access&iwarp.LocalWrite == 0 {
		return false
	}
	b, f := r.span(w.base, n)
	w.buf, w.guard = b, r.guard
	return f == faultNone
}

func (q *qp) PostRecv(wr *iwarp.RecvWR) error {
	if q.srq != nil {
		return fmt.Errorf("%w: the QP's receives come from its SRQ", iwarp.ErrInvalid)
	}
	r, err := newReceive(wr, q.maxSGE)
	if err != nil {
		return err
	}
	q.dev.n.lock()
	defer q.dev.n.unlock()
	switch {
	case q.destroyed || q.state == iwarp.StateClosing:
		return fmt.Errorf("%w: PostRecv in state %s", iwarp.ErrState, q.state)
	case q.rqHeld == q.maxRecv:
		return iwarp.ErrQueueFull
	}
	q.rqHeld++
	if q.state == iwarp.StateError {
		q.received(r, iwarp.WC{Op: iwarp.OpRecv, Status: iwarp.StatusWRFlushErr})
		return nil
	}
	q.rq = append(q.rq, r)
	return nil
}

// complete ends a request. Its place is free once the completion is polled, or at once if there is
// none.
func (q *qp) complete(r *request, s iwarp.Status, n uint32) {
	e := entry{q: q, wc: iwarp.WC{ID: r.ID, QP: q, Op: r.Op, Status: s, ByteLen: n}}
	if s == iwarp.StatusSuccess && r.Flags&iwarp.Unsignaled != 0 {
		e.free()
		return
	}
	q.sendCQ.push(e)
}

// received ends a receive with wc.
func (q *qp) received(r receive, wc iwarp.WC) {
	wc.ID, wc.QP = r.id, q
	q.recvCQ.push(entry{wc: wc, q: q, recv: true})
}
