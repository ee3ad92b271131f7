//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"fmt"
	"math"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// polled releases the place of a polled completion.
func (q *qp) polled(op iwarp.Opcode) {
	if op == iwarp.OpRecv {
		q.rqHeld.Add(-1)
	} else {
		q.sqHeld.Add(-1)
	}
}

func take(held *atomic.Int32, n int) bool {
	if int(held.Add(1)) > n {
		held.Add(-1)
		return false
	}
	return true
}

func sglLength(sgl []iwarp.SGE) (uint64, error) {
	var n uint64
	for i := range sgl {
		n += uint64(sgl[i].Length)
	}
	if n > math.MaxUint32 {
		return 0, fmt.Errorf("%w: message of %d bytes: at most %d", iwarp.ErrInvalid, n, uint32(math.MaxUint32))
	}
	return n, nil
}

// checkSend rejects what is wrong with wr whatever the QP's state.
func (q *qp) checkSend(wr *iwarp.SendWR) (length uint64, op C.int, err error) {
	switch wr.Op {
	case iwarp.OpSend:
		op = C.IBV_WR_SEND
	case iwarp.OpSendInv:
		op = C.IBV_WR_SEND_WITH_INV
	case iwarp.OpWrite:
		op = C.IBV_WR_RDMA_WRITE
	case iwarp.OpRead:
		op = C.IBV_WR_RDMA_READ
		if len(wr.SGL) > q.dev.attr.MaxSGERead {
			return 0, 0, fmt.Errorf("%w: %d SGEs of a Read: at most %d", iwarp.ErrInvalid, len(wr.SGL), q.dev.attr.MaxSGERead)
		}
		if wr.Flags&iwarp.Inline != 0 {
			return 0, 0, fmt.Errorf("%w: an Inline Read", iwarp.ErrInvalid)
		}
	case iwarp.OpLocalInv, iwarp.OpImmediate, iwarp.OpWriteImm, iwarp.OpCmpSwap, iwarp.OpFetchAdd, iwarp.OpFastReg, iwarp.OpBindMW:
		return 0, 0, fmt.Errorf("%w: opcode %d", iwarp.ErrUnsupported, wr.Op)
	default:
		return 0, 0, fmt.Errorf("%w: opcode %d cannot be posted", iwarp.ErrInvalid, wr.Op)
	}
	if len(wr.SGL) > q.maxSGE {
		return 0, 0, fmt.Errorf("%w: %d SGEs: this QP takes %d", iwarp.ErrInvalid, len(wr.SGL), q.maxSGE)
	}
	if wr.Data != nil && (wr.Flags&iwarp.Inline == 0 || len(wr.SGL) > 0) {
		return 0, 0, fmt.Errorf("%w: Data is for Inline requests without SGL", iwarp.ErrInvalid)
	}
	length, err = sglLength(wr.SGL)
	length += uint64(len(wr.Data))
	if err == nil && wr.Flags&iwarp.Inline != 0 && length > maxInline {
		err = fmt.Errorf("%w: %d bytes Inline: at most %d", iwarp.ErrInvalid, length, maxInline)
	}
	return length, op, err
}

func (q *qp) PostSend(wr *iwarp.SendWR) error {
	length, op, err := q.checkSend(wr)
	if err != nil {
		return err
	}
	full := false
	for {
		q.mu.Lock()
		switch {
		case q.state == iwarp.StateError:
			q.mu.Unlock()
			return flushed(q.sendCQ, &q.sqHeld, len(q.sq), iwarp.WC{ID: wr.ID, QP: q, Op: wr.Op})
		case q.state != iwarp.StateRTS:
			state := q.state
			q.mu.Unlock()
			return fmt.Errorf("%w: PostSend in state %s", iwarp.ErrState, state)
		}
		if wr.Op == iwarp.OpRead && q.ord == 0 {
			q.mu.Unlock()
			return fmt.Errorf("%w: a Read on a connection with ORD 0", iwarp.ErrInvalid)
		}
		if take(&q.sqHeld, len(q.sq)) {
			break
		}
		// Requests without a completion release their places when they are reaped, and they must not
		// wait for the one that More has promised.
		err := q.flushStagedLocked()
		q.mu.Unlock()
		if full || err != nil {
			return iwarp.ErrQueueFull
		}
		full = true
		q.sendCQ.reap()
	}
	defer q.mu.Unlock()
	if err := q.stageLocked(wr, op, length); err != nil {
		q.sqHeld.Add(-1)
		return err
	}
	if wr.Flags&iwarp.More != 0 && q.staged < C.SHIM_BATCH {
		return nil
	}
	_ = q.flushStagedLocked() // an error ends the stream, and the request's WC tells
	return nil
}

