package iwarp

import (
	"bytes"
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
	sgl    []SGE  // copy of wr.SGL; its array is kept for the next use
	inline []byte // the payload of an Inline request; kept likewise
	length uint64 // bytes
	mem    *mr    // of OpFastReg and OpBindMW: what the STag will name

	unanswered bool // an RDMA Read or atomic whose response has not arrived
}

// recvSlot is a place of the RQ.
type recvSlot struct {
	id     uint64
	sgl    []SGE
	length uint64
}

// qp is a queue pair of the software device.
//
// Two goroutines serve a connected QP: rx (rx.go) reads the connection, places, delivers, and
// finally takes everything down; tx (tx.go) executes the SQ. The sending side has one owner at
// a time: tx, or a poster whose small request went out at once. Lock order: qp.mu, then cq.mu
// or a region's gate.
type qp struct {
	// set once in CreateQP
	dev            *soft
	pd             *pd
	num            uint32
	sendCQ, recvCQ *cq
	srq            *srq // nil: rq is the QP's own
	maxSGE         int
	maxSend        int // requests that it may hold
	maxRecv        int // receives that it may hold: posted or, with an SRQ, taken

	sqHeld, rqHeld atomic.Int32       // places taken: posted, or completed and not yet polled
	life           atomic.Uint32      // streams that it has carried before
	lent           atomic.Pointer[cq] // to whose waiters the receiving side was lent last; nil: never
	stats          qpStats

	mu        sync.Mutex // guards the two queues, and stream's second half
	sq        []sendSlot // made by the first start: most peers in a long list that is dialled never answer
	rq        []recvSlot // made for the first receive
	destroyed bool

	stream
}

// stream holds the state of the one stream that a QP carries, or will carry. A reset gives the
// QP a new one.
type stream struct {
	// set once in start
	conn net.Conn
	crc  bool
	ord  uint64 // Reads of ours that may be outstanding
	ird  uint64 // Reads of the peer's that are held

	extensions bool // RFC 7306

	// guarded by qp.mu
	done     chan struct{} // closed when all is flushed
	gone     chan struct{} // closed when the goroutines have ended
	state    QPState
	sqHead   uint64 // oldest request that is not complete
	sqSent   uint64 // first one not yet handed to TCP
	sqTail   uint64 // next free place
	rqHead   uint64
	rqTail   uint64
	orq      []outRead // our requests that the peer has not answered; made for the first one
	orqHead  uint64
	orqTail  uint64
	irq      []inRead // the peer's requests; made for the first one
	irqHead  uint64   // oldest whose response is not yet on its way
	irqTail  uint64
	sources  []*mr     // tx.sources, during a write that may block
	hurried  bool      // that write has less time than others
	txBusy   bool      // the sending side has an owner
	gateOpen bool      // FPDUs may leave (a responder waits for the first one)
	sends    sendPhase // what may still be sent
	term     *rdmap.Terminate

	answerFirst bool  // before term: the requests that came before the one at fault
	ended       bool  // cause is final
	cause       error // what Err returns
	txErr       error // why the sending side failed; rx may know better
	badWR       int64 // SQ place of the request at fault, or -1
	badCode     Status
	peerFIN     bool // the peer was the first to close
	byUser      bool // the application asked for the Terminate

	tx txState // owned by the owner of the sending side
	rx rxState // owned by rx
}

func newStream() stream {
	return stream{done: make(chan struct{}), gone: make(chan struct{}), badWR: -1}
}

type qpStats struct {
	sendsSent, sendsReceived   atomic.Uint64
	writesSent, writesReceived atomic.Uint64
	fpdusSent, fpdusReceived   atomic.Uint64
	bytesSent, bytesReceived   atomic.Uint64
	readsSent, readsReceived   atomic.Uint64
	immsSent, immsReceived     atomic.Uint64

	atomicsSent, atomicsReceived atomic.Uint64
}

