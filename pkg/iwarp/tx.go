package iwarp

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// directMax is the most that a poster sends itself, in bytes with some allowance
// for headers: so much is copied and checksummed in a few microseconds, less than
// waking another goroutine takes.
const directMax = 16 << 10

// txState is the sending side of a QP. It is owned by whoever set qp.txBusy, and
// handed over with the token in wake.
type txState struct {
	wake   chan struct{} // cap 1; sent to only by the owner
	gone   chan struct{} // closed when txLoop has ended
	sender *rdmap.Sender
	raw    syscall.RawConn // nil: every write may block
	write  func(fd uintptr) bool

	batch    *mpa.Batch // borrowed while there is work
	marks    *mpa.Marks // position of the markers the peer wants; nil: none
	next     uint64     // first SQ request not yet cut to its end
	held     []*mr      // regions whose local gate we are in
	current  int        // held[current:] belong to the message in progress
	payload  [][]byte   // of that message
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
		t.write = func(fd uintptr) bool {
			n, err := syscall.Write(int(fd), t.rest)
			t.n = n
			if err != nil {
				t.n = 0 // tx tries again, and meets the error
			}
			return true
		}
	}
}

// txLoop executes the SQ whenever it is given the sending side, until the QP
// stops or closes.
func (q *qp) txLoop() {
	defer close(q.tx.gone)
	for range q.tx.wake {
		if !q.pump() {
			q.releaseTx()
			return
		}
	}
}

