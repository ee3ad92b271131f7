package iwarp

// QPState is where a QP stands in the life of its stream. The names are those of the RDMA verbs, with
// InfiniBand's RTR (ready to receive) for the time of start-up.
//
//	IDLE ─▶ RTR ─▶ RTS ─▶ CLOSING ─▶ TERMINATE   and from RTS to TERMINATE
//	  └──────┴──────┴────────┴───────────┴─▶ ERROR ─▶ IDLE, and so on
//
// A QP is in one of them from CreateQP to Destroy. Its lock guards the change, and all that
// may be done with it goes by it: posting, Modify, Disconnect, Abort. What the peer sees
// of a change is said with each state.
type QPState uint8

const (
	// StateIdle is a QP without a stream: it is new, or Modify has brought it back from ERROR,
	// which makes all of its stream anew. Receives may be posted, for what the peer sends
	// at once when the stream is there; sends are refused. Dial, or Accept, takes it to RTR. Abort
	// ends it though nothing has begun.
	StateIdle QPState = iota

	// StateRTR is a QP whose connection starts up: TCP connects, the initiator sends its Request and the
	// responder its Reply (RFC 5044 §7.1, RFC 6581). What may be posted is as in IDLE. Dial and
	// Accept are under way and return why start-up has failed, if it does: then the QP goes to ERROR
	// without an event that says so. Else it goes to RTS.
	StateRTR

	// StateRTS is a QP in full operation (RFC 5040 §6.1): both sides may send, but for a responder that
	// has not heard the initiator's first FPDU, whose requests wait till then (RFC 5044 §7.1.2). It is
	// left for CLOSING when either side ends in order, for TERMINATE when either side finds a fault or
	// its own program asks for that, and for ERROR when it is aborted or TCP fails. An abort
	// shows in State only when all has been flushed; nothing is sent any more from the abort on.
	StateRTS

	// StateClosing is a QP whose stream ends in order (RFC 5040 §6.2, RFC 5041 §6.2, RFC 5044 §7.2).
	// Nothing more may be posted. What was posted before still goes out, then a FIN; when the peer's has
	// come too, the QP goes to ERROR without a cause. If the peer was the first to close, that is an event.
	// Where it closed with Reads of ours unanswered, or before a responder could send at all, there is no
	// order left and the stream ends at once. A fault on the way still leads to TERMINATE.
	StateClosing

	// StateTerminate is a QP on whose stream a Terminate has been sent, is about to be, or has arrived
	// (RFC 5040 §5.4, §6.2.1, §7.1; RFC 5041 §7.1; RFC 5044 §8), or whose sending side has failed, while
	// the peer's last words are still waited for. Nothing may be posted, and after the fault nothing is
	// placed or delivered; what goes out are the answers that are due before the Terminate, and that. Err
	// will name layer, type and code, and which side has found the fault. The QP goes to ERROR by itself.
	StateTerminate

	// StateError is a QP whose stream is over: Done is closed, Err says why, every request and receive has
	// been flushed, and what is posted now completes at once with StatusWRFlushErr. The connection can be
	// open a little longer, so that the peer has time to read our Terminate. Modify(StateIdle) waits for its
	// end and makes the QP fit for another stream, once its completions have been polled.
	StateError

	numStates
)

var stateNames = [numStates]string{"IDLE", "RTR", "RTS", "CLOSING", "TERMINATE", "ERROR"}

func (s QPState) String() string { return stateNames[s] }

// sendPhase is what the sending side of a stream may still send. It only ever grows. The state is what the
// program sees of that: an aborted stream sends nothing from then on, and is in ERROR once rx and tx have
// settled it.
type sendPhase uint8

const (
	// sendAll: requests as they are posted, and answers to the peer's.
	sendAll sendPhase = iota

	// sendRest: what was posted before this side or the peer closed, then our FIN.
	sendRest

	// sendLast: the Terminate, if there is one, and with answerFirst the answers that are due before it.
	sendLast
)

// onlyLocked bounds what is sent from now on.
func (q *qp) onlyLocked(s sendPhase) { q.sends = max(q.sends, s) }
