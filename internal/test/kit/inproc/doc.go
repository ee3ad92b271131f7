// Package inproc is a provider of verbs without a wire: the two QPs of a connection
// are in one process, and what one sends is copied into the other's memory.
//
// It is for programs and tests that want verbs without a network, and it is the
// executable reference of what verbs mean. So it is as simple as it can be:
//
//   - One lock, that of the [Network], covers everything. Every exported method is one
//     step: a request is executed to its end, with its effects at the peer, before
//     PostSend returns; a region that is invalid when Invalidate returns was never in
//     use at that moment. Every unexported method needs the lock unless its comment
//     says otherwise.
//   - There is no goroutine and no timer except those of callers that wait.
//   - A request waits in the SQ for one reason only: a responder without an RTR
//     message must not send before the initiator has (RFC 5044 §7.1.2, rule 4).
//     So Reads are never outstanding, and a Fence is always honoured.
//
// As in the stack on a wire, a Send or Write completes with success when it has left,
// whatever the peer then makes of it. A breach of the rules ends both QPs with the
// Terminate that the wire would carry.
//
// A region's Guard is taken under the lock: its holder must not call this package.
//
// Wishes about the wire (CRC, markers, RTR) are settled as the two ends of a wire would
// and shown in ConnInfo, but have no other effect. FPDUs are counted as zero.
package inproc
