package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
)

// STag names a registered buffer to the peer and, as verbs' lkey and rkey, to
// its owner (RFC 5041 §3). Zero is never a valid STag.
type STag = ddp.STag

// Device is one provider's instance: the software stack, or hardware. All other
// objects come from it and belong to it; Close releases what is left.
// It is safe for concurrent use, like everything it returns.
type Device interface {
	Attr() DeviceAttr
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue of depth entries: at least the sum of
	// MaxSend and MaxRecv of the QPs that will share it, so that it can never
	// overflow. CreateQP refuses otherwise.
	CreateCQ(depth int) (CQ, error)
	// Listen takes connections on a TCP address ("127.0.0.1:7632").
	Listen(ctx context.Context, addr string, o *ListenOptions) (Listener, error)
	// Dial connects qp (state IDLE) to addr as MPA initiator. On error qp is in
	// ERROR state. A rejection by the peer's application is a *RejectedError.
	Dial(ctx context.Context, addr string, qp QP, p *ConnParam) (*ConnInfo, error)
	Stats() DeviceStats
	Close() error
}

// DeviceAttr holds limits and capabilities.
type DeviceAttr struct {
	Provider     string // "soft"
	MaxQP        int
	MaxQPWR      int // work requests on one SQ or RQ
	MaxSGE       int
	MaxInline    int // bytes of an Inline request
	MaxCQ        int
	MaxCQE       int
	MaxMR        int
	MaxMRSize    int64 // bytes
	MaxIRD       int
	MaxORD       int
	RDMARead     bool // RDMA Read is available
	Atomics      bool
	Immediate    bool
	MemoryWindow bool
}

// PD is a protection domain: a QP can use only the memory of its own PD.
type PD interface {
	// RegMR registers buf, which must stay mapped and reachable until Dereg has
	// returned. Its TOs start at 0, or at MROptions.Base. A zero-length buf is refused.
	RegMR(buf []byte, a Access, o *MROptions) (MR, error)
	CreateQP(a QPInitAttr) (QP, error)
	Dealloc() error
}

// Access is a set of rights on a region; local read is always there.
type Access uint32

// Rights of a region.
const (
	LocalWrite Access = 1 << iota
	RemoteWrite
	RemoteRead
	RemoteAtomic
)

// MROptions narrows a registration.
type MROptions struct {
	// QP, when set, binds the STag to this one stream: use on another one is
	// answered with "not associated with this stream", and only a bound STag
	// may be invalidated by the peer.
	QP QP
	// Base is the TO of buf[0]. It is a number, never an address.
	Base uint64
}

// MR is a registered memory region. LKey and RKey are both its STag.
type MR interface {
	STag() STag
	Base() uint64 // TO of the first byte
	Len() int
	// Invalidate ends remote access; when it has returned, no incoming byte is
	// placed any more. The local registration stays until Dereg.
	Invalidate() error
	// Dereg ends the registration; like Invalidate it waits for placements.
	Dereg() error
}

// SGE is one scatter/gather element: Length bytes at TO Addr of the region LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   STag
}

// Opcode of a work request or completion.
type Opcode uint8

// Opcodes. RDMARead and later are reserved for providers that have them.
const (
	OpSend Opcode = iota
	OpSendInv
	OpWrite
	OpRecv // completions only
	OpRead
	OpLocalInv
)

// SendFlags modify a SendWR.
type SendFlags uint8

// Flags of a SendWR.
const (
	Unsignaled SendFlags = 1 << iota // no completion on success
	Solicited                        // Send with Solicited Event
	Fence                            // waits for earlier Reads
	Inline                           // payload is copied at posting: the memory may be reused at once
	More                             // another PostSend follows at once: both may leave in one system call
)

// SendWR is a send-queue work request.
type SendWR struct {
	ID      uint64
	Op      Opcode
	Flags   SendFlags
	SGL     []SGE  // copied at posting; the memory it names is not
	Data    []byte // with Inline, instead of SGL: plain bytes, at most DeviceAttr.MaxInline
	STag    STag   // OpWrite, OpRead: the peer's region
	TO      uint64 // OpWrite, OpRead: offset in it
	InvSTag STag   // OpSendInv: the peer's region to invalidate; OpLocalInv: ours
}

// RecvWR is a receive-queue work request.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// QPInitAttr describes a QP to be made. Send and receive CQ may be the same.
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	MaxSend        int // outstanding SendWRs; 0 = 64
	MaxRecv        int // posted RecvWRs; 0 = 64
	MaxSGE         int // a WR; 0 = 4
}

// QPState is a QP's state (RDMA verbs names).
type QPState uint8

// States of a QP.
const (
	StateIdle QPState = iota
	StateRTR
	StateRTS
	StateClosing
	StateTerminate
	StateError
)

func (s QPState) String() string {
	return [...]string{"IDLE", "RTR", "RTS", "CLOSING", "TERMINATE", "ERROR"}[s]
}

