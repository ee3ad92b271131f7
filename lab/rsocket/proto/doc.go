// Package proto is the protocol of rsockets, the sockets over RDMA of rdma-core's librdmacm, as it
// is spoken on iWARP: what the messages look like, and the books that a side keeps of its buffers
// and credits. It does no I/O. The protocol is described in librdmacm's docs/rsocket.
//
// # Start-up
//
// Each side sends a [ConnData] as private data. It names two pieces of the side's memory: the
// first half of its receive buffer, and a table that the peer writes later ones into. It also
// grants credits.
//
// # Data
//
// A sender writes data by RDMA Write into the half that it was told of last, and follows it with a
// Send of four bytes, a [Message] with the number of bytes. (Elsewhere than on iWARP this is one
// RDMA Write with Immediate Data.) Every such message costs a credit. A half is filled to its end
// before the next one is used, so the receiver's buffer is a ring.
//
// When the receiver's program has taken half of the buffer, the receiver writes an [SGE] for that
// half into the next entry of the sender's table and sends a credit message. It sends one without
// an SGE when half of the credits are used up. A credit message carries the number of the last
// data message that may be sent, modulo 1<<16: so many have been read, and so many credits are there.
//
// # Maps
//
// A side can offer further memory by writing an [IOMap] into the map table that lies behind the
// peer's table, followed by a message. The peer then writes into that memory without a message.
// librdmacm takes a credit for the message of a map and never gives it back; here it costs none.
//
// # Byte order
//
// The ConnData is in network order, except that its flag says which order its sender uses for the
// rest. A table is in the order of the side that it belongs to. A message is in the order of the
// sending machine, and the receiver takes it for its own: librdmacm swaps tables but no messages.
// It thus only works between machines of one order, and [ConnData.Order] of a responder should be
// that of the initiator.
package proto

import "errors"

// ErrProtocol is what a peer has done that the protocol does not allow. Every error of this
// package wraps it.
var ErrProtocol = errors.New("rsocket: broken protocol")
