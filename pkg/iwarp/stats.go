package iwarp

import "time"

// TerminateKey classifies Terminates by their content.
type TerminateKey struct {
	Sent              bool
	Layer, Type, Code uint8
}

// DeviceStats holds counters since the device was opened, and current gauges.
type DeviceStats struct {
	FPDUsSent, FPDUsReceived uint64
	BytesSent, BytesReceived uint64 // FPDU bytes, framing included
	CRCErrors                uint64
	Terminates               map[TerminateKey]uint64
	Refused                  [NumStartupRefusals]uint64 // start-ups that listeners gave up
	EventsLost               uint64                     // because Device.Events was not read in time
	PDs, QPs, CQs, SRQs      int
	MRs, MWs                 int
	HalfOpen                 int // unfinished start-ups, of all listeners
	RegisteredBytes          int64
}

// QPStats counts one QP's messages.
type QPStats struct {
	SendsSent, SendsReceived   uint64
	WritesSent, WritesReceived uint64 // messages
	ReadsSent, ReadsReceived   uint64 // requests
	AtomicsSent                uint64
	AtomicsReceived            uint64
	ImmsSent, ImmsReceived     uint64
	FPDUsSent, FPDUsReceived   uint64
	BytesSent, BytesReceived   uint64 // payload

	// Unacked is how many bytes the connection has taken that the peer's host has not
	// acknowledged. A slow network is busy with them long after the WRs that they belong to
	// have completed. 0 where that is not known.
	Unacked uint64
	Path    PathStats
}

// PathStats is what the transport below has measured of the path to the peer. All fields are 0
// where it does not tell.
type PathStats struct {
	RTT    time.Duration // the shortest recent round trip
	Window uint64        // bytes that may be under way before the first is acknowledged
	Rate   uint64        // bytes per second that arrived when last measured
	Acked  uint64        // bytes of the stream that the peer's host has acknowledged so far
	Floor  bool          // too little was sent to saturate the network: the true rate may be higher than Rate
}
