package iwarp

import (
	"fmt"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// localFault stops the QP at request tx.next, which cannot be executed. The peer
// is told that the stream has ended, not why (RFC 5040 §7.1, item 1).
func (q *qp) localFault(detail string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.ended {
		q.term = &rdmap.Terminate{Layer: rdmap.LayerRDMAP, Type: rdmap.TypeLocal}
		q.ended, q.cause = true, terminateError(q.term, detail)
		q.state = StateTerminate
		q.badWR, q.badCode = int64(q.tx.next), StatusLocProtErr
	}
	q.onlyLocked(sendLast)
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
	q.onlyLocked(sendLast)
	_ = q.conn.SetReadDeadline(time.Now().Add(sayLast))
}

// lookAgain says whether rx has to read once more after the deadline that sendFailed set. On a busy machine rx may run only
// when that has passed, and then a read fails without a look at what has come meanwhile.
func (q *qp) lookAgain() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.rx.final || q.txErr == nil || q.ended {
		return false
	}
	q.rx.final = true
	_ = q.conn.SetReadDeadline(time.Now().Add(sayLast))
	return true
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
