package iwarp

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// rxState is the receiving side of a QP, owned by rxLoop or by the Wait that it was lent to. The
// protocol engine places into it and delivers to it.
type rxState struct {
	q     *qp
	r     *rdmap.Receiver
	first chan struct{} // closed when the first valid FPDU was found
	open  bool          // first is closed
	cur   *recvSlot     // receive in progress
	taken recvSlot      // cur, if it came from an SRQ
	out   *outRead      // Read whose response is in progress
	last  *mr           // region of the last Write: most Writes go to the same one
	small bool          // the last read was a short one
	woke  *cq           // where a completion met a waiter
	work  bool          // something arrived that the sending side may have waited for
	final bool          // the last look for a peer's last message is under way

	streak int         // lone messages in a row, or negative after a bad loan
	toward *cq         // where those of the streak met their waiter
	watch  *time.Timer // of a loan: see lend
	back   chan error  // cap 1: the loan is over

	read    func(fd uintptr) bool // one read of receiveNow, with its result in the next two
	readN   int
	readErr error

	// The counts of r's counters that stats already includes.
	fpdus, sends, writes, reads, atomics, imms, bytes uint64
}

func (x *rxState) init(q *qp, crc, enhancedResponder bool) {
	x.q = q
	x.first = make(chan struct{})
	x.initRead()
	x.r = rdmap.NewReceiver(x, crc, enhancedResponder)
}

// Place implements rdmap.Consumer.
func (x *rxState) Place(stag STag, to uint64, p []byte) rdmap.Fault {
	m := x.last
	if m == nil || m.stag != stag || m.remote.isShut() {
		m = x.q.dev.mrs.lookup(stag)
		x.last = m
	}
	dst, f := m.remoteSpan(x.q, RemoteWrite, to, uint64(len(p)))
	if f != rdmap.FaultNone {
		return f
	}
	copy(dst, p)
	m.remote.leave()
	return rdmap.FaultNone
}

// NextReceive implements rdmap.Consumer.
func (x *rxState) NextReceive() (room uint64, ok bool) {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.srq != nil {
		return x.nextShared()
	}
	if q.rqHead == q.rqTail {
		return 0, false
	}
	x.cur = &q.rq[q.rqHead%uint64(len(q.rq))]
	return x.cur.length, true
}

// PlaceReceive implements rdmap.Consumer.
func (x *rxState) PlaceReceive(mo uint32, p []byte) rdmap.Fault {
	return x.scatter(x.cur.sgl, uint64(mo), p)
}

// scatter copies p into sgl, starting skip bytes into it.
func (x *rxState) scatter(sgl []SGE, skip uint64, p []byte) rdmap.Fault {
	for i := range sgl {
		s := &sgl[i]
		if skip >= uint64(s.Length) {
			skip -= uint64(s.Length)
			continue
		}
		m, dst, ok := x.q.dev.localSpan(x.q.pd, s, LocalWrite)
		if !ok {
			return rdmap.FaultLocal
		}
		n := copy(dst[skip:], p)
		m.local.leave()
		p, skip = p[n:], 0
		if len(p) == 0 {
			break
		}
	}
	return rdmap.FaultNone
}

// Invalidate implements rdmap.Consumer.
func (x *rxState) Invalidate(stag STag) rdmap.Fault { return x.q.remoteInvalidate(stag) }

// Deliver implements rdmap.Consumer.
func (x *rxState) Deliver(d rdmap.Delivery) {
	wc := WC{
		Op: OpRecv, Status: StatusSuccess, ByteLen: d.Len, Solicited: d.Op.Solicited(),
		Inv: d.Op.Invalidates(), InvSTag: d.InvSTag,
		HasImm: d.Op == rdmap.OpImmediate || d.Op == rdmap.OpImmediateSE, Imm: d.Imm,
	}
	if d.AfterWrite {
		wc.Op = OpRecvWriteImm
	}
	x.complete(wc)
}

// FailReceive implements rdmap.Consumer.
func (x *rxState) FailReceive(f rdmap.ReceiveFault) {
	status := StatusLocProtErr
	switch f {
	case rdmap.ReceiveTooLong:
		status = StatusLocLenErr
	case rdmap.ReceiveInvalidate:
		status = StatusRemInvReqErr
	}
	x.complete(WC{Op: OpRecv, Status: status, Solicited: true})
}

// complete ends the receive in progress.
func (x *rxState) complete(wc WC) {
	q := x.q
	q.mu.Lock()
	defer q.mu.Unlock()
	wc.ID, wc.QP = x.cur.id, q
	x.cur = nil
	if q.srq == nil {
		q.rqHead++
	}
	if q.recvCQ.push(&wc, q) {
		x.woke = q.recvCQ
	}
}

// rxLoop reads the connection until the stream ends, and then takes the QP down.
func (q *qp) rxLoop(leftover []byte) {
	defer close(q.gone)
	q.takeDown(q.receive(leftover))
	q.rx.r.Release()
	q.rx.last = nil
}

