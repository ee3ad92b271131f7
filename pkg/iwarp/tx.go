package iwarp

import (
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// The most that a poster sends itself, in bytes including an allowance for headers: copying and checksumming that
// takes a few microseconds, less than waking another goroutine.
const (
	// directMax is for Writes alone. More of them mostly follow, and tx sends many at once.
	directMax = 16 << 10
	// directMessage is for something that the peer is told of, or has asked for: a source inside a message, say.
	directMessage = 24 << 10
)

// txState is the sending side of a QP. It is owned by the goroutine that set qp.txBusy, and handed
// over with the token in wake.
type txState struct {
	wake   chan struct{} // cap 1; sent to only by the owner
	gone   chan struct{} // closed when txLoop has ended
	sender *rdmap.Sender
	raw    syscall.RawConn // nil: every write may block
	write  func(fd uintptr) bool

	batch    *mpa.Batch                    // borrowed while there is work
	marks    *mpa.Marks                    // position of the markers the peer wants; nil: none
	path     path                          // TCP's segments
	next     uint64                        // first SQ request not yet completely cut
	answer   uint64                        // first request of the peer not yet completely answered
	settled  uint64                        // qp.irqHead as last set
	replying bool                          // the message in progress is a response
	copied   bool                          // its payload is in guarded
	guarded  []byte                        // copies of guarded memory, of responses in the batch; made for the first one
	burst    int                           // responses since the last message of the SQ
	half     bool                          // the Write part of an OpWriteImm has been cut
	sources  []*mr                         // regions of responses in the batch whose remote gate we have entered
	head     [rdmap.AtomicRequestSize]byte // of the request in progress
	held     []*mr                         // regions whose local gate we have entered
	current  int                           // held[current:] belong to the message in progress
	payload  [][]byte                      // of that message
	bufs     net.Buffers
	rest     []byte    // of a write that would have blocked
	n        int       // result of write
	deadline time.Time // when the write deadline was last set
}

func (t *txState) init(q *qp, s *rdmap.Sender) {
	t.wake = make(chan struct{}, 1)
	t.gone = make(chan struct{})
	t.sender = s
	if t.raw = rawConn(q.conn); t.raw != nil {
		t.initPath()
		t.write = func(fd uintptr) bool {
			if t.path.segment > 0 {
				_, _ = t.writeSegments(int(fd)) // tx tries again, and meets the error
				return true
			}
			n, err := syscall.Write(int(fd), t.rest)
			t.n = n
			if err != nil {
				t.n = 0 // tx tries again, and meets the error
			}
			return true
		}
	}
}

// txLoop executes the SQ whenever it is given the sending side, until the QP stops or closes.
func (q *qp) txLoop() {
	defer close(q.tx.gone)
	for range q.tx.wake {
		if !q.pump() {
			q.releaseTx()
			return
		}
	}
}

// releaseTx returns what the sending side had borrowed.
func (q *qp) releaseTx() {
	t := &q.tx
	t.current = len(t.held)
	q.leaveHeld()
	q.leaveSources()
	if t.batch != nil {
		t.batch.Reset(false)
		batches.Put(t.batch)
		t.batch = nil
	}
}

// leaveHeld leaves the regions of the messages that have been written.
func (q *qp) leaveHeld() {
	t := &q.tx
	for _, m := range t.held[:t.current] {
		m.local.leave()
	}
	n := copy(t.held, t.held[t.current:])
	clear(t.held[n:])
	t.held, t.current = t.held[:n], 0
}

// sendNow executes what it can in the goroutine of a poster, or of rx, without blocking. It
// returns false when tx has to continue: the caller then hands over. by is the QP whose receiving
// side calls, or nil.
func (q *qp) sendNow(by *qp) bool {
	t := &q.tx
	q.mu.Lock()
	tail, asked := q.sqTail, q.irqTail
	q.mu.Unlock()
	q.borrowBatch()
	t.batch.CopyAll()
	q.fill(tail, asked)
	if t.sender.Active() {
		return false
	}
	if t.batch.Size() > 0 {
		bufs := t.batch.Bufs()
		if len(bufs) != 1 {
			return false
		}
		t.rest, t.n = bufs[0], 0
		q.settleAnswers()
		if err := t.raw.Write(t.write); err != nil {
			return false // closed: tx will meet it too
		}
		if t.rest = t.rest[t.n:]; len(t.rest) > 0 {
			return false
		}
	}
	q.written(by)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sends != sendAll || q.workLocked() {
		return false
	}
	q.letGoLocked()
	return true
}

// sendLocked has pending work done: here if it is small, else by tx. It releases q.mu.
func (q *qp) sendLocked(by *qp) {
	if q.txBusy || !q.gateOpen || q.sends == sendLast || !q.workLocked() {
		q.mu.Unlock()
		return
	}
	q.txBusy = true
	direct := q.tx.raw != nil && q.shortLocked()
	q.mu.Unlock()
	if !direct || !q.sendNow(by) {
		q.tx.wake <- struct{}{} // the ownership goes with the token
	}
}

// workLocked reports whether the owner of the sending side has something to do.
func (q *qp) workLocked() bool {
	t := &q.tx
	return t.sender.Active() || t.answer != q.irqTail || t.next != q.sqTail && !q.stalledLocked()
}

// stalledLocked reports whether the next request of the SQ has to wait, and with it all that
// follow (RFC 5040 §5.5, rule 13: submitted in order).
func (q *qp) stalledLocked() bool {
	slot := &q.sq[q.tx.next%uint64(len(q.sq))]
	outstanding := q.orqTail - q.orqHead
	switch {
	case slot.wr.Op.isMemory(): // executed when all before it is complete
		return q.sqHead != q.tx.next
	case slot.wr.Flags&Fence != 0 && outstanding > 0:
		return true
	}
	return slot.unanswered && outstanding >= q.ord
}

func (q *qp) borrowBatch() {
	if q.tx.batch == nil {
		q.tx.batch = batches.Get().(*mpa.Batch)
		q.resetBatch()
	}
}

// resetBatch empties the batch for what comes next of the stream.
func (q *qp) resetBatch() {
	q.tx.batch.Reset(q.crc)
	q.tx.batch.Mark(q.tx.marks)
	if p := &q.tx.path; p.segment > 0 {
		q.tx.batch.Align(p.segment, p.strict)
		p.done, p.cut = 0, 0
	}
}

// letGoLocked releases the sending side: there is nothing to do.
func (q *qp) letGoLocked() {
	if q.tx.batch != nil {
		batches.Put(q.tx.batch)
		q.tx.batch = nil
	}
	q.txBusy = false
}

// pump sends what there is. It returns true when it has released the sending side, and false when
// that has ended for good.
func (q *qp) pump() bool {
	t := &q.tx
	for {
		// What was built is sent first: a poster may have left a batch behind.
		if err := q.flushBatch(); err != nil {
			q.sendFailed(err)
			return false
		}
		q.mu.Lock()
		tail, asked, work := q.sqTail, q.irqTail, q.workLocked()
		switch {
		case q.sends == sendLast && q.answerFirst && t.answer != asked && (t.replying || !t.sender.Active()):
			tail = t.next
		case q.sends == sendLast:
			term := q.term
			q.mu.Unlock()
			if term != nil {
				q.sayTerminate(term)
			}
			return false
		case !work && q.sends == sendRest && q.sqHead == q.sqTail:
			q.mu.Unlock()
			q.sayFIN()
			return false
		case !work:
			q.letGoLocked()
			q.mu.Unlock()
			return true
		}
		q.mu.Unlock()
		q.borrowBatch()
		q.fill(tail, asked)
	}
}

// fill cuts requests of the SQ before tail, and responses to requests of the peer before asked,
// into the batch until that is full or nothing more can be started. A request that cannot be
// executed stops the QP.
func (q *qp) fill(tail, asked uint64) {
	t := &q.tx
	if t.replying && !q.source() {
		return
	}
	for {
		if !t.sender.Active() {
			if !q.startNext(tail, asked) {
				return
			}
			continue
		}
		if !t.sender.Cut(t.batch) {
			return
		}
		if t.replying {
			q.stats.bytesSent.Add(t.sender.Sent())
			t.replying, t.copied = false, false
			t.answer++
			t.burst++
			continue
		}
		if slot := &q.sq[t.next%uint64(len(q.sq))]; slot.wr.Op == OpWriteImm && !t.half {
			t.half = true
			q.startImmediate(slot)
			continue
		}
		t.half = false
		t.next++
		t.current = len(t.held)
		t.burst = 0
	}
}

// responseBurst is how many responses may be sent before a waiting message of the SQ: a peer that
// reads without end must not starve our own work.
const responseBurst = 4

// startNext begins the next message, or executes a request that sends none. It
// returns false if nothing can begin.
func (q *qp) startNext(tail, asked uint64) bool {
	t := &q.tx
	ready := t.next != tail
	if ready && (t.answer == asked || t.burst >= responseBurst) {
		q.mu.Lock()
		ready = !q.stalledLocked()
		q.mu.Unlock()
	}
	if t.answer != asked && (!ready || t.burst < responseBurst) {
		return q.startResponse()
	}
	if !ready {
		return false
	}
	slot := &q.sq[t.next%uint64(len(q.sq))]
	switch {
	case slot.wr.Op.isMemory():
		if len(t.sources) > 0 {
			return false // the batch goes first: it may contain what this one ends
		}
		if fault := q.executeMemory(slot); fault != "" {
			q.localFault(fault)
			return false
		}
		t.next++
		return true
	case slot.wr.Op == OpRead:
		if !q.startRead(slot) {
			q.localFault("an SGE of an RDMA Read names no writable memory of its protection domain")
			return false
		}
		return true
	case slot.wr.Op.isAtomic():
		if !q.startAtomic(slot) {
			q.localFault("the SGE of an atomic names no writable memory of its protection domain")
			return false
		}
		return true
	case slot.wr.Op == OpImmediate:
		q.startImmediate(slot)
		return true
	}
	if !q.startMessage(slot) {
		q.localFault("an SGE of a send names no memory of its protection domain")
		return false
	}
	return true
}

// startMessage begins the message of slot. It returns false if its SGL is not valid.
func (q *qp) startMessage(slot *sendSlot) bool {
	t := &q.tx
	t.payload = t.payload[:0]
	if slot.wr.Flags&Inline != 0 {
		t.payload = append(t.payload, slot.inline)
	}
	for i := range slot.sgl {
		s := &slot.sgl[i]
		if s.Length == 0 {
			continue // its LKey is not checked
		}
		m, b, ok := q.dev.localSpan(q.pd, s, 0)
		if !ok {
			return false
		}
		t.held = append(t.held, m)
		t.payload = append(t.payload, b)
	}
	m := rdmap.Message{Payload: t.payload}
	solicited := slot.wr.Flags&Solicited != 0
	switch slot.wr.Op {
	case OpWrite, OpWriteImm:
		m.Op, m.STag, m.TO = rdmap.OpWrite, slot.wr.STag, slot.wr.TO
		if slot.length == 0 && m.STag == 0 {
			m.STag = 1 // not checked, but STag 0 upsets some RNICs
		}
	case OpSendInv:
		m.Op, m.STag = rdmap.OpSendInv, slot.wr.InvSTag
		if solicited {
			m.Op = rdmap.OpSendSEInv
		}
	default:
		m.Op = rdmap.OpSend
		if solicited {
			m.Op = rdmap.OpSendSE
		}
	}
	t.sender.Start(m)
	return true
}

// flushBatch writes the batch, blocking, and completes its requests.
func (q *qp) flushBatch() error {
	t := &q.tx
	if t.batch == nil {
		return nil
	}
	if t.batch.Size() > 0 {
		if err := q.writeAll(); err != nil {
			return err
		}
	}
	q.written(nil)
	return nil
}

func (q *qp) writeAll() error {
	t := &q.tx
	q.armDeadline()
	q.settleAnswers()
	if len(t.sources) > 0 {
		q.writeSources()
		defer q.sourcesWritten()
	}
	rest := t.rest
	if rest == nil {
		bufs := t.batch.Bufs()
		if len(bufs) > 1 {
			t.bufs = bufs
			return writev(q.conn, &t.bufs)
		}
		rest = bufs[0]
	}
	if t.path.segment > 0 {
		return t.writeAligned(rest)
	}
	_, err := q.conn.Write(rest)
	return err
}

// armDeadline bounds how long the peer may accept nothing. Setting a deadline costs more than a
// small write, so it is only renewed now and then.
func (q *qp) armDeadline() {
	t := &q.tx
	now := time.Now()
	if now.Sub(t.deadline) < q.dev.cfg.StallTimeout/4 {
		return
	}
	t.deadline = now
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.sends < sendLast { // otherwise rx has set a nearer one
		_ = q.conn.SetWriteDeadline(now.Add(q.dev.cfg.StallTimeout)) // fails with the connection, as the write will
	}
}

// written completes the requests whose last FPDU has been handed to TCP: their memory may be
// reused (RFC 5040 §5.5, rule 14). by is the QP whose receiving side calls, or nil.
func (q *qp) written(by *qp) {
	t := &q.tx
	if n := t.batch.Size(); n > 0 {
		q.stats.fpdusSent.Add(uint64(t.batch.FPDUs()))
		q.dev.fpdusSent.Add(uint64(t.batch.FPDUs()))
		q.dev.bytesSent.Add(uint64(n))
		t.followPath(n)
		q.resetBatch()
		t.rest = nil
	}
	if t.current > 0 {
		q.leaveHeld()
	}
	if len(t.sources) > 0 || len(t.guarded) > 0 {
		q.leaveSources()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sqSent = t.next
	q.completeLocked(by)
}

// completeLocked completes the finished requests, in the order of their posting (RFC 5040 §5.5,
// rule 15): one that waits for an answer holds up those after it. It reports whether a Wait was
// blocked.
func (q *qp) completeLocked(by *qp) (woke bool) {
	for ; q.sqHead != q.sqSent; q.sqHead++ {
		slot := &q.sq[q.sqHead%uint64(len(q.sq))]
		if slot.unanswered {
			break
		}
		switch slot.wr.Op {
		case OpWrite, OpWriteImm:
			q.stats.writesSent.Add(1)
			q.stats.bytesSent.Add(slot.length)
			if slot.wr.Op == OpWriteImm {
				q.stats.immsSent.Add(1)
			}
		case OpImmediate:
			q.stats.immsSent.Add(1)
		case OpSend, OpSendInv:
			q.stats.sendsSent.Add(1)
			q.stats.bytesSent.Add(slot.length)
		}
		if slot.wr.Flags&Unsignaled != 0 {
			q.sqHeld.Add(-1)
			continue
		}
		woke = q.sendCQ.push(&WC{ID: slot.wr.ID, QP: q, Op: slot.wr.Op, ByteLen: uint32(slot.length)}, by) || woke
	}
	return woke
}
