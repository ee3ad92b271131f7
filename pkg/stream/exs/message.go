package exs

// Advert offers a posted receive to the sender, which may then write into it.
type Advert struct {
	Phase   uint32 // the direct phase that it holds for
	Seq     uint64 // position in the stream of the byte that it begins with: an estimate unless Exact
	Exact   bool   // it is the next receive to be filled
	ID      uint64 // of the receive
	Off     uint64 // bytes of the receive that are filled already: data goes behind them
	Len     uint64 // bytes of room
	WaitAll bool   // the receive is completed only when it is full
	Mem     Memory // of byte 0 of the receive; the driver fills it in
}

// Memory names memory of the receiver's to its sender. The engine only carries it.
type Memory struct {
	STag uint32
	TO   uint64
}

// Data tells the receiver of a Write that was placed before it.
type Data struct {
	Direct bool   // into the receive ID; else into the ring
	Phase  uint32 // even if direct
	Seq    uint64 // position in the stream of the first byte
	Len    uint64 // bytes
	ID     uint64 // of the receive, if direct
}

// Write is what a Sender wants done: an RDMA Write of Data.Len bytes, followed by the message Data.
type Write struct {
	Data Data
	To   uint64 // byte of the receive, or of the ring, which it does not wrap around
	Mem  Memory // of the receive, if Data.Direct
}
