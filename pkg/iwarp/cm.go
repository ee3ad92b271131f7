package iwarp

import (
	"context"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// CRCMode reports whether FPDUs carry a CRC32C.
type CRCMode uint8

// CRC modes. The zero value is the safe one; experiment E11 (lab/experiments.md) has its price, and that of markers.
const (
	CRCRequired    CRCMode = iota
	CRCOffIfAgreed         // ask for none; the peer may insist
)

// RTRSet is a set of RTR messages: the first message of an initiator in the peer-to-peer
// model, which lets the responder send (RFC 6581 §4.3).
type RTRSet uint8

// Forms of the RTR message, each of length zero.
const (
	RTRWrite RTRSet = 1 << iota
	RTRRead
	RTRSend
)

// DepthAny as ORD or IRD leaves the peer's value as it is (RFC 6581 §9.1).
const DepthAny = 0x3fff

// ConnParam holds one side's wishes for a connection.
type ConnParam struct {
	PrivateData []byte // at most 252 bytes for every known peer, 508 for us
	// Private, when set, makes a responder's private data, in place of PrivateData, from the
	// result of start-up: Request and Reply are the frames' heads; CRC, markers, ORD and IRD
	// are the values that will be in force. Accept calls it once.
	Private func(ConnInfo) []byte
	// Connected, when set, is called in Dial when TCP is connected, before the peer has
	// answered the Request. A device that cannot observe that does not call it.
	Connected func(remote net.Addr)
	// ORD is how many RDMA Reads and atomics this side wants outstanding (initiator_depth
	// of rdma_cm), IRD how many of the peer's it will hold (responder_resources). 0 means
	// none, DepthAny as many as the device has. ConnInfo has the outcome.
	ORD, IRD uint16
	// MinORD is the ORD that this side cannot work without. A responder rejects an
	// initiator that will hold fewer, and tells it the number; an initiator gives up.
	MinORD uint16
	Rev    int // MPA revision as initiator: 1 or 2; 0 = 2
	// Fallback makes an initiator dial again with revision 1 if its peer hangs up on
	// revision 2, or answers with 1. It has no effect if RTR or MinORD are set, which
	// revision 1 lacks.
	Fallback     bool
	ClientServer bool // A=0: no RTR message; default is peer-to-peer with RTR
	// RTR lists the forms to offer, or to accept. 0 means Write and Read for an initiator,
	// and for a responder the first of Write, Read, Send that was offered.
	RTR      RTRSet
	CRC      CRCMode
	Markers  bool // demand markers in what this side receives
	MaxULPDU int  // bytes; 0 = from the path's segment size
	// StrictSegments writes the TCP segments of a path one by one. TCP by itself cuts a long
	// write at the ends of FPDUs, unless the peer's window or the socket fills up. Linux siw
	// takes a CRC that is split in two for a wrong one: with such a peer and CRCs, this is
	// worth ten to twenty times the CPU. It has no effect on loopback.
	StrictSegments bool
	// Extensions enables Immediate Data and atomics (RFC 7306). Both sides must set it, as
	// it is not negotiated.
	Extensions bool
	// Settle is how long an initiator waits after the Reply before it sends its first FPDU,
	// be that the RTR or work. The Linux siw driver may miss what arrives within a few
	// milliseconds of its Reply, until more arrives: a missed RTR stalls both sides where the
	// responder is to send first. 20 ms is ample.
	Settle time.Duration
	// SendFirst lets a responder send before the initiator has sent anything, once this
	// much time has passed: Accept then returns, or with the first FPDU. RFC 5044 §7.1.2
	// forbids it, but consumers written for InfiniBand do it (ucmatose, ib_write_lat), and
	// client-server connections have no RTR. siw fails a connection if an FPDU arrives
	// together with the Reply. 0 = wait for the initiator.
	SendFirst time.Duration
	// Unsent is how many bytes may be in the socket that TCP has not sent yet. 0 means as
	// many as the socket takes, which can be megabytes. Anything posted later queues up
	// after them: on a slow network that takes seconds.
	Unsent  int
	Timeout time.Duration // start-up, each step; 0 = 10 s
}

// ConnInfo is the outcome of start-up.
type ConnInfo struct {
	PrivateData      []byte // the peer's, without the enhanced block
	PeerORD, PeerIRD uint16 // as the peer sent them, including DepthAny; 0 with revision 1
	ORD, IRD         uint16 // in force on this side; 0 in a ConnRequest
	Rev              int
	PeerToPeer       bool
	RTR              RTRSet // in a ConnRequest the forms offered, else the one used
	CRC              bool
	MarkersIn        bool // this side receives them
	MarkersOut       bool // this side sends them
	Local, Remote    net.Addr
	// Peer is the identity that the peer has proven, if the connection's net.Conn has a
	// method PeerName() string that returns it, as one under TLS can; else "".
	Peer string
	// Request and Reply are the heads of the start-up frames as this side sent or received
	// them, for a ULP that must be sure that they were not altered. Both are zero where the
	// device does not expose them. A ConnRequest that is not yet accepted or rejected has
	// only Request.
	Request, Reply FrameHead
}

// FrameHead is the part of a start-up frame before its private data, as it stands on the
// wire: flags, revision, IRD and ORD words (RFC 5044 §7.1.1, RFC 6581 §9).
type FrameHead = mpa.Head

// ListenOptions holds the options of a Listener.
type ListenOptions struct {
	// Admit, when set, is called before a byte is read; an error closes the connection.
	Admit func(remote net.Addr) error
	// Listener, when set, is used instead of opening addr (socket activation).
	Listener       net.Listener
	RequestTimeout time.Duration // 0 = 5 s
	DecideTimeout  time.Duration // between the Request and Accept or Reject; 0 = 30 s
	MaxPending     int           // half-open start-ups; 0 = 256
	// MaxPendingPerHost bounds the start-ups of one address, or one IPv6 /64. 0 means a
	// quarter of MaxPending, but not less than 16.
	MaxPendingPerHost int
}

// Listener accepts connections.
type Listener interface {
	// Accept waits for a complete, well-formed MPA Request.
	Accept(ctx context.Context) (ConnRequest, error)
	Addr() net.Addr
	Close() error
}

// ConnRequest is a peer that waits for a decision.
type ConnRequest interface {
	Info() ConnInfo
	// Accept answers with p and binds the connection to qp (state IDLE, its
	// first receives already posted).
	Accept(ctx context.Context, qp QP, p *ConnParam) error
	// Reject answers with R=1 and private data, and closes.
	Reject(privateData []byte) error
}
