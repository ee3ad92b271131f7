package iwarp

// EventKind is a sort of asynchronous event.
type EventKind uint8

// Asynchronous events, named as in libibverbs.
const (
	EventQPFatal    EventKind = iota // the stream ended by an error of ours or of its connection
	EventQPReqErr                    // the peer broke the protocol, or says that we did
	EventQPAccess                    // the same by a use of memory that is not allowed
	EventCQErr                       // a CQ overflowed; its QPs end
	EventSRQLimit                    // fewer receives are left than SRQ.Arm asked for
	EventLastWQE                     // a QP with an SRQ has ended: it takes no more receives
	EventPeerClosed                  // the peer ended the stream gracefully
)

// AsyncEvent is something that no completion tells. The object that it is about
// is set.
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
