package iwarp

import "time"

// TerminateKey counts Terminates by what they say.
type TerminateKey struct {
	Sent              bool
	Layer, Type, Code uint8
}

// DeviceStats are counters since the device was opened, and gauges of now.
type DeviceStats struct {
	FPDUsSent, FPDUsReceived uint64
	BytesSent, BytesReceived uint64 // FPDU bytes, framing included
	CRCErrors                uint64
	Terminates               map[TerminateKey]uint64
	Refused                  [NumStartupRefusals]uint64 // start-ups that listeners gave up
	EventsLost               uint64                     // nobody read Device.Events in time
	PDs, QPs, CQs, SRQs      int
	MRs, MWs                 int
	HalfOpen                 int // start-ups that are not finished, of all listeners
	RegisteredBytes          int64
}

// QPStats count one QP's messages.
type QPStats struct {
	SendsSent, SendsReceived   uint64
	WritesSent, WritesReceived uint64 // messages
	ReadsSent, ReadsReceived   uint64 // requests
	AtomicsSent                uint64
	AtomicsReceived            uint64
	ImmsSent, ImmsReceived     uint64
	FPDUsSent, FPDUsReceived   uint64
	BytesSent, BytesReceived   uint64 // payload

	// Unacked are bytes that the connection has taken and the peer's host has not
	// acknowledged: a slow network works on them long after the WRs that they belong
	// to have completed. 0 where that is not known.
	Unacked uint64
	Path    PathStats
}

// PathStats are what the transport below has found out about the way to the peer;
// all are 0 where it does not tell.
type PathStats struct {
	RTT    time.Duration // the shortest round trip of late
	Window uint64        // bytes that may be under way before the first is acknowledged
	Rate   uint64        // bytes a second that arrived when it was last measured
	Acked  uint64        // bytes of the stream that the peer's host has acknowledged so far
	Floor  bool          // too little was sent for the network to be busy: it can do more than Rate
}
