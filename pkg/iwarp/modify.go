package iwarp

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// Modify moves the QP as its interface says. The states between are the connection
// manager's and the stream's own; CLOSING and TERMINATE go to ERROR by themselves.
func (q *qp) Modify(s QPState) error {
	if s == StateIdle {
		return q.reset()
	}
	q.mu.Lock()
	from := q.state
	switch {
	case from == StateRTS && s == StateClosing && q.busyLocked(),
		from == StateRTS && s == StateTerminate && !q.gateOpen: // nothing may be sent yet
		q.abortLocked(errAborted)
	case from == StateRTS && s == StateClosing:
		q.closeLocked()
	case from == StateRTS && s == StateTerminate:
		q.terminateLocked()
	case (from <= StateRTS || from == StateClosing) && s == StateError:
		q.abortLocked(errAborted)
	default:
		q.mu.Unlock()
		return fmt.Errorf("%w: QP %d cannot go from %s to %s", ErrState, q.num, from, s)
	}
	q.mu.Unlock()
	return nil
}

// busyLocked says whether requests of either side are under way.
func (q *qp) busyLocked() bool { return q.sqHead != q.sqTail || q.irqHead != q.irqTail }

// terminateLocked ends the stream by the application's wish (RFC 5040 §6.2.1).
func (q *qp) terminateLocked() {
	q.term = &rdmap.Terminate{Layer: rdmap.LayerRDMAP, Type: rdmap.TypeLocal}
	q.ended, q.cause = true, terminateError(q.term, "terminated by this side's application")
	q.byUser = true
	q.state = StateTerminate
	q.onlyLocked(sendLast)
	q.kickLocked()
	_ = q.conn.SetReadDeadline(past) // wakes rx, which takes the QP down
	q.recall()
}

// reset makes a QP in state ERROR fit for another connection. Regions and windows
// that were bound to it stay bound to the stream that has ended.
func (q *qp) reset() error {
	q.mu.Lock()
	state, gone := q.state, q.gone
	q.mu.Unlock()
	if state != StateError {
		return fmt.Errorf("%w: QP %d cannot go from %s to %s", ErrState, q.num, state, StateIdle)
	}
	<-gone // the connection may still listen for the peer's FIN
	q.mu.Lock()
	defer q.mu.Unlock()
	switch sends, recvs := q.sqHeld.Load(), q.rqHeld.Load(); {
	case q.state != StateError || q.gone != gone:
		return fmt.Errorf("%w: QP %d was reset by somebody else", ErrState, q.num)
	case q.destroyed:
		return fmt.Errorf("%w: QP %d is destroyed", ErrState, q.num)
	case sends+recvs != 0:
		return fmt.Errorf("%w: %d completions of QP %d are not polled yet", ErrState, sends+recvs, q.num)
	}
	q.life.Add(1)
	q.stream = newStream()
	return nil
}
