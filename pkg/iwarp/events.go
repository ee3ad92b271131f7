package iwarp

import (
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// EventKind is the kind of an asynchronous event.
type EventKind uint8

// Asynchronous events, named as in libibverbs.
const (
	EventQPFatal    EventKind = iota // the stream ended because of an error of ours or of its connection
	EventQPReqErr                    // the peer broke the protocol, or says that we did
	EventQPAccess                    // the same, by a use of memory that is not allowed
	EventCQErr                       // a CQ overflowed; its QPs end
	EventSRQLimit                    // fewer receives are left than SRQ.Arm asked for
	EventLastWQE                     // a QP with an SRQ has ended: it takes no more receives
	EventPeerClosed                  // the peer ended the stream gracefully
)

// AsyncEvent reports something that no completion reports. The object that it concerns is set.
type AsyncEvent struct {
	Kind EventKind
	QP   QP
	CQ   CQ
	SRQ  SRQ
	Err  error // of the QP kinds: what QP.Err will say; a *TerminateError has the codes
}

func (k EventKind) String() string {
	return [...]string{"QP fatal error", "QP request error", "QP access error", "CQ error", "SRQ limit reached",
		"last WQE reached", "closed by the peer"}[k]
}

// eventsCap bounds the events that wait to be read. A late reader still gets the first ones,
// which tell the cause.
const eventsCap = 256

// emit sends e without blocking: an event for which there is no room is counted and lost. It
// takes no lock but its own.
func (d *soft) emit(e AsyncEvent) {
	d.evMu.Lock()
	defer d.evMu.Unlock()
	if d.evClosed {
		return
	}
	select {
	case d.events <- e:
	default:
		d.eventsLost.Add(1)
	}
}

func (d *soft) closeEvents() {
	d.evMu.Lock()
	defer d.evMu.Unlock()
	if !d.evClosed {
		d.evClosed = true
		close(d.events)
	}
}

// reportLocked emits the event of a stream's end. An end that the application caused itself has
// none.
func (q *qp) reportLocked() {
	if q.byUser || q.cause == errAborted || q.cause == nil && !q.peerFIN {
		return
	}
	q.dev.emit(AsyncEvent{Kind: eventKind(q.cause), QP: q, Err: q.cause})
}

// eventKind returns the event that reports the end of a stream by cause.
func eventKind(cause error) EventKind {
	if cause == nil {
		return EventPeerClosed
	}
	var t *TerminateError
	if !errors.As(cause, &t) {
		return EventQPFatal
	}
	switch {
	case t.Layer != rdmap.LayerMPA && t.Type == rdmap.TypeLocal:
		return EventQPFatal
	case t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.TypeProtection,
		t.Layer == rdmap.LayerDDP && t.Type == ddp.TypeTagged && t.Code != ddp.TaggedVersion,
		t.Layer == rdmap.LayerRDMAP && t.Type == rdmap.TypeOperation && t.Code == rdmap.OpCodeCannotInvalid:
		return EventQPAccess
	}
	return EventQPReqErr
}