func (p *pd) CreateQP(a QPInitAttr) (QP, error) {
	orDefault(&a.MaxSend, 64)
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	c := &p.dev.cfg
	if a.MaxSend < 0 || a.MaxRecv < 0 || a.MaxSGE < 0 {
		return nil, fmt.Errorf("%w: QP of %d sends, %d receives, %d SGEs", ErrInvalid, a.MaxSend, a.MaxRecv, a.MaxSGE)
	}
	if a.MaxSend > c.MaxQPWR || a.MaxRecv > c.MaxQPWR || a.MaxSGE > c.MaxSGE {
		return nil, fmt.Errorf("%w: QP of %d sends, %d receives, %d SGEs: at most %d, %d (MaxQPWR), %d (MaxSGE)",
			ErrLimit, a.MaxSend, a.MaxRecv, a.MaxSGE, c.MaxQPWR, c.MaxQPWR, c.MaxSGE)
	}
	scq, ok1 := a.SendCQ.(*cq)
	rcq, ok2 := a.RecvCQ.(*cq)
	if !ok1 || !ok2 || scq.dev != p.dev || rcq.dev != p.dev {
		return nil, fmt.Errorf("%w: a QP needs a send and a receive CQ of its own device", ErrInvalid)
	}
	q := &qp{
		dev: p.dev, pd: p, num: p.dev.nextQP.Add(1),
		sendCQ: scq, recvCQ: rcq, maxSGE: a.MaxSGE, maxSend: a.MaxSend, maxRecv: a.MaxRecv,
		stream: newStream(),
	}
	if a.SRQ != nil {
		s, ok := a.SRQ.(*srq)
		if !ok || s.pd != p {
			return nil, fmt.Errorf("%w: the SRQ is of another protection domain", ErrInvalid)
		}
		q.srq = s
	}
	if err := q.reserve(a.Overcommit); err != nil {
		return nil, err
	}
	return q, nil
}

// reserve takes a place for q in everything that it uses, or in nothing.
func (q *qp) reserve(overcommit bool) (err error) {
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range undo {
				f()
			}
		}
	}()
	if err = q.pd.enter(); err != nil {
		return err
	}
	undo = append(undo, q.pd.leave)
	if q.srq != nil {
		if err = q.srq.use(); err != nil {
			return err
		}
		undo = append(undo, q.srq.unuse)
	}
	if err = q.sendCQ.reserve(q, q.maxSend, false, overcommit); err != nil {
		return err
	}
	undo = append(undo, func() { q.sendCQ.unreserve(q, q.maxSend, false) })
	if err = q.recvCQ.reserve(q, q.maxRecv, true, overcommit); err != nil {
		return err
	}
	undo = append(undo, func() { q.recvCQ.unreserve(q, q.maxRecv, true) })
	return q.dev.addQP(q)
}

func (q *qp) Num() uint32 { return q.num }

func (q *qp) State() QPState {
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
	select {
	case <-q.done:
		return q.cause
	default:
		return nil
	}
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
		ReadsSent: s.readsSent.Load(), ReadsReceived: s.readsReceived.Load(),
		AtomicsSent: s.atomicsSent.Load(), AtomicsReceived: s.atomicsReceived.Load(),
		ImmsSent: s.immsSent.Load(), ImmsReceived: s.immsReceived.Load(),
		Unacked: unacked(conn),
		Path:    pathStats(conn),
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

// attach makes conn the connection that Abort closes. It fails if Abort came first.
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
	q.finishLocked()
	close(q.gone)
	q.mu.Unlock()
}

// finishLocked flushes the queues and marks the QP as ended. Its cause is final.
func (q *qp) finishLocked() {
	started := q.state != StateRTR // otherwise Dial or Accept returns the cause
	q.flushLocked()
	close(q.done)
	if started {
		q.reportLocked()
	}
	if q.srq != nil && !q.destroyed {
		q.dev.emit(AsyncEvent{Kind: EventLastWQE, QP: q, SRQ: q.srq, Err: q.cause})
	}
}

// startParam holds the outcome of start-up.
type startParam struct {
	link       *link
	leftover   []byte // bytes of the peer's FPDUs that came with its start-up frame
	gateOpen   bool
	responder  bool
	enhanced   bool    // a responder, to an enhanced Request
	rtr        mpa.RTR // a responder's: the form agreed on
	rtrSent    mpa.RTR // an initiator's: the form sent
	ord, ird   uint16
	extensions bool // RFC 7306
}

// start begins full operation on the attached connection.
func (q *qp) start(p startParam) error {
	q.mu.Lock()
	if q.ended {
		err := q.cause
		q.mu.Unlock()
		return err
	}
	if q.sq == nil {
		q.sq = make([]sendSlot, q.maxSend)
	}
	q.crc, q.tx.marks = p.link.crc, p.link.marks
	q.tx.path.wish, q.tx.path.strict = p.link.wish, p.link.strict
	q.ord, q.ird, q.extensions = uint64(p.ord), uint64(p.ird), p.extensions
	if p.rtrSent == mpa.RTRRead {
		q.newRequest(outRead{op: rdmap.OpReadResponse, sq: nobody, stag: 1})
	}
	q.tx.init(q, p.link.sender)
	q.rx.init(q, p.link.crc, p.enhanced)
	q.rx.r.Extensions = p.extensions
	if p.link.marksIn {
		q.rx.r.ExpectMarkers()
	}
	if p.responder {
		q.rx.r.ExpectRTR(p.rtr == mpa.RTRSend)
	}
	q.gateOpen = p.gateOpen
	q.state = StateRTS
	q.mu.Unlock()
	go q.txLoop()
	go q.rxLoop(p.leftover)
	return nil
}

