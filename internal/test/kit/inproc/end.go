package inproc

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// code holds the codes of a Terminate (RFC 5040 §4.8).
type code struct{ layer, typ, code uint8 }

// text returns the code in words.
func (c code) text() string {
	switch c {
	case code{0, 0, 0}:
		return "local catastrophic error"
	case code{0, 1, 0}, code{1, 1, 0}:
		return "invalid STag"
	case code{0, 1, 1}, code{1, 1, 1}:
		return "base or bounds violation"
	case code{0, 1, 2}:
		return "access rights violation"
	case code{0, 1, 3}, code{1, 1, 2}:
		return "STag not associated with this stream"
	case code{0, 1, 4}, code{1, 1, 3}:
		return "TO wrap"
	case code{0, 1, 9}, code{0, 2, 9}:
		return "STag cannot be invalidated"
	case code{0, 2, 6}:
		return "unexpected opcode"
	case code{0, 2, 7}:
		return "catastrophic error of this stream"
	case code{1, 0, 0}:
		return "DDP local catastrophic error"
	case code{1, 2, 2}:
		return "no receive buffer available"
	case code{1, 2, 5}:
		return "message too long for the receive buffer"
	case code{2, 0, 6}:
		return "insufficient IRD"
	case code{2, 0, 7}:
		return "no matching RTR"
	}
	return fmt.Sprintf("error %d/%d/%02x", c.layer, c.typ, c.code)
}

// writeFault returns the Terminate about a refused Write (RFC 5041 §7.1). DDP has no code for a
// missing right: the STag is then not valid for this use.
func writeFault(f fault) code {
	return code{1, 1, map[fault]uint8{faultSTag: 0, faultAccess: 0, faultStream: 2, faultWrap: 3, faultBounds: 1}[f]}
}

// readFault returns the Terminate about a refused Read or atomic (RFC 5040 §7.2).
func readFault(f fault) code {
	return code{0, 1, map[fault]uint8{faultSTag: 0, faultStream: 3, faultAccess: 2, faultWrap: 4, faultBounds: 1}[f]}
}

// event returns the event that reports the end of a stream by c.
func (c code) event() iwarp.EventKind {
	switch {
	case c.layer != 2 && c.typ == 0:
		return iwarp.EventQPFatal
	case c.layer == 1 && c.typ == 1, c.layer == 0 && (c.typ == 1 || c.code == 9):
		return iwarp.EventQPAccess
	}
	return iwarp.EventQPReqErr
}

// terminate ends the stream by a Terminate that q sends.
func (q *qp) terminate(c code) { q.terminateTelling(c, c.event()) }

func (q *qp) terminateTelling(c code, event iwarp.EventKind) {
	peer := q.peer
	q.dev.terminates[iwarp.TerminateKey{Sent: true, Layer: c.layer, Type: c.typ, Code: c.code}]++
	q.end(&iwarp.TerminateError{Layer: c.layer, Type: c.typ, Code: c.code, Detail: c.text()}, event)
	if peer != nil && peer.end(&iwarp.TerminateError{FromPeer: true, Layer: c.layer, Type: c.typ, Code: c.code, Detail: c.text()}, c.event()) {
		peer.dev.terminates[iwarp.TerminateKey{Layer: c.layer, Type: c.typ, Code: c.code}]++
	}
}

// abort ends the stream at once, from any state.
func (q *qp) abort(cause error) {
	peer := q.peer
	q.end(cause, iwarp.EventQPFatal)
	if peer != nil {
		peer.end(errReset, iwarp.EventQPFatal)
	}
}

// close ends the stream gracefully once the SQ is drained.
func (q *qp) close() {
	q.state = iwarp.StateClosing
	if len(q.sq) > 0 {
		return // run closes
	}
	peer := q.peer
	q.end(nil, noEvent)
	peer.end(nil, iwarp.EventPeerClosed)
}

const noEvent iwarp.EventKind = 0xff

// end flushes q. It returns false if q has ended before.
func (q *qp) end(cause error, event iwarp.EventKind) bool {
	if q.state == iwarp.StateError {
		return false
	}
	q.state = iwarp.StateError
	q.cause = cause
	q.peer = nil
	for _, r := range q.sq {
		q.complete(&r, iwarp.StatusWRFlushErr, 0)
	}
	q.sq = nil
	for _, r := range q.rq {
		q.received(r, iwarp.WC{Op: iwarp.OpRecv, Status: iwarp.StatusWRFlushErr})
	}
	q.rq = nil
	close(q.done)
	if event != noEvent && cause != errAborted {
		q.dev.tell(iwarp.AsyncEvent{Kind: event, QP: q, Err: cause})
	}
	if q.srq != nil {
		q.dev.tell(iwarp.AsyncEvent{Kind: iwarp.EventLastWQE, QP: q, SRQ: q.srq})
	}
	return true
}