// receive feeds the engine. It returns the reason for its end: io.EOF only where a stream may
// end.
func (q *qp) receive(leftover []byte) error {
	x := &q.rx
	for len(leftover) > 0 {
		n := copy(x.r.Want(), leftover)
		leftover = leftover[n:]
		if err := q.filled(n); err != nil {
			return err
		}
	}
	for {
		x.woke = nil
		if err := q.receiveOnce(); err != nil {
			return err
		}
		if x.woke == nil || !x.small {
			x.streak = min(x.streak, 0)
			continue
		}
		if x.woke != x.toward {
			x.toward, x.streak = x.woke, min(x.streak, 0)
		}
		if x.streak++; x.streak >= lendAfter && q.tx.raw != nil && x.r.Boundary() {
			if err := q.lend(x.woke); err != nil {
				return err
			}
		}
	}
}

// advance adds to a counter what a counter of the engine has grown by since it was last seen. Most
// have not grown, and an atomic addition of zero would cost just as much.
func advance(to *atomic.Uint64, seen *uint64, now uint64) {
	if now != *seen {
		to.Add(now - *seen)
		*seen = now
	}
}

// filled gives n new bytes to the engine, updates the counters, and opens the gate of a responder
// after the first valid FPDU.
func (q *qp) filled(n int) error {
	x := &q.rx
	err := x.r.Filled(n)
	r := x.r
	if d := r.FPDUs() - x.fpdus; d > 0 {
		q.stats.fpdusReceived.Add(d)
		q.dev.fpdusReceived.Add(d)
		x.fpdus += d
	}
	q.dev.bytesReceived.Add(uint64(n))
	advance(&q.stats.sendsReceived, &x.sends, r.Sends)
	advance(&q.stats.writesReceived, &x.writes, r.Writes)
	advance(&q.stats.readsReceived, &x.reads, r.Reads)
	advance(&q.stats.atomicsReceived, &x.atomics, r.Atomics)
	advance(&q.stats.immsReceived, &x.imms, r.Imms)
	advance(&q.stats.bytesReceived, &x.bytes, r.Bytes)
	if !x.open && x.fpdus > 0 && err == nil {
		x.open = true
		q.openGate()
		close(x.first)
	}
	if x.work && err == nil {
		x.work = false
		q.mu.Lock()
		if q.sends == sendRest {
			q.kickLocked()
			q.mu.Unlock()
		} else {
			q.sendLocked(q)
		}
	}
	return err
}

// openGate lets FPDUs be sent.
func (q *qp) openGate() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.gateOpen = true
	if !q.txBusy && q.workLocked() { // otherwise its owner checks for work itself
		q.kickLocked()
	}
}

// takeDown ends the QP: it determines the reason, lets tx send its last message, flushes the
// queues, and closes the connection once the peer has had time to read.
func (q *qp) takeDown(reason error) {
	linger := q.conclude(reason)
	<-q.tx.gone
	q.mu.Lock()
	if !q.ended {
		q.ended, q.cause = true, q.txErr
	}
	q.finishLocked()
	q.mu.Unlock()
	if linger {
		q.discard()
	}
	_ = q.conn.Close() // nothing is owed to the peer any more
}

// conclude determines why the QP ends and tells tx what to do about it. linger says that the peer
// should get time to read our Terminate.
func (q *qp) conclude(reason error) (linger bool) {
	term, answer := q.rx.r.Answer(reason)
	var mv *mpa.Error
	if errors.As(reason, &mv) && mv.Code == mpa.CodeCRC {
		q.dev.crcErrors.Add(1)
	}
	var pt *rdmap.PeerTerminate
	peer := errors.As(reason, &pt)
	if peer {
		q.dev.countTerminate(false, pt.Layer, pt.Type, pt.Code)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.kickLocked()
	if q.ended { // by Abort, or by a fault of our own that tx reports
		q.onlyLocked(sendLast)
		return q.term != nil
	}
	graceful := false
	switch {
	case answer:
		q.ended, q.cause = true, terminateError(&term, reason.Error())
		q.term = &term
		q.state = StateTerminate
		linger = true
		_ = q.conn.SetWriteDeadline(time.Now().Add(q.dev.cfg.LingerTimeout))
		q.answerFirst = term.Layer == rdmap.LayerRDMAP && len(term.DDP) == ddp.UntaggedSize &&
			ddp.ParseUntagged(term.DDP).QN == rdmap.QNReadRequest
	case peer:
		q.ended, q.cause = true, peerError(pt)
		q.state = StateTerminate
		q.blameLocked(&pt.Terminate)
	case reason == io.EOF && q.txErr == nil:
		// The peer has finished. What we have queued is still sent; the gate of a responder that never
		// received an FPDU stays shut.
		graceful = q.gateOpen
		q.peerFIN = q.state == StateRTS
		q.state = StateClosing
		if q.asksLocked() {
			graceful = false
			q.ended, q.cause = true, fmt.Errorf("iwarp: %s closed the connection before it answered an RDMA Read or atomic", q.conn.RemoteAddr())
		}
	default:
		q.ended, q.cause = true, reason
		if q.txErr != nil {
			q.cause = q.txErr
		}
	}
	if graceful {
		q.onlyLocked(sendRest)
		return false
	}
	q.onlyLocked(sendLast)
	if !linger {
		_ = q.conn.Close() // also ends a write that blocks
	}
	return linger
}

// discard reads and drops what still arrives until the peer closes too. Closing with unread data
// would reset the connection and destroy our Terminate.
func (q *qp) discard() {
	_ = q.conn.SetReadDeadline(time.Now().Add(q.dev.cfg.LingerTimeout))
	buf := q.rx.r.Scratch()
	for {
		if _, err := q.conn.Read(buf); err != nil {
			return
		}
	}
}
