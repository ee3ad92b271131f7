package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

var errAborted = errors.New("iwarp: aborted by this side")

// sendSlot is a place of the SQ.
type sendSlot struct {
	wr     SendWR
	sgl    []SGE  // wr.SGL's copy; its array is kept for the next use
	inline []byte // the payload of an Inline request; kept likewise
	length uint64 // bytes
}

// recvSlot is a place of the RQ.
type recvSlot struct {
	id     uint64
	sgl    []SGE
	length uint64
}

// qp is a queue pair of the software device.
//
// Two goroutines serve a connected QP: rx (rx.go) reads the connection, places,
// delivers, and in the end takes everything down; tx (tx.go) executes the SQ. The
// sending side has one owner at a time: tx, or a poster whose small request went
// out at once. Lock order: qp.mu, then cq.mu or a region's gate.
type qp struct {
	// set once in CreateQP
	dev            *soft
	pd             *pd
	num            uint32
	sendCQ, recvCQ *cq
	maxSGE         int

	// set once in start
	conn net.Conn
	crc  bool

	sqHeld, rqHeld atomic.Int32 // places taken: posted, or completed and not yet polled
	stats          qpStats

	done chan struct{} // closed when all is flushed
	gone chan struct{} // closed when the goroutines have ended

	mu       sync.Mutex // guards what follows
	state    QPState
	sq       []sendSlot
	sqHead   uint64 // oldest request that is not complete
	sqTail   uint64 // next free place
	rq       []recvSlot
	rqHead   uint64
	rqTail   uint64
	txBusy   bool // the sending side has an owner
	gateOpen bool // FPDUs may leave (a responder waits for the first one)
	closing  bool // drain the SQ, then FIN
	stopping bool // send nothing more but term
	term     *rdmap.Terminate
	ended    bool  // cause is final
	cause    error // what Err returns
	txErr    error // why the sending side failed, where rx may know better
	badWR    int64 // SQ place of the request at fault, or -1
	badCode  Status

	tx txState // owned by the owner of the sending side
	rx rxState // owned by rx
}

type qpStats struct {
	sendsSent, sendsReceived   atomic.Uint64
	writesSent, writesReceived atomic.Uint64
	fpdusSent, fpdusReceived   atomic.Uint64
	bytesSent, bytesReceived   atomic.Uint64
}

func (p *pd) CreateQP(a QPInitAttr) (QP, error) {
	orDefault(&a.MaxSend, 64)
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	if a.MaxSend < 0 || a.MaxRecv < 0 || a.MaxSGE < 0 || a.MaxSend > maxQPWR || a.MaxRecv > maxQPWR || a.MaxSGE > maxSGE {
		return nil, fmt.Errorf("%w: QP of %d sends, %d receives, %d SGEs: at most %d, %d, %d",
			ErrLimit, a.MaxSend, a.MaxRecv, a.MaxSGE, maxQPWR, maxQPWR, maxSGE)
	}
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != p.dev || rcq.dev != p.dev {
		return nil, fmt.Errorf("%w: a QP needs a send and a receive CQ of its own device", ErrInvalid)
	}
	q := &qp{
		dev: p.dev, pd: p, num: p.dev.nextQP.Add(1),
		sendCQ: scq, recvCQ: rcq, maxSGE: a.MaxSGE,
		done: make(chan struct{}), gone: make(chan struct{}),
		sq: make([]sendSlot, a.MaxSend), rq: make([]recvSlot, a.MaxRecv),
		badWR: -1,
	}
	if err := scq.reserve(a.MaxSend, false); err != nil {
		return nil, err
	}
	if err := rcq.reserve(a.MaxRecv, true); err != nil {
		scq.unreserve(a.MaxSend, false)
		return nil, err
	}
	if err := p.dev.addQP(q); err != nil {
		scq.unreserve(a.MaxSend, false)
		rcq.unreserve(a.MaxRecv, true)
		return nil, err
	}
	p.qps.Add(1)
	return q, nil
}

func (q *qp) Num() uint32 { return q.num }

func (q *qp) State() QPState {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.state
}

func (q *qp) Done() <-chan struct{} { return q.done }