// releaseTx gives back what the sending side had borrowed.
func (q *qp) releaseTx() {
	t := &q.tx
	t.current = len(t.held)
	q.leaveHeld()
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

// sendNow executes the whole SQ in the poster's goroutine if that does not block.
// It returns false when tx has to go on: the caller then hands over.
func (q *qp) sendNow() bool {
	t := &q.tx
	q.mu.Lock()
	tail := q.sqTail
	q.mu.Unlock()
	q.borrowBatch()
	t.batch.CopyAll()
	q.fill(tail)
	if t.next != tail || t.sender.Active() {
		return false
	}
	if t.batch.Size() > 0 {
		bufs := t.batch.Bufs()
		if len(bufs) != 1 {
			return false
		}
		t.rest, t.n = bufs[0], 0
		if err := t.raw.Write(t.write); err != nil {
			return false // closed: tx will meet it too
		}
		if t.rest = t.rest[t.n:]; len(t.rest) > 0 {
			return false
		}
	}
	q.written()
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.stopping || q.closing || t.next != q.sqTail {
		return false
	}
	q.letGoLocked()
	return true
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
}

// letGoLocked gives the sending side up: there is nothing to do.
func (q *qp) letGoLocked() {
	if q.tx.batch != nil {
		batches.Put(q.tx.batch)
		q.tx.batch = nil
	}
	q.txBusy = false
}

// pump sends what there is. It returns true when it has given the sending side
// up, and false when that has ended for good.
func (q *qp) pump() bool {
	t := &q.tx
	for {
		// What was built goes first: a poster may have left a batch behind.
		if err := q.flushBatch(); err != nil {
			q.sendFailed(err)
			return false
		}
		q.mu.Lock()
		tail, idle := q.sqTail, t.next == q.sqTail && !t.sender.Active()
		switch {
		case q.stopping:
			term := q.term
			q.mu.Unlock()
			if term != nil {
				q.sayTerminate(term)
			}
			return false
		case idle && q.closing:
			q.mu.Unlock()
			q.sayFIN()
			return false
		case idle:
			q.letGoLocked()
			q.mu.Unlock()
			return true
		}
		q.mu.Unlock()
		q.borrowBatch()
		q.fill(tail)
	}
}

// fill cuts requests before tail into the batch until that is full. A request
// that cannot be executed stops the QP.
func (q *qp) fill(tail uint64) {
	t := &q.tx
	for t.next != tail || t.sender.Active() {
		if !t.sender.Active() {
			slot := &q.sq[t.next%uint64(len(q.sq))]
			if slot.wr.Op.isMemory() {
				if t.batch.Size() > 0 {
					return // executed when all before it is complete
				}
				if fault := q.executeMemory(slot); fault != "" {
					q.localFault(fault)
					return
				}
				t.next++
				continue
			}
			if !q.startMessage(slot) {
				q.localFault("an SGE of a send names no memory of its protection domain")
				return
			}
		}
		if !t.sender.Cut(t.batch) {
			return
		}
		t.next++
		t.current = len(t.held)
	}
}

// startMessage begins the message of slot. False: its SGL is not valid.
func (q *qp) startMessage(slot *sendSlot) bool {
	t := &q.tx
	t.payload = t.payload[:0]
	if slot.wr.Flags&Inline != 0 {
		t.payload = append(t.payload, slot.inline)
	}
	for i := range slot.sgl {
		s := &slot.sgl[i]
		if s.Length == 0 {
			continue // its LKey is not looked at
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
	case OpWrite:
		m.Op, m.STag, m.TO = rdmap.OpWrite, slot.wr.STag, slot.wr.TO
		if slot.length == 0 && m.STag == 0 {
			m.STag = 1 // nobody checks it, but STag 0 upsets some RNICs
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
	q.written()
	return nil
}

func (q *qp) writeAll() error {
	t := &q.tx
	q.armDeadline()
	rest := t.rest
	if rest == nil {
		bufs := t.batch.Bufs()
		if len(bufs) > 1 {
			t.bufs = bufs
			return writev(q.conn, &t.bufs)
		}
		rest = bufs[0]
	}
	_, err := q.conn.Write(rest)
	return err
}

// armDeadline bounds how long the peer may accept nothing. Setting a deadline
// costs more than a small write, so it is renewed only now and then.
func (q *qp) armDeadline() {
	t := &q.tx
	now := time.Now()
	if now.Sub(t.deadline) < q.dev.cfg.StallTimeout/4 {
		return
	}
	t.deadline = now
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.stopping { // then rx has set a nearer one
		_ = q.conn.SetWriteDeadline(now.Add(q.dev.cfg.StallTimeout)) // fails with the connection, as the write will
	}
}

// written completes the requests whose last FPDU has been handed to TCP: their
// memory may be used again (RFC 5040 §5.5, rule 14).
func (q *qp) written() {
	t := &q.tx
	if n := t.batch.Size(); n > 0 {
		q.stats.fpdusSent.Add(uint64(t.batch.FPDUs()))
		q.dev.fpdusSent.Add(uint64(t.batch.FPDUs()))
		q.dev.bytesSent.Add(uint64(n))
		q.resetBatch()
		t.rest = nil
	}
	if t.current > 0 {
		q.leaveHeld()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for ; q.sqHead != t.next; q.sqHead++ {
		slot := &q.sq[q.sqHead%uint64(len(q.sq))]
		switch slot.wr.Op {
		case OpWrite:
			q.stats.writesSent.Add(1)
			q.stats.bytesSent.Add(slot.length)
		case OpSend, OpSendInv:
			q.stats.sendsSent.Add(1)
			q.stats.bytesSent.Add(slot.length)
		}
		if slot.wr.Flags&Unsignaled != 0 {
			q.sqHeld.Add(-1)
			continue
		}
		q.sendCQ.push(&WC{ID: slot.wr.ID, QP: q, Op: slot.wr.Op, ByteLen: uint32(slot.length)}, nil)
	}
}

// localFault stops the QP at request tx.next, which cannot be executed. The peer
// is told that the stream has ended, not why (RFC 5040 §7.1, item 1).
func (q *qp) localFault(detail string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.term = &rdmap.Terminate{Layer: rdmap.LayerRDMAP, Type: rdmap.TypeLocal}
		q.ended, q.cause = true, terminateError(q.term, false, detail)
		q.state = StateTerminate
		q.badWR, q.badCode = int64(q.tx.next), StatusLocProtErr
	}
	q.stopping = true
	_ = q.conn.SetReadDeadline(past) // wakes rx, which takes the QP down
}

// sendFailed notes why the sending side has ended. rx takes the QP down: what the
// peer may have said before it closed, a Terminate, explains more than our EPIPE.
func (q *qp) sendFailed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.txErr = fmt.Errorf("iwarp: send to %s: %w", q.conn.RemoteAddr(), err)
	if q.state == StateRTS || q.state == StateClosing {
		q.state = StateTerminate
	}
	q.stopping = true
	_ = q.conn.SetReadDeadline(time.Now().Add(sayLast))
}

// sayLast is how long a peer's last words are waited for after a failed write.
const sayLast = 100 * time.Millisecond

// past as a deadline ends blocked calls at once.
var past = time.Unix(1, 0)

// sayTerminate sends the last message and closes this half, so that the peer gets
// it in order (RFC 5040 §6.2.1).
func (q *qp) sayTerminate(term *rdmap.Terminate) {
	t := &q.tx
	q.borrowBatch()
	t.sender.Terminate(t.batch, term)
	_ = q.conn.SetWriteDeadline(time.Now().Add(q.dev.cfg.LingerTimeout))
	if err := q.writeAll(); err != nil {
		return // best effort: the connection is being closed
	}
	q.dev.countTerminate(true, term.Layer, term.Type, term.Code)
	q.dev.fpdusSent.Add(1)
	q.dev.bytesSent.Add(uint64(t.batch.Size()))
	closeWrite(q.conn)
}

// sayFIN ends a drained sending side. The peer has StallTimeout to follow.
func (q *qp) sayFIN() {
	_ = q.conn.SetReadDeadline(time.Now().Add(q.dev.cfg.StallTimeout))
	closeWrite(q.conn)
}

// closeWrite closes our half of c, or all of it where there are no halves.
func closeWrite(c net.Conn) {
	if h, ok := c.(interface{ CloseWrite() error }); ok {
		_ = h.CloseWrite() // fails if the peer has gone: then it is closed
		return
	}
	_ = c.Close()
}