// flushed completes a request that is posted to a QP in ERROR.
func flushed(c *cq, held *atomic.Int32, n int, wc iwarp.WC) error {
	if !take(held, n) {
		return iwarp.ErrQueueFull
	}
	wc.Status = iwarp.StatusWRFlushErr
	c.mu.Lock()
	c.pushLocked(wc)
	c.mu.Unlock()
	return nil
}

// stageLocked adds wr to the requests that go to the device with the next call.
func (q *qp) stageLocked(wr *iwarp.SendWR, op C.int, length uint64) error {
	w := &unsafe.Slice(q.wrs, C.SHIM_BATCH)[q.staged]
	sges := unsafe.Slice(q.sges, C.SHIM_BATCH*q.maxSGE)[q.staged*q.maxSGE:][:q.maxSGE]
	slot := sendSlot{id: wr.ID, op: wr.Op, silent: wr.Flags&iwarp.Unsignaled != 0, length: length}
	*w = C.struct_shim_wr{
		id: C.uint64_t(uint64(q.handle)<<32 | uint64(q.sqTail&wrSeq)), remote: C.uint64_t(wr.TO), rkey: C.uint32_t(wr.STag),
		inv: C.uint32_t(wr.InvSTag), op: op, flags: C.IBV_SEND_SIGNALED, sge: &sges[0],
	}
	if wr.Flags&iwarp.Solicited != 0 {
		w.flags |= C.IBV_SEND_SOLICITED
	}
	if wr.Flags&iwarp.Fence != 0 {
		w.flags |= C.IBV_SEND_FENCE
	}
	switch {
	case length == 0:
	case wr.Flags&iwarp.Inline != 0:
		var data []byte
		w.nsge = 1
		// siw takes no Inline data in a Send with Invalidate.
		if length <= uint64(q.dev.inline) && (wr.Op != iwarp.OpSendInv || !q.dev.siw) {
			w.flags |= C.IBV_SEND_INLINE
			mem := unsafe.Add(q.inline, q.staged*q.dev.inline)
			data = unsafe.Slice((*byte)(mem), q.dev.inline)
			sges[0] = C.struct_ibv_sge{addr: C.uint64_t(uintptr(mem)), length: C.uint32_t(length)}
		} else {
			b, err := q.pd.getBounce()
			if err != nil {
				return err
			}
			slot.bounce, data = b, b.bytes()
			sges[0] = C.struct_ibv_sge{addr: C.uint64_t(uintptr(b.mem)), length: C.uint32_t(length), lkey: b.lkey}
		}
		if err := q.gather(data, wr); err != nil {
			q.pd.putBounce(slot.bounce)
			return err
		}
	default:
		n, err := q.fillSGL(sges, wr.SGL, wr.Op == iwarp.OpRead)
		if err != nil {
			return err
		}
		w.nsge = n
	}
	q.sq[q.sqTail%uint32(len(q.sq))] = slot
	q.sqTail++
	q.staged++
	return nil
}

// gather copies the Inline payload.
func (q *qp) gather(dst []byte, wr *iwarp.SendWR) error {
	n := copy(dst, wr.Data)
	for i := range wr.SGL {
		s := &wr.SGL[i]
		if s.Length == 0 {
			continue
		}
		m := q.dev.mrs.lookup(s.LKey)
		if m == nil || m.pd != q.pd || !m.contains(s.Addr, s.Length) {
			return fmt.Errorf("%w: SGE %d names no memory of this QP's protection domain", iwarp.ErrInvalid, i)
		}
		n += copy(dst[n:], m.buf[s.Addr-m.addr:][:s.Length])
	}
	return nil
}