func (q *qp) Err() error {
	select {
	case <-q.done:
	default:
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.cause
}

func (q *qp) Stats() QPStats {
	q.mu.Lock()
	conn := q.conn
	q.mu.Unlock()
	s := &q.stats
	return QPStats{
		SendsSent: s.sendsSent.Load(), SendsReceived: s.sendsReceived.Load(),
		WritesSent: s.writesSent.Load(), WritesReceived: s.writesReceived.Load(),
		FPDUsSent: s.fpdusSent.Load(), FPDUsReceived: s.fpdusReceived.Load(),
		BytesSent: s.bytesSent.Load(), BytesReceived: s.bytesReceived.Load(),
		Unacked: unacked(conn),
	}
}

// begin binds the QP to a connection in start-up.
func (q *qp) begin() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.state != StateIdle {
		return fmt.Errorf("%w: QP %d is in state %s, a connection needs IDLE", ErrState, q.num, q.state)
	}
	q.state = StateRTR
	return nil
}

// attach makes conn the one that Abort closes. It fails if Abort came first.
func (q *qp) attach(conn net.Conn) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return q.cause
	}
	q.conn = conn
	return nil
}

// startFailed ends a QP whose start-up failed before start.
func (q *qp) startFailed(err error) {
	q.mu.Lock()
	if !q.ended {
		q.ended, q.cause = true, err
	}
	q.flushLocked()
	q.mu.Unlock()
	close(q.done)
	close(q.gone)
}

// startParam is what start-up agreed on.
type startParam struct {
	crc       bool
	sender    *rdmap.Sender
	leftover  []byte // bytes of the peer's FPDUs that came with its start-up frame
	gateOpen  bool
	responder bool // of an enhanced Request
}

// start begins full operation on the attached connection.
func (q *qp) start(p startParam) error {
	q.mu.Lock()
	if q.ended {
		err := q.cause
		q.mu.Unlock()
		return err
	}
	q.crc = p.crc
	q.tx.init(q, p.sender)
	q.rx.init(q, p.crc, p.responder)
	q.gateOpen = p.gateOpen
	q.state = StateRTS
	q.mu.Unlock()
	go q.txLoop()
	go q.rxLoop(p.leftover)
	return nil
}

// kickLocked gives the sending side to tx if nobody owns it; who owns it will
// look at the QP's state before it lets go.
func (q *qp) kickLocked() {
	if !q.txBusy && q.tx.wake != nil {
		q.txBusy = true
		q.tx.wake <- struct{}{}
	}
}

func (q *qp) Modify(QPState) error { return ErrUnsupported }

func (q *qp) Disconnect(ctx context.Context) error {
	q.mu.Lock()
	switch q.state {
	case StateRTS:
		q.state = StateClosing
		q.closing = true
		q.kickLocked()
		q.recall() // rx must see the peer's FIN
	case StateClosing, StateTerminate, StateError:
	default:
		state := q.state
		q.mu.Unlock()
		return fmt.Errorf("%w: Disconnect in state %s", ErrState, state)
	}
	q.mu.Unlock()
	select {
	case <-q.done:
		return q.Err()
	case <-ctx.Done():
		q.Abort()
		<-q.done
		return ctx.Err()
	}
}

func (q *qp) Abort() {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch q.state {
	case StateIdle:
		q.ended, q.cause = true, errAborted
		q.flushLocked()
		close(q.done)
		close(q.gone)
		return
	case StateRTR, StateRTS, StateClosing:
		if !q.ended {
			q.ended, q.cause = true, errAborted
		}
		q.stopping = true
	}
	if q.conn != nil {
		abortConn(q.conn)
		q.recall()
	}
}

// abortConn closes so that the peer sees a reset rather than an orderly end.
func abortConn(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0) // only the kind of close is at stake
	}
	_ = c.Close() // already closed is as good
}

func (q *qp) Destroy() error {
	q.mu.Lock()
	live := q.state != StateError && q.state != StateTerminate
	q.mu.Unlock()
	if live {
		q.Abort()
	}
	<-q.gone
	q.dev.mu.Lock()
	_, mine := q.dev.qps[q]
	delete(q.dev.qps, q)
	q.dev.mu.Unlock()
	if !mine {
		return nil // destroyed before
	}
	q.sendCQ.remove(q)
	q.recvCQ.remove(q)
	q.sendCQ.unreserve(len(q.sq), false)
	q.recvCQ.unreserve(len(q.rq), true)
	q.pd.qps.Add(-1)
	return nil
}

// terminateError is what Err returns for t.
func terminateError(t *rdmap.Terminate, fromPeer bool, detail string) error {
	return &TerminateError{FromPeer: fromPeer, Layer: t.Layer, Type: t.Type, Code: t.Code, Detail: detail}
}

// rawConn returns the means of a write that does not block, or nil.
func rawConn(c net.Conn) syscall.RawConn {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

var batches = sync.Pool{New: func() any { return mpa.NewBatch() }}
