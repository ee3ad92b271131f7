// Package stream is net.Conn over RDMA verbs, on any provider.
//
// Bytes go by RDMA Write, either straight into the memory of a Read that waits, or into a hidden ring at the receiver,
// from which a later Read copies them. Package exs decides which, for each of the two directions. What it says travels as Sends of
// at most 64 bytes (message.go), each into a receive that the peer has posted: a side counts them and keeps some back, so
// that it can always return the peer's.
//
// What the policies are called elsewhere: Buffered is SDP's BSDP, ZeroCopy its ZSDP. Where SDP has the receiver fetch the data
// by RDMA Read, the sender writes it here, as it knows where to.
//
// A peer can write only to the ring and to the memory of a Read that waits, and only on this connection. If it breaks the
// rules of the algorithm the connection ends, with an error that wraps ErrPeer.
package stream