// fillSGL translates an SGL, leaving out empty elements.
func (q *qp) fillSGL(dst []C.struct_ibv_sge, sgl []iwarp.SGE, sink bool) (n C.int, err error) {
	for i := range sgl {
		if sgl[i].Length == 0 {
			continue
		}
		if err := q.pd.fillSGE(&dst[n], &sgl[i], sink); err != nil {
			return 0, err
		}
		n++
	}
	return n, nil
}

// flushStagedLocked passes the staged requests to the device. If the device does not take them, the
// stream ends, which completes them.
func (q *qp) flushStagedLocked() error {
	n := q.staged
	if n == 0 || q.c == nil {
		return nil
	}
	q.staged = 0
	var bad C.int
	errno := C.shim_post_send(q.c, q.wrs, C.int(n), &bad)
	if errno == 0 {
		return nil
	}
	err := fmt.Errorf("ibverbs: post to %s: %w", q.dev.name, syscall.Errno(errno))
	q.endLocked(iwarp.EventQPFatal, err)
	return err
}

func (q *qp) PostRecv(wr *iwarp.RecvWR) error {
	if len(wr.SGL) > q.maxSGE {
		return fmt.Errorf("%w: %d SGEs: this QP takes %d", iwarp.ErrInvalid, len(wr.SGL), q.maxSGE)
	}
	if _, err := sglLength(wr.SGL); err != nil {
		return err
	}
	q.mu.Lock()
	switch q.state {
	case iwarp.StateError:
		q.mu.Unlock()
		return flushed(q.recvCQ, &q.rqHeld, len(q.rq), iwarp.WC{ID: wr.ID, QP: q, Op: iwarp.OpRecv})
	case iwarp.StateClosing, iwarp.StateTerminate:
		q.mu.Unlock()
		return fmt.Errorf("%w: PostRecv while the connection closes", iwarp.ErrState)
	}
	defer q.mu.Unlock()
	if !take(&q.rqHeld, len(q.rq)) {
		return iwarp.ErrQueueFull
	}
	err := q.recvLocked(wr)
	if err != nil {
		q.rqHeld.Add(-1)
	}
	return err
}

func (q *qp) recvLocked(wr *iwarp.RecvWR) error {
	// The elements after those of the staged requests are free.
	_ = q.flushStagedLocked()
	sges := unsafe.Slice(q.sges, q.maxSGE)
	n, err := q.fillSGL(sges, wr.SGL, false)
	if err != nil {
		return err
	}
	if n == 0 { // siw rejects a receive without elements
		sges[0], n = C.struct_ibv_sge{}, 1
	}
	q.rq[q.rqTail%uint32(len(q.rq))] = recvSlot{id: wr.ID}
	q.rqTail++
	id := C.uint64_t(uint64(q.handle)<<32 | wrRecv | uint64((q.rqTail-1)&wrSeq))
	if errno := C.shim_post_recv(q.c, id, &sges[0], n); errno != 0 {
		q.rqTail--
		return sysErr("ibv_post_recv", errno)
	}
	return nil
}

// popSend takes the oldest request off the SQ.
func (q *qp) popSend() sendSlot {
	i := q.sqHead % uint32(len(q.sq))
	s := q.sq[i]
	q.sq[i].bounce = bounce{}
	q.pd.putBounce(s.bounce)
	q.sqHead++
	return s
}

// completedLocked handles one completion of the device; c.mu is held.
func (q *qp) completedLocked(c *cq, w *C.struct_shim_wc) {
	q.mu.Lock()
	defer q.mu.Unlock()
	status := statusOf(w.status)
	seq := uint32(w.id) & wrSeq
	if w.id&wrRecv != 0 {
		q.receivedLocked(c, w, status, seq)
	} else {
		q.sentLocked(c, status, seq)
	}
	switch status {
	case iwarp.StatusSuccess:
	case iwarp.StatusWRFlushErr:
		q.endLocked(iwarp.EventQPFatal, nil) // the reason is on its way, or there is none
		if w.id&wrRecv == 0 && q.cause == nil {
			q.cause = errLost
		}
	default:
		q.endLocked(iwarp.EventQPReqErr, fmt.Errorf("ibverbs: a request ended with: %s", status))
	}
}

