package iwarp

import (
	"fmt"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// isReceive reports whether op is that of a receive's completion.
func isReceive(op Opcode) bool { return op == OpRecv || op == OpRecvWriteImm }

// polled releases the place of a polled completion.
func (q *qp) polled(op Opcode) {
	if !isReceive(op) {
		q.sqHeld.Add(-1)
		return
	}
	q.rqHeld.Add(-1)
	if q.srq != nil {
		q.srq.release(1)
	}
}

// take takes a place of a queue of n.
func take(held *atomic.Int32, n int) bool {
	if int(held.Add(1)) > n {
		held.Add(-1)
		return false
	}
	return true
}

// sglLength returns the total length of an SGL. It fails for more than the longest message.
func sglLength(sgl []SGE) (uint64, error) {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	if n > ddp.MaxMessage {
		return 0, fmt.Errorf("%w: message of %d bytes: at most %d", ErrInvalid, n, ddp.MaxMessage)
	}
	return n, nil
}

func (q *qp) PostSend(wr *SendWR) error {
	length, err := q.checkSend(wr)
	if err != nil {
		return err
	}
	q.mu.Lock()
	switch {
	case q.state == StateError:
		defer q.mu.Unlock()
		if !take(&q.sqHeld, q.maxSend) {
			return ErrQueueFull
		}
		q.sendCQ.push(&WC{ID: wr.ID, QP: q, Op: wr.Op, Status: StatusWRFlushErr}, nil)
		return nil
	case q.state != StateRTS:
		state := q.state
		q.mu.Unlock()
		return fmt.Errorf("%w: PostSend in state %s", ErrState, state)
	}
	if err := q.checkKind(wr.Op); err != nil {
		q.mu.Unlock()
		return err
	}
	if !take(&q.sqHeld, q.maxSend) {
		q.mu.Unlock()
		return ErrQueueFull
	}
	slot := &q.sq[q.sqTail%uint64(len(q.sq))]
	if err := q.fillSlot(slot, wr, length); err != nil {
		q.sqHeld.Add(-1)
		q.mu.Unlock()
		return err
	}
	q.sqTail++
	if wr.Flags&More != 0 {
		q.mu.Unlock()
		return nil
	}
	q.sendLocked(nil)
	return nil
}

// shortLocked reports whether what waits to be sent is so little that its poster sends it itself.
func (q *qp) shortLocked() bool {
	n, most := uint64(0), uint64(directMax)
	for i := q.tx.next; i != q.sqTail; i++ {
		slot := &q.sq[i%uint64(len(q.sq))]
		if n += 64; !slot.unanswered { // otherwise it is a request, which is small
			n += slot.length
		}
		if op := slot.wr.Op; op != OpWrite {
			most = directMessage
		}
		if n > directMessage {
			return false
		}
	}
	for i := q.tx.answer; i != q.irqTail && n <= directMessage; i++ {
		e := &q.irq[i%uint64(len(q.irq))]
		if e.slow { // the poster must not wait for a disk
			return false
		}
		n += 64 + uint64(e.size)
		most = directMessage
	}
	return n <= most
}

// checkSend rejects what is wrong with wr whatever the QP's state.
func (q *qp) checkSend(wr *SendWR) (length uint64, err error) {
	switch wr.Op {
	case OpSend, OpSendInv, OpWrite, OpWriteImm, OpCmpSwap, OpFetchAdd:
	case OpRead:
		if wr.Flags&Inline != 0 {
			return 0, fmt.Errorf("%w: an RDMA Read cannot be Inline", ErrInvalid)
		}
	case OpImmediate:
		if len(wr.SGL) > 0 || len(wr.Data) > 0 {
			return 0, fmt.Errorf("%w: Immediate Data has no payload besides Imm", ErrInvalid)
		}
	case OpLocalInv, OpFastReg, OpBindMW:
		return 0, nil
	default:
		return 0, fmt.Errorf("%w: opcode %d cannot be posted on this device", ErrInvalid, wr.Op)
	}
	if len(wr.SGL) > q.maxSGE {
		return 0, fmt.Errorf("%w: %d SGEs: this QP takes %d", ErrInvalid, len(wr.SGL), q.maxSGE)
	}
	if wr.Data != nil && (wr.Flags&Inline == 0 || len(wr.SGL) > 0) {
		return 0, fmt.Errorf("%w: Data is for Inline requests without SGL", ErrInvalid)
	}
	length, err = sglLength(wr.SGL)
	length += uint64(len(wr.Data))
	if err == nil && wr.Flags&Inline != 0 && length > uint64(q.dev.cfg.MaxInline) {
		err = fmt.Errorf("%w: %d bytes Inline: at most %d", ErrInvalid, length, q.dev.cfg.MaxInline)
	}
	if err == nil && wr.Op.isAtomic() {
		err = checkAtomic(wr, length)
	}
	return length, err
}

// fillSlot copies wr, and its payload if it is Inline.
func (q *qp) fillSlot(slot *sendSlot, wr *SendWR, length uint64) error {
	slot.wr = *wr
	slot.wr.SGL, slot.wr.Data = nil, nil
	slot.length = length
	slot.unanswered = wr.Op.asks()
	slot.sgl = append(slot.sgl[:0], wr.SGL...)
	slot.inline = slot.inline[:0]
	if wr.Op == OpFastReg || wr.Op == OpBindMW {
		return q.prepareMemory(slot, wr)
	}
	if wr.Flags&Inline == 0 {
		return nil
	}
	slot.inline = append(slot.inline, wr.Data...)
	for i := range slot.sgl {
		s := &slot.sgl[i]
		if s.Length == 0 {
			continue
		}
		m, b, ok := q.dev.localSpan(q.pd, s, 0)
		if !ok {
			return fmt.Errorf("%w: SGE %d names no memory of this QP's protection domain", ErrInvalid, i)
		}
		slot.inline = append(slot.inline, b...)
		m.local.leave()
	}
	slot.sgl = slot.sgl[:0]
	return nil
}

// checkRecv rejects what is wrong with wr for a queue of maxSGE.
func checkRecv(wr *RecvWR, maxSGE int) (length uint64, err error) {
	if len(wr.SGL) > maxSGE {
		return 0, fmt.Errorf("%w: %d SGEs: this queue takes %d", ErrInvalid, len(wr.SGL), maxSGE)
	}
	return sglLength(wr.SGL)
}

// set stores wr in the slot, with a copy of its SGL.
func (s *recvSlot) set(wr *RecvWR, length uint64) {
	s.id, s.length = wr.ID, length
	s.sgl = append(s.sgl[:0], wr.SGL...)
}

func (q *qp) PostRecv(wr *RecvWR) error {
	if q.srq != nil {
		return fmt.Errorf("%w: QP %d has its receives from an SRQ: post there", ErrInvalid, q.num)
	}
	length, err := checkRecv(wr, q.maxSGE)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state == StateClosing || q.state == StateTerminate {
		return fmt.Errorf("%w: PostRecv in state %s", ErrState, q.state)
	}
	if !take(&q.rqHeld, q.maxRecv) {
		return ErrQueueFull
	}
	if q.state == StateError {
		q.recvCQ.push(&WC{ID: wr.ID, QP: q, Op: OpRecv, Status: StatusWRFlushErr}, nil)
		return nil
	}
	if q.rq == nil {
		q.rq = make([]recvSlot, q.maxRecv)
	}
	q.rq[q.rqTail%uint64(len(q.rq))].set(wr, length)
	q.rqTail++
	return nil
}

// flushLocked completes everything that is outstanding, in posting order, and sets the state
// ERROR. No goroutine may use the queues' memory any more.
func (q *qp) flushLocked() {
	q.state = StateError
	for ; q.sqHead != q.sqTail; q.sqHead++ {
		slot := &q.sq[q.sqHead%uint64(len(q.sq))]
		status := StatusWRFlushErr
		if int64(q.sqHead) == q.badWR {
			status = q.badCode
		}
		q.sendCQ.push(&WC{ID: slot.wr.ID, QP: q, Op: slot.wr.Op, Status: status}, nil)
	}
	if cur := q.rx.cur; cur != nil && q.srq != nil { // receives that no message took stay on the SRQ
		q.rx.cur = nil
		q.recvCQ.push(&WC{ID: cur.id, QP: q, Op: OpRecv, Status: StatusWRFlushErr}, nil)
	}
	for ; q.rqHead != q.rqTail; q.rqHead++ {
		q.recvCQ.push(&WC{ID: q.rq[q.rqHead%uint64(len(q.rq))].id, QP: q, Op: OpRecv, Status: StatusWRFlushErr}, nil)
	}
}

// blameLocked attributes the peer's Terminate to the oldest unfinished request that can have
// caused it.
func (q *qp) blameLocked(t *rdmap.Terminate) {
	match := func(op Opcode) bool { return true }
	switch {
	case t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.TypeProtection && t.Code != rdmap.ProtCannotInvalid:
		q.badCode = StatusRemAccessErr
		match = Opcode.asks
	case t.Layer == rdmap.LayerDDP && t.Type == ddp.TypeTagged:
		q.badCode = StatusRemAccessErr
		match = func(op Opcode) bool { return op == OpWrite || op == OpWriteImm }
	case t.Layer == rdmap.LayerDDP && t.Type == ddp.TypeUntagged:
		q.badCode = StatusRemInvReqErr
		match = func(op Opcode) bool {
			return op == OpSend || op == OpSendInv || op == OpImmediate || op == OpWriteImm
		}
	case t.Layer == rdmap.LayerRDMAP && t.Code == rdmap.OpCodeCannotInvalid:
		q.badCode = StatusRemInvReqErr
		match = func(op Opcode) bool { return op == OpSendInv }
	case t.Type == rdmap.TypeLocal && t.Layer != rdmap.LayerMPA:
		q.badCode = StatusFatalErr
	default:
		q.badCode = StatusRemOpErr
	}
	if o := q.refusedLocked(t); o != nil && t.Layer == rdmap.LayerRDMAP {
		q.badWR = int64(o.sq)
		return
	}
	for i := q.sqHead; i != q.sqTail; i++ {
		if match(q.sq[i%uint64(len(q.sq))].wr.Op) {
			q.badWR = int64(i)
			return
		}
	}
}
