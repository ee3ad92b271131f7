//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// qp is a queue pair. The device's own object is destroyed when the stream ends: after that nothing
// touches the program's memory any more, and what the device has not completed by then is completed
// here.
type qp struct {
	// set once in CreateQP
	dev            *device
	pd             *pd
	handle         uintptr
	sendCQ, recvCQ *cq
	maxSGE         int

	sqHeld, rqHeld atomic.Int32 // places taken, until the WC is polled
	stats          qpStats

	mu       sync.Mutex // guards what follows
	c        *C.struct_ibv_qp
	num      uint32
	wrs      *C.struct_shim_wr // SHIM_BATCH of them, each with
	sges     *C.struct_ibv_sge // maxSGE elements and
	inline   unsafe.Pointer    // dev.inline bytes
	staged   int               // requests in wrs that the device does not have yet
	sq       []sendSlot        // outstanding from sqHead to sqTail, at seq % len
	rq       []recvSlot
	failed   bool // a request has failed: those after it are flushed
	sqHead   uint32
	sqTail   uint32
	rqHead   uint32
	rqTail   uint32
	state    iwarp.QPState
	id       *cmID
	ord      int // the device delays further Reads beyond this number; 0 = it takes none
	ended    bool
	cause    error
	emptied  chan struct{} // made by Disconnect; closed when nothing is outstanding on the SQ
	done     chan struct{}
	gone     chan struct{} // the same, or it was never connected
	disposed bool
}

// sendSlot is an outstanding send request.
type sendSlot struct {
	id     uint64
	op     iwarp.Opcode
	silent bool
	length uint64
	bounce bounce
	over   bool // the device has completed it, with status
	status iwarp.Status
}

type recvSlot struct{ id uint64 }

type qpStats struct {
	sendsSent, sendsReceived, writesSent, readsSent, bytesSent, bytesReceived atomic.Uint64
}

// A request's id at the device: QP, kind, number.
const (
	wrRecv = 1 << 31
	wrSeq  = wrRecv - 1
)

var (
	errAborted = errors.New("ibverbs: connection aborted by this side")
	errLost    = errors.New("ibverbs: the connection ended with requests outstanding")
)

func orDefault(v *int, d int) {
	if *v == 0 {
		*v = d
	}
}

func (p *pd) CreateQP(a iwarp.QPInitAttr) (iwarp.QP, error) {
	orDefault(&a.MaxSend, 64)
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	at := &p.dev.attr
	switch {
	case a.SRQ != nil:
		return nil, fmt.Errorf("%w: shared receive queues", iwarp.ErrUnsupported)
	case a.MaxSend < 0 || a.MaxSend > at.MaxQPWR || a.MaxRecv < 0 || a.MaxRecv > at.MaxQPWR:
		return nil, fmt.Errorf("%w: queues of %d and %d requests: at most %d", iwarp.ErrInvalid, a.MaxSend, a.MaxRecv, at.MaxQPWR)
	case a.MaxSGE < 0 || a.MaxSGE > at.MaxSGE:
		return nil, fmt.Errorf("%w: %d SGEs: at most %d", iwarp.ErrInvalid, a.MaxSGE, at.MaxSGE)
	}
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != p.dev || rcq.dev != p.dev {
		return nil, fmt.Errorf("%w: a QP needs two completion queues of its own device", iwarp.ErrInvalid)
	}
	q := &qp{
		dev: p.dev, pd: p, sendCQ: scq, recvCQ: rcq, maxSGE: a.MaxSGE,
		sq: make([]sendSlot, a.MaxSend), rq: make([]recvSlot, a.MaxRecv),
		done: make(chan struct{}), gone: make(chan struct{}),
	}
	if err := p.use(1); err != nil {
		return nil, err
	}
	q.handle = newHandle(q)
	undo := func() { dropHandle(q.handle); _ = p.use(-1) }
	if err := scq.reserve(q, a.MaxSend, a.Overcommit); err != nil {
		undo()
		return nil, err
	}
	if err := rcq.reserve(q, a.MaxRecv, a.Overcommit); err != nil {
		scq.unreserve(q, a.MaxSend)
		undo()
		return nil, err
	}
	q.mu.Lock()
	err := q.makeLocked()
	q.mu.Unlock()
	if err == nil {
		q.dev.mu.Lock()
		if q.dev.closed {
			err = iwarp.ErrClosed
		} else {
			q.dev.qps[q] = struct{}{}
		}
		q.dev.mu.Unlock()
	}
	if err != nil {
		q.freeC()
		scq.unreserve(q, a.MaxSend)
		rcq.unreserve(q, a.MaxRecv)
		undo()
		return nil, err
	}
	return q, nil
}

