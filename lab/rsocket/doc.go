// Package rsocket is net.Conn and net.Listener over RDMA verbs, for peers that use rsockets, the
// sockets of rdma-core's librdmacm: programs that are linked with them, or ordinary programs of
// sockets that run under librspreload. [Dial] and [Listen] take any [iwarp.Device]. Package proto
// describes the protocol.
//
// # What a Conn does
//
// Write copies into a registered buffer and returns when everything is posted, which may be before
// the peer has it. It blocks while the peer has granted neither buffers nor credits, that is, while
// the peer's program does not read. Read copies out of the buffer that the peer writes into.
//
// CloseWrite tells the peer that no more data comes. Close also tells it that no more is wanted,
// and waits until what was written has left, for at most [Options].CloseTimeout.
//
// Read returns io.EOF after the last byte if the peer has said that it was the last one. A stream
// that ends without that is io.ErrUnexpectedEOF: a program that exits without closing its socket
// may have lost data, as it is its own memory that an adapter sends from. (TCP cannot tell.)
//
// # Direct writes
//
// [Conn.Map] and [Conn.WriteAt] are riomap and riowrite: one side offers memory, and the other
// side writes into it without a message and without a copy on the receiving side.
//
// # Limits
//
// A connection's memory is bounded by its options. A peer that breaks the protocol ends its own
// connection: Read and Write return an error that wraps [proto.ErrProtocol]. Nothing here
// authenticates or encrypts; see package iwarp.
//
// librdmacm takes messages to be in its own byte order. To dial a big-endian machine, set
// [Options].BigEndian. A listener adapts to its peers.
package rsocket