// QP is a queue pair.
type QP interface {
	Num() uint32
	// PostSend queues one request. A request with a completion holds its place in
	// the SQ until that WC is polled; ErrQueueFull: poll the CQ, then post again.
	// Malformed requests are errors here; what the peer objects to is a WC. In
	// state ERROR the request completes at once with StatusWRFlushErr.
	//
	// A small request may be written to the socket here, by the caller, if that
	// does not block.
	PostSend(wr *SendWR) error
	// PostRecv queues one receive, from state IDLE on. It holds its place in the
	// RQ until its WC is polled.
	PostRecv(wr *RecvWR) error
	State() QPState
	// Disconnect closes gracefully once the SQ is drained; ctx bounds the wait.
	Disconnect(ctx context.Context) error
	// Abort resets the connection and flushes both queues.
	Abort()
	// Done is closed when the QP has left RTS for good and all WRs are flushed.
	Done() <-chan struct{}
	// Err says why, once Done is closed: a *TerminateError (ours or the
	// peer's), an I/O error, or nil after a graceful close by either side. The
	// kernel closes gracefully for a process that was killed: whoever still waits
	// for an answer has lost its peer, whatever Err says.
	Err() error
	// Destroy aborts if need be, waits for the QP's goroutines and frees it. Its
	// completions that nobody polled are removed from the CQs.
	Destroy() error
	Stats() QPStats
}

// Status of a completion.
type Status uint8

// Completion statuses, named as in libibverbs.
const (
	StatusSuccess Status = iota
	StatusLocLenErr
	StatusLocQPOpErr
	StatusLocProtErr
	StatusWRFlushErr
	StatusBadRespErr
	StatusLocAccessErr
	StatusRemInvReqErr
	StatusRemAccessErr
	StatusRemOpErr
	StatusFatalErr
	StatusGeneralErr
)

func (s Status) String() string {
	return [...]string{"success", "local length error", "local QP operation error", "local protection error",
		"flushed", "bad response", "local access error", "remote invalid request", "remote access error",
		"remote operation error", "fatal error", "general error"}[s]
}

// WC is a work completion.
type WC struct {
	ID        uint64
	QP        QP
	Op        Opcode
	Status    Status
	ByteLen   uint32 // received bytes
	Inv       bool   // a Send with Invalidate: InvSTag is invalid by now
	InvSTag   STag
	Solicited bool
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves up to len(dst) completions into dst.
	Poll(dst []WC) int
	// Wait returns when at least one completion can be polled, the CQ is closed
	// (ErrClosed) or ctx ends. It blocks; it does not spin.
	Wait(ctx context.Context) error
	Close() error
}

// CRCMode says whether FPDUs carry a CRC32C.
type CRCMode uint8

// CRC modes. The zero value is the safe one.
const (
	CRCRequired    CRCMode = iota
	CRCOffIfAgreed         // ask for none; the peer may insist
)

// ConnParam are a side's wishes for one connection.
type ConnParam struct {
	PrivateData  []byte // at most 252 bytes for every known peer, 508 for us
	ORD, IRD     uint16
	Rev          int  // MPA revision as initiator: 1 or 2; 0 = 2
	ClientServer bool // A=0: no RTR message; default is peer-to-peer with RTR
	CRC          CRCMode
	MaxULPDU     int           // bytes; 0 = from the path's segment size
	Timeout      time.Duration // start-up, each step; 0 = 10 s
}

// ConnInfo is what start-up agreed on.
type ConnInfo struct {
	PrivateData      []byte // the peer's, without the enhanced block
	PeerORD, PeerIRD uint16
	Rev              int
	PeerToPeer       bool
	CRC              bool
	Local, Remote    net.Addr
}

// ListenOptions of a Listener.
type ListenOptions struct {
	// Admit, when set, is asked before a byte is read; an error closes the
	// connection.
	Admit func(remote net.Addr) error
	// Listener, when set, is used instead of opening addr (socket activation).
	Listener       net.Listener
	RequestTimeout time.Duration // 0 = 5 s
	MaxPending     int           // half-open start-ups; 0 = 256
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

// TerminateError ends a stream: an error that we found, or that the peer reports
// (RFC 5040 §4.8).
type TerminateError struct {
	FromPeer          bool
	Layer, Type, Code uint8
	Detail            string // what that means, in words
}

// RejectedError is a Dial answered with R=1.
type RejectedError struct {
	PrivateData      []byte
	PeerORD, PeerIRD uint16
}

// Sentinels.
var (
	ErrQueueFull = errors.New("iwarp: queue full") // poll, then post again
	ErrClosed    = errors.New("iwarp: closed")
	ErrState     = errors.New("iwarp: wrong QP state")
	ErrInvalid   = errors.New("iwarp: invalid argument")
	ErrLimit     = errors.New("iwarp: device limit reached")
)

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
	QPs, MRs                 int
	RegisteredBytes          int64
}

// QPStats count one QP's messages.
type QPStats struct {
	SendsSent, SendsReceived   uint64
	WritesSent, WritesReceived uint64 // messages
	FPDUsSent, FPDUsReceived   uint64
	BytesSent, BytesReceived   uint64 // payload

	// Unacked are bytes that the connection has taken and the peer's host has not
	// acknowledged: a slow network works on them long after the WRs that they belong
	// to have completed. 0 where that is not known.
	Unacked uint64
}

func (e *TerminateError) Error() string {
	if e.FromPeer {
		return fmt.Sprintf("iwarp: the peer ended the stream: %s (terminate %d/%d/%02x)", e.Detail, e.Layer, e.Type, e.Code)
	}
	return fmt.Sprintf("iwarp: stream ended: %s (terminate %d/%d/%02x)", e.Detail, e.Layer, e.Type, e.Code)
}

func (e *RejectedError) Error() string { return "iwarp: rejected by the peer's application" }