// makeLocked creates the device's QP. It has one place more than ours: siw completes a request before
// it frees its place.
func (q *qp) makeLocked() error {
	c, err := C.shim_create_qp(q.pd.c, C.uintptr_t(q.handle), q.sendCQ.c, q.recvCQ.c,
		C.int(len(q.sq)+1), C.int(len(q.rq)+1), C.int(q.maxSGE), C.int(q.dev.inline))
	if c == nil {
		return fmt.Errorf("ibverbs: queue pair on %s: %w", q.dev.name, why(err))
	}
	q.c, q.num = c, uint32(c.qp_num)
	if q.wrs == nil {
		q.wrs = (*C.struct_shim_wr)(C.calloc(C.SHIM_BATCH, C.sizeof_struct_shim_wr))
		q.sges = (*C.struct_ibv_sge)(C.calloc(C.size_t(C.SHIM_BATCH*q.maxSGE), C.sizeof_struct_ibv_sge))
		q.inline = C.malloc(C.size_t(C.SHIM_BATCH * max(q.dev.inline, 1)))
	}
	return nil
}

// freeC frees C memory once nothing is posted any more.
func (q *qp) freeC() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.c != nil {
		C.ibv_destroy_qp(q.c)
		q.c = nil
	}
	C.free(unsafe.Pointer(q.wrs))
	C.free(unsafe.Pointer(q.sges))
	C.free(q.inline)
	q.wrs, q.sges, q.inline = nil, nil, nil
}

func (q *qp) Num() uint32 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.num
}

func (q *qp) State() iwarp.QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

func (q *qp) Done() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.done
}

func (q *qp) Err() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}

func (q *qp) Stats() iwarp.QPStats {
	s := &q.stats
	n := iwarp.QPStats{
		SendsSent: s.sendsSent.Load(), SendsReceived: s.sendsReceived.Load(),
		WritesSent: s.writesSent.Load(), ReadsSent: s.readsSent.Load(),
		BytesSent: s.bytesSent.Load(), BytesReceived: s.bytesReceived.Load(),
	}
	n.FPDUsSent = n.SendsSent + n.WritesSent + n.ReadsSent
	n.FPDUsReceived = n.SendsReceived + n.ReadsSent // a Read has an answer
	return n
}

// begin binds the QP to a connection in start-up.
func (q *qp) begin(id *cmID) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != iwarp.StateIdle {
		return fmt.Errorf("%w: the QP is in state %s, a connection needs IDLE", iwarp.ErrState, q.state)
	}
	q.state = iwarp.StateRTR
	q.id = id
	return nil
}

// established begins full operation with at most ord Reads outstanding. It fails if the stream has
// already ended.
func (q *qp) established(ord int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		if q.cause == nil {
			return errors.New("ibverbs: the peer closed the connection at once")
		}
		return q.cause
	}
	q.state, q.ord = iwarp.StateRTS, ord
	return nil
}

// end ends the stream with an event of kind; cause nil is a graceful end by the peer. The first call
// counts.
func (q *qp) end(kind iwarp.EventKind, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endLocked(kind, cause)
}

func (q *qp) endLocked(kind iwarp.EventKind, cause error) {
	if q.ended {
		return
	}
	q.ended, q.cause = true, cause
	if q.state != iwarp.StateIdle {
		go q.finish(kind)
		return
	}
	go q.finish(noEvent)
}

const noEvent = iwarp.EventKind(255)

// finish takes the stream down. Nothing else destroys the device's QP.
func (q *qp) finish(kind iwarp.EventKind) {
	q.mu.Lock()
	id, asked := q.id, q.state == iwarp.StateClosing
	_ = q.flushStagedLocked()
	C.shim_modify(q.c, C.IBV_QPS_ERR) // flushes; refused by a QP that is in ERROR already
	q.mu.Unlock()
	if id != nil {
		C.shim_disconnect(id.c) // already disconnected is as good
	}
	q.settle()
	unlock := q.lockCQs()
	q.mu.Lock()
	if id != nil {
		C.shim_detach(id.c)
	}
	C.ibv_destroy_qp(q.c) // from here on the device does not use our memory
	q.c = nil
	lost := q.sqHead != q.sqTail
	q.flushLocked()
	if lost && q.cause == nil {
		q.cause = errLost
	}
	q.state = iwarp.StateError
	cause := q.cause
	if q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
	done, gone := q.done, q.gone
	q.mu.Unlock()
	unlock()
	if id != nil {
		id.destroy()
	}
	switch {
	case kind == noEvent || asked || cause == errAborted:
	case cause == nil:
		q.dev.emit(iwarp.AsyncEvent{Kind: iwarp.EventPeerClosed, QP: q})
	default:
		q.dev.emit(iwarp.AsyncEvent{Kind: kind, QP: q, Err: cause})
	}
	close(done)
	close(gone)
}

// flushTime bounds the wait for an adapter that flushes its queues by itself; siw has flushed them
// when it has changed the QP's state.
const flushTime = 50 * time.Millisecond

// settle reaps until the device has completed everything, or has nothing more to
// complete.
func (q *qp) settle() {
	wait := flushTime
	for {
		q.sendCQ.reap()
		q.recvCQ.reap()
		q.mu.Lock()
		empty := q.sqHead == q.sqTail && q.rqHead == q.rqTail
		q.mu.Unlock()
		if empty || q.dev.siw || wait <= 0 {
			return
		}
		time.Sleep(time.Millisecond)
		wait -= time.Millisecond
	}
}