func (q *qp) receivedLocked(c *cq, w *C.struct_shim_wc, status iwarp.Status, seq uint32) {
	if (seq-q.rqHead)&wrSeq >= q.rqTail-q.rqHead {
		return // not one of the outstanding requests
	}
	slot := q.rq[q.rqHead%uint32(len(q.rq))]
	q.rqHead++
	wc := iwarp.WC{ID: slot.id, QP: q, Op: iwarp.OpRecv, Status: status}
	if status == iwarp.StatusSuccess {
		wc.ByteLen = uint32(w.bytes)
		if w.flags&C.IBV_WC_WITH_INV != 0 {
			wc.Inv, wc.InvSTag = true, iwarp.STag(w.inv)
		}
		q.stats.sendsReceived.Add(1)
		q.stats.bytesReceived.Add(uint64(w.bytes))
		q.dev.fpdusReceived.Add(1)
		q.dev.bytesReceived.Add(uint64(w.bytes))
	}
	c.pushLocked(wc)
}

// sentLocked completes requests in the order of posting, whatever the device's order: siw completes what it has
// sent, even after a Read that is not answered yet, but a completion promises that all before it are complete.
func (q *qp) sentLocked(c *cq, status iwarp.Status, seq uint32) {
	before := (seq - q.sqHead) & wrSeq
	if before >= q.sqTail-q.sqHead {
		return
	}
	s := &q.sq[(q.sqHead+before)%uint32(len(q.sq))]
	s.over, s.status = true, status
	for q.sqHead != q.sqTail && q.sq[q.sqHead%uint32(len(q.sq))].over {
		q.completeSendLocked(c)
	}
	if q.sqHead == q.sqTail && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
}

// completeSendLocked completes the oldest request, which is done.
func (q *qp) completeSendLocked(c *cq) {
	s := q.popSend()
	if q.failed && s.status == iwarp.StatusSuccess {
		s.status = iwarp.StatusWRFlushErr
	}
	q.failed = q.failed || s.status != iwarp.StatusSuccess
	wc := iwarp.WC{ID: s.id, QP: q, Op: s.op, Status: s.status}
	if s.status == iwarp.StatusSuccess {
		switch s.op {
		case iwarp.OpWrite:
			q.stats.writesSent.Add(1)
		case iwarp.OpRead:
			q.stats.readsSent.Add(1)
			q.dev.fpdusReceived.Add(1)
			q.dev.bytesReceived.Add(s.length)
			wc.ByteLen = uint32(s.length)
		default:
			q.stats.sendsSent.Add(1)
		}
		if s.op != iwarp.OpRead {
			q.stats.bytesSent.Add(s.length)
			q.dev.bytesSent.Add(s.length)
		}
		q.dev.fpdusSent.Add(1)
		if s.silent {
			q.sqHeld.Add(-1)
			return
		}
	}
	c.pushLocked(wc)
}

// statuses maps the statuses that iWARP devices use; all others count as general errors.
var statuses = map[C.uint32_t]iwarp.Status{
	C.IBV_WC_SUCCESS:            iwarp.StatusSuccess,
	C.IBV_WC_LOC_LEN_ERR:        iwarp.StatusLocLenErr,
	C.IBV_WC_LOC_QP_OP_ERR:      iwarp.StatusLocQPOpErr,
	C.IBV_WC_LOC_PROT_ERR:       iwarp.StatusLocProtErr,
	C.IBV_WC_WR_FLUSH_ERR:       iwarp.StatusWRFlushErr,
	C.IBV_WC_BAD_RESP_ERR:       iwarp.StatusBadRespErr,
	C.IBV_WC_LOC_ACCESS_ERR:     iwarp.StatusLocAccessErr,
	C.IBV_WC_REM_INV_REQ_ERR:    iwarp.StatusRemInvReqErr,
	C.IBV_WC_REM_ACCESS_ERR:     iwarp.StatusRemAccessErr,
	C.IBV_WC_REM_OP_ERR:         iwarp.StatusRemOpErr,
	C.IBV_WC_REM_INV_RD_REQ_ERR: iwarp.StatusRemInvReqErr,
	C.IBV_WC_FATAL_ERR:          iwarp.StatusFatalErr,
}

func statusOf(s C.uint32_t) iwarp.Status {
	if s == C.IBV_WC_SUCCESS {
		return iwarp.StatusSuccess
	}
	if st, ok := statuses[s]; ok {
		return st
	}
	return iwarp.StatusGeneralErr
}