// kickLocked gives the sending side to tx if it has no owner. An owner checks the QP's state
// before it lets go.
func (q *qp) kickLocked() {
	if !q.txBusy && q.tx.wake != nil {
		q.txBusy = true
		q.tx.wake <- struct{}{}
	}
}

func (q *qp) Disconnect(ctx context.Context) error {
	q.mu.Lock()
	switch q.state {
	case StateRTS:
		q.closeLocked()
	case StateClosing, StateTerminate, StateError:
	default:
		state := q.state
		q.mu.Unlock()
		return fmt.Errorf("%w: Disconnect in state %s", ErrState, state)
	}
	done := q.done
	q.mu.Unlock()
	select {
	case <-done:
		return q.Err()
	case <-ctx.Done():
		q.Abort()
		<-done
		return ctx.Err()
	}
}

// closeLocked begins a graceful close of a QP in state RTS.
func (q *qp) closeLocked() {
	q.state = StateClosing
	q.onlyLocked(sendRest)
	if q.gateOpen || q.sqHead == q.sqTail { // otherwise work and FIN wait for the initiator
		q.kickLocked()
	}
	q.recall() // rx must see the peer's FIN
}

func (q *qp) Abort() {
	q.mu.Lock()
	q.abortLocked(errAborted)
	q.mu.Unlock()
}

// fail is Abort with another cause.
func (q *qp) fail(cause error) {
	q.mu.Lock()
	q.abortLocked(cause)
	q.mu.Unlock()
}

// abortLocked ends the QP with cause, unless it has a cause already.
func (q *qp) abortLocked(cause error) {
	switch q.state {
	case StateIdle:
		q.ended, q.cause = true, cause
		q.finishLocked()
		close(q.gone)
		return
	case StateRTR, StateRTS, StateClosing:
		if !q.ended {
			q.ended, q.cause = true, cause
		}
		q.onlyLocked(sendLast)
	}
	if q.conn != nil {
		abortConn(q.conn)
		q.recall()
	}
}

// abortConn closes so that the peer sees a reset rather than an orderly end.
func abortConn(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0) // only the kind of close depends on it
	}
	_ = c.Close() // already closed is as good
}

func (q *qp) Destroy() error {
	q.mu.Lock()
	first := !q.destroyed
	q.destroyed = true // prevents a reset while we wait
	if q.state != StateError && q.state != StateTerminate {
		q.abortLocked(errAborted)
	}
	gone := q.gone
	q.mu.Unlock()
	<-gone
	if !first {
		return nil
	}
	q.dev.mu.Lock()
	delete(q.dev.qps, q)
	q.dev.mu.Unlock()
	dropped := q.sendCQ.remove(q)
	if q.recvCQ != q.sendCQ {
		dropped += q.recvCQ.remove(q)
	}
	if q.srq != nil {
		q.srq.release(dropped)
		q.srq.unuse()
	}
	q.sendCQ.unreserve(q, q.maxSend, false)
	q.recvCQ.unreserve(q, q.maxRecv, true)
	q.pd.leave()
	return nil
}

// terminateError returns the error of Err for our own Terminate t.
func terminateError(t *rdmap.Terminate, detail string) error {
	return &TerminateError{Layer: t.Layer, Type: t.Type, Code: t.Code, Detail: detail,
		DDP: bytes.Clone(t.DDP), ReadRequest: bytes.Clone(t.ReadRequest)}
}

// peerError returns the error of Err for the peer's Terminate.
func peerError(pt *rdmap.PeerTerminate) error {
	return &TerminateError{FromPeer: true, Layer: pt.Layer, Type: pt.Type, Code: pt.Code, Detail: pt.Meaning(),
		DDP: pt.DDP, ReadRequest: pt.ReadRequest, Raw: pt.Raw, PeerLayout: pt.PeerLayout}
}

// rawConn returns what non-blocking writes need, or nil.
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