// lockCQs locks the QP's completion queues, in the order of their handles, after reaping everything.
func (q *qp) lockCQs() (unlock func()) {
	a, b := q.sendCQ, q.recvCQ
	if a == b {
		a.mu.Lock()
		a.reapLocked()
		return a.mu.Unlock
	}
	if a.handle > b.handle {
		a, b = b, a
	}
	a.mu.Lock()
	b.mu.Lock()
	a.reapLocked()
	b.reapLocked()
	return func() { b.mu.Unlock(); a.mu.Unlock() }
}

// flushLocked completes what the device has not completed, in posting order.
func (q *qp) flushLocked() {
	for q.sqHead != q.sqTail {
		s := q.popSend()
		if s.status == iwarp.StatusSuccess { // not done, or after one that is not
			s.status = iwarp.StatusWRFlushErr
		}
		q.sendCQ.pushLocked(iwarp.WC{ID: s.id, QP: q, Op: s.op, Status: s.status})
	}
	for ; q.rqHead != q.rqTail; q.rqHead++ {
		q.recvCQ.pushLocked(iwarp.WC{ID: q.rq[q.rqHead%uint32(len(q.rq))].id, QP: q, Op: iwarp.OpRecv, Status: iwarp.StatusWRFlushErr})
	}
}

func (q *qp) Modify(s iwarp.QPState) error {
	q.mu.Lock()
	switch {
	case q.state == iwarp.StateRTS && s == iwarp.StateClosing:
		if q.sqHead != q.sqTail || q.staged > 0 {
			q.mu.Unlock()
			q.Abort()
			return nil
		}
		emptied := q.closingLocked() // at once: nothing may be posted after this
		q.mu.Unlock()
		go q.drain(context.Background(), emptied) // Done and Err report the outcome
		return nil
	case (q.state == iwarp.StateRTS || q.state == iwarp.StateIdle) && s == iwarp.StateError:
		q.mu.Unlock()
		q.Abort()
		return nil
	case q.state == iwarp.StateError && s == iwarp.StateIdle:
		defer q.mu.Unlock()
		if q.sqHeld.Load() != 0 || q.rqHeld.Load() != 0 {
			return fmt.Errorf("%w: completions of the last connection are not polled yet", iwarp.ErrState)
		}
		if err := q.makeLocked(); err != nil {
			return err
		}
		q.state, q.ended, q.cause, q.id = iwarp.StateIdle, false, nil, nil
		q.done, q.gone = make(chan struct{}), make(chan struct{})
		return nil
	case q.state == iwarp.StateRTS && s == iwarp.StateTerminate:
		q.mu.Unlock()
		return fmt.Errorf("%w: a Terminate on demand", iwarp.ErrUnsupported)
	}
	defer q.mu.Unlock()
	return fmt.Errorf("%w: from %s to %s", iwarp.ErrState, q.state, s)
}

func (q *qp) Disconnect(ctx context.Context) error {
	q.mu.Lock()
	done := q.done
	switch q.state {
	case iwarp.StateRTS:
		emptied := q.closingLocked()
		q.mu.Unlock()
		q.drain(ctx, emptied)
	case iwarp.StateClosing, iwarp.StateTerminate, iwarp.StateError:
		q.mu.Unlock()
	default:
		state := q.state
		q.mu.Unlock()
		return fmt.Errorf("%w: Disconnect in state %s", iwarp.ErrState, state)
	}
	select {
	case <-done:
		return q.Err()
	case <-ctx.Done():
		q.Abort()
		<-done
		return ctx.Err()
	}
}

// closingLocked refuses further requests; emptied is closed when the outstanding ones have
// completed.
func (q *qp) closingLocked() (emptied chan struct{}) {
	q.state = iwarp.StateClosing
	err := q.flushStagedLocked()
	emptied = make(chan struct{})
	if q.sqHead == q.sqTail || err != nil {
		close(emptied)
	} else {
		q.emptied = emptied
	}
	return emptied
}

// drain waits until the SQ is empty and asks the device to close.
func (q *qp) drain(ctx context.Context, emptied chan struct{}) {
	q.sendCQ.watch()
	defer q.sendCQ.unwatch()
	select {
	case <-emptied:
	case <-ctx.Done():
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	// finish destroys the id, and runs after ended is set.
	if !q.ended && C.shim_disconnect(q.id.c) != 0 {
		q.endLocked(iwarp.EventQPFatal, nil) // it has just ended by itself
	}
}

func (q *qp) Abort() { q.end(noEvent, errAborted) }

func (q *qp) Destroy() error {
	q.mu.Lock()
	if q.disposed {
		q.mu.Unlock()
		return nil
	}
	q.disposed = true
	q.endLocked(noEvent, errAborted)
	gone := q.gone
	q.mu.Unlock()
	<-gone
	q.freeC()
	q.sendCQ.unreserve(q, len(q.sq))
	q.recvCQ.unreserve(q, len(q.rq))
	dropHandle(q.handle)
	q.dev.mu.Lock()
	delete(q.dev.qps, q)
	q.dev.mu.Unlock()
	_ = q.pd.use(-1) // never fails for a decrement
	return nil
}
