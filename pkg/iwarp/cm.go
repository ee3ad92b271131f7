package iwarp

import (
	"context"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// CRCMode says whether FPDUs carry a CRC32C.
type CRCMode uint8

// CRC modes. The zero value is the safe one.
const (
	CRCRequired    CRCMode = iota
	CRCOffIfAgreed         // ask for none; the peer may insist
)

// RTRSet is a set of RTR messages: what an initiator says first in the peer-to-peer
// model, so that the responder may speak (RFC 6581 §4.3).
type RTRSet uint8

// Forms of the RTR message, each of length zero.
const (
	RTRWrite RTRSet = 1 << iota
	RTRRead
	RTRSend
)

// DepthAny as ORD or IRD leaves the peer's own value alone (RFC 6581 §9.1).
const DepthAny = 0x3fff

// ConnParam are a side's wishes for one connection.
type ConnParam struct {
	PrivateData []byte // at most 252 bytes for every known peer, 508 for us
	// Private, when set, makes a responder's private data in place of PrivateData, of
	// what start-up comes to: Request and Reply are the frames' heads, CRC, markers,
	// ORD and IRD what will be in force. It is called once, by Accept.
	Private func(ConnInfo) []byte
	// Connected, when set, is called in Dial when the stream is connected, before the
	// peer has answered the Request; a device that does not see that does not call it.
	Connected func(remote net.Addr)
	// ORD is how many RDMA Reads and atomics this side wants outstanding
	// (initiator_depth of rdma_cm), IRD how many of the peer's it will hold
	// (responder_resources). 0 = none. ConnInfo has what became of it.
	// DepthAny wishes for as many as the device has.
	ORD, IRD uint16
	// MinORD is the ORD that this side cannot work without. A responder rejects an
	// initiator that will hold fewer, and tells it the number; an initiator gives up.
	MinORD uint16
	Rev    int // MPA revision as initiator: 1 or 2; 0 = 2
	// Fallback makes an initiator whose peer hangs up on revision 2, or answers with
	// 1, dial again with 1. Not if RTR or MinORD are set, which revision 1 lacks.
	Fallback     bool
	ClientServer bool // A=0: no RTR message; default is peer-to-peer with RTR
	// RTR are the forms to offer, or to take. 0 = as initiator Write and Read, as
	// responder the first of Write, Read, Send that was offered.
	RTR      RTRSet
	CRC      CRCMode
	Markers  bool // demand markers in what this side receives
	MaxULPDU int  // bytes; 0 = from the path's segment size
	// StrictSegments writes the TCP segments of a path one by one. By itself TCP cuts
	// a long write where the FPDUs end, unless the peer's window or the socket fills
	// up. Linux siw takes a CRC that is cut in two for a wrong one: for such a peer,
	// with CRCs, this is worth ten to twenty times the CPU. Without effect on loopback.
	StrictSegments bool
	// Extensions turns Immediate Data and atomics on (RFC 7306). Both sides must:
	// nothing on the wire says so.
	Extensions bool
	// Settle is how long an initiator waits behind the Reply before it sends its
	// first FPDU, be that the RTR or work. The Linux siw driver may miss what comes
	// within a few milliseconds, until more comes: a missed RTR stalls both sides
	// where the responder is to speak first. 20 ms is ample.
	Settle time.Duration
	// SendFirst lets a responder send before the initiator has said anything, after
	// so long: Accept returns then, or with the first FPDU. RFC 5044 §7.1.2 forbids
	// it, but consumers that were written for InfiniBand do it (ucmatose,
	// ib_write_lat), and client-server connections have no RTR. siw fails a
	// connection where an FPDU comes glued to the Reply. 0 = wait for the initiator.
	SendFirst time.Duration
	// Unsent is how many bytes may lie in the socket that TCP has not sent yet; 0 = as
	// many as the socket takes, which can be megabytes. What is posted later goes
	// behind these: on a slow network that is a wait of seconds.
	Unsent  int
	Timeout time.Duration // start-up, each step; 0 = 10 s
}

// ConnInfo is what start-up agreed on.
type ConnInfo struct {
	PrivateData      []byte // the peer's, without the enhanced block
	PeerORD, PeerIRD uint16 // as the peer sent them, DepthAny too; 0 with revision 1
	ORD, IRD         uint16 // in force on this side; 0 in a ConnRequest
	Rev              int
	PeerToPeer       bool
	RTR              RTRSet // in a ConnRequest those offered, else the one used
	CRC              bool
	MarkersIn        bool // this side receives them
	MarkersOut       bool // this side sends them
	Local, Remote    net.Addr
	// Peer is who the peer has proven to be, where the connection's net.Conn says so
	// by a method PeerName() string, as one under TLS can; else "".
	Peer string
	// Request and Reply are the heads of the start-up frames as this side has sent or
	// received them, for a ULP that has to know that nobody has altered them. All zero
	// where the device does not tell; of a ConnRequest that is not decided about only
	// Request is there.
	Request, Reply FrameHead
}

// FrameHead is what a start-up frame says beside its private data, as it stands on
// the wire: flags, revision, IRD and ORD words (RFC 5044 §7.1.1, RFC 6581 §9).
type FrameHead = mpa.Head

// ListenOptions of a Listener.
type ListenOptions struct {
	// Admit, when set, is asked before a byte is read; an error closes the
	// connection.
	Admit func(remote net.Addr) error
	// Listener, when set, is used instead of opening addr (socket activation).
	Listener       net.Listener
	RequestTimeout time.Duration // 0 = 5 s
	DecideTimeout  time.Duration // between the Request and Accept or Reject; 0 = 30 s
	MaxPending     int           // half-open start-ups; 0 = 256
	// MaxPendingPerHost is the most of them from one address, or one IPv6 /64; 0 = a
	// quarter, but not less than 16.
	MaxPendingPerHost int
}

// Listener takes connections.
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
