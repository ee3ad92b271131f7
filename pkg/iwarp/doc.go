// Package iwarp is a user-space iWARP stack: RDMA verbs over TCP.
//
// # The words
//
// A program opens a [Device] (the software one with [Open]) and makes on it:
//
//   - a PD, protection domain: what belongs to different PDs does not mix;
//   - MRs, memory regions: memory that the stack may use. Registering one gives
//     it an STag, a random number that names it to the peer and, as verbs' lkey
//     and rkey, to its owner. A byte in it is addressed by its TO, tagged offset,
//     which counts from the region's base ([MR].Base). A region can also be given
//     memory by a work request (AllocMR, OpFastReg);
//   - MWs, memory windows: an STag for a part of a region, for one peer, that is
//     opened and closed by work requests (OpBindMW);
//   - CQs, completion queues: what was asked for comes back there as a WC, work
//     completion, to be polled;
//   - QPs, queue pairs: an SQ (send queue) and an RQ (receive queue) on one
//     connection, or stream. WRs, work requests, are posted to them; each names
//     memory by SGEs, scatter/gather elements;
//   - SRQs, shared receive queues: an RQ for several QPs.
//
// Dial and Listen connect two QPs. What travels then are messages:
//
//   - a Send goes into the oldest receive that the peer has posted, and completes
//     it. There must be one: a Send without a receive ends the connection.
//     A Send with Invalidate also ends the sender's access to one of the peer's
//     regions, before the peer sees the message;
//   - an RDMA Write goes into a region of the peer, named by STag and TO, without
//     a word to the peer's program. The Send that follows it says that it is
//     there: a Send is delivered after what was written before it (RFC 5040 §5.5);
//   - an RDMA Read brings a part of such a region, without a word to the peer's
//     program either. It completes when the bytes are there, and holds the
//     completions of what was posted behind it up, but not those messages;
//   - Immediate Data (8 bytes, alone or behind a Write) and atomics on words of the
//     peer's (FetchAdd, CmpSwap) are RFC 7306's, on connections where both sides
//     have turned them on.
//
// # The layers
//
//	verbs       qp.go state.go modify.go tx.go lastwords.go rx.go read.go ext.go cq.go srq.go events.go
//	memory      pd.go mr.go gate.go stag.go fastreg.go mw.go memory.go
//	connection  startup.go negotiate.go dial.go listen.go segments.go
//	RDMAP       package rdmap: messages, the engine of a stream (RFC 5040)
//	DDP         package ddp: segments of messages (RFC 5041)
//	MPA         package mpa: FPDUs, each with one segment and a CRC (RFC 5044, 6581)
//	TCP         net.Conn
//
// mpa, ddp and rdmap are pure: bytes in, bytes out. What they call the ULPDU is a
// DDP segment; MULPDU is the longest that fits a TCP segment. Untagged segments,
// those of Sends, carry QN (queue number), MSN (message sequence number, from 1)
// and MO (offset in the message); tagged ones carry STag and TO. ORD and IRD are
// the numbers of RDMA Reads that a side may have outstanding and will hold: both
// are 0 unless [ConnParam] asks for more.
//
// # How a stream starts
//
// The initiator sends a Request, the responder a Reply, each with private data and
// with its wishes: CRCs, which run if either side wants them; markers, which stand
// in the direction whose receiver wants them; and with revision 2 its depths, of
// which the lesser are in force. Peer-to-peer, as is the default, the initiator then
// sends an RTR message of length zero, which is nobody's request, and both may send;
// else the responder has to wait for the initiator's first message. Before that a
// listener bounds, in number and time, what it does for strangers.
//
// # How a stream ends
//
// Gracefully by Disconnect: the SQ drains, then each side sends a FIN. By
// Terminate: a breach of the protocol, found here or by the peer, ends the stream
// for both with a code; nothing is placed or delivered after it. By Abort, or when
// TCP fails: at once. Whatever it was, every request that is outstanding
// completes exactly once, in order, with StatusWRFlushErr unless it was the one at
// fault; then Done is closed, Err says why, and Device.Events has an event unless
// the program itself ended it. A QP that has ended carries another stream once
// Modify has brought it back to IDLE.
//
// # Limits
//
// Each limit of [DeviceAttr] is a field of [Config]. What passes one fails with
// ErrLimit and names it; what a peer may take is bounded by what was posted and
// registered for it.
//
// Nothing here authenticates or encrypts. Whoever can alter the TCP stream can
// write into what is registered for it; [Config].Dial and Listen are the place
// for TLS.
package iwarp
