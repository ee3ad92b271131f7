package iwarp

import (
	"context"
	"sync"

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
	// Listen accepts connections on a TCP address ("127.0.0.1:7632").
	Listen(ctx context.Context, addr string, o *ListenOptions) (Listener, error)
	// Dial connects qp (state IDLE) to addr as MPA initiator. On error qp is in
	// ERROR state. A rejection by the peer's application is a *RejectedError.
	Dial(ctx context.Context, addr string, qp QP, p *ConnParam) (*ConnInfo, error)
	// Events delivers what no completion reports. If it is not read, events are lost
	// (DeviceStats.EventsLost), and nothing else. Close closes it.
	Events() <-chan AsyncEvent
	Stats() DeviceStats
	Close() error
}

// DeviceAttr holds limits and capabilities.
type DeviceAttr struct {
	Provider   string // "soft", "inproc", "ibverbs"
	MaxPD      int
	MaxQP      int
	MaxQPWR    int // work requests on one SQ or RQ
	MaxSGE     int
	MaxSGERead int // of an RDMA Read
	MaxInline  int // bytes of an Inline request
	MaxCQ      int
	MaxCQE     int
	MaxMR      int
	MaxMRSize  int64 // bytes
	MaxMW      int
	MaxSRQ     int // 0: no SRQs
	MaxSRQWR   int
	MaxIRD     int
	MaxORD     int

	// Operations that a work request may use. PostSend returns ErrUnsupported for one that is
	// not available.
	RDMARead      bool // RDMA Read
	Atomics       bool // on a connection with ConnParam.Extensions
	Immediate     bool // likewise
	MemoryWindow  bool // AllocMW, OpBindMW
	FastReg       bool // AllocMR, OpFastReg
	LocalInv      bool // OpLocalInv
	SolicitedOnly bool // ReqNotify can leave out unsolicited completions

	// Capabilities that devices other than the software one may lack.
	AnyBase   bool // MROptions.Base is honoured; elsewhere it is an ErrUnsupported, as TOs are addresses
	BoundMR   bool // MROptions.QP is honoured; elsewhere every stream of the PD may use the region
	StartUp   bool // the program may choose Rev, ClientServer, RTR, CRC, Markers and MaxULPDU
	WCMarks   bool // WC has Solicited, Inv and InvSTag; elsewhere the owner must call MR.Invalidate
	ReadRight bool // a peer's Read needs RemoteRead; elsewhere any STag of the PD will do
	EndReason bool // QP.Err distinguishes Terminates and resets from a graceful end
	Guard     bool // MROptions.Guard is honoured; elsewhere memory must not change while a peer may read it
	Source    bool // MROptions.Source is honoured; elsewhere it is an ErrUnsupported
	PinsMR    bool // RegMR pins pages: it takes longer the larger the region is
	ReadStats bool // QPStats counts the peer's Reads as they arrive; elsewhere they go unseen
}

// PD is a protection domain: a QP can use only the memory of its own PD.
type PD interface {
	// RegMR registers buf, which must stay mapped and reachable until Dereg has
	// returned. Its TOs start at MR.Base. A zero-length buf is refused.
	RegMR(buf []byte, a Access, o *MROptions) (MR, error)
	// AllocMR makes a region that has neither memory nor a valid STag yet. OpFastReg
	// requests give it both, for up to max bytes at a time.
	AllocMR(max int) (MR, error)
	// AllocMW makes a memory window; OpBindMW requests open it.
	AllocMW() (MW, error)
	CreateSRQ(a SRQInitAttr) (SRQ, error)
	CreateQP(a QPInitAttr) (QP, error)
	Dealloc() error
}

// Access is a set of rights on a region; local read is always included.
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
	// QP, when set, binds the STag to this one stream: use on another one is answered with
	// "not associated with this stream". Only a bound STag may be invalidated by the peer.
	QP QP
	// Base is the TO of buf[0], a number rather than an address where DeviceAttr has
	// AnyBase. MR.Base returns the value in force.
	Base uint64
	// Guard, when set, is held while the software stack copies bytes for an RDMA Read of the
	// region, so that its owner may change them meanwhile. Without it a concurrent change
	// breaks the CRC, and with that the connection. One Read of such a region has at most
	// GuardedMax bytes; a longer one is outside its bounds. A device that reads memory by itself
	// ignores the Guard: what it reads may be torn.
	Guard sync.Locker
	// Source, when set, is what the region consists of in place of memory, say a file: buf must be empty, and
	// RemoteRead is the only right. As with a Guard, one Read has at most GuardedMax bytes. Source.ReadAt is
	// called by a goroutine of the QP, so whatever that QP has to send waits for it. It may be called by several
	// QPs at a time, and after Dereg it is not called any more.
	Source Source
}

// Source is what a region without memory consists of.
type Source interface {
	// ReadAt is that of io.ReaderAt. An error ends the stream of the peer that reads.
	ReadAt(p []byte, off int64) (n int, err error)
	// Size returns the number of bytes. It does not change.
	Size() int64
}

// GuardedMax is the length of the longest Read of a region with a Guard or a Source, in bytes. It bounds what a
// peer can make the software stack copy at a time, and how long that holds the Guard.
const GuardedMax = 64 << 10

// MR is a registered memory region. LKey and RKey are both its STag.
type MR interface {
	STag() STag   // of a region of AllocMR: the latest one from OpFastReg
	Base() uint64 // TO of the first byte, for SGEs and for the peer
	Len() int
	// Invalidate ends remote access, including through windows on the region. When it has
	// returned, no incoming byte is placed any more. The local registration stays until
	// Dereg, except a fast one, which ends as with OpLocalInv.
	Invalidate() error
	// Dereg ends the registration; like Invalidate it waits for placements. It fails with
	// ErrInvalid while windows are open on the region.
	Dereg() error
}

// MW is a memory window: an STag for a part of a region, with rights of its own. It is bound to
// one QP, and taken back by OpLocalInv, by the peer's Send with Invalidate, or by the next bind
// (type 2 windows of the RDMA verbs).
type MW interface {
	STag() STag // of the latest bind posted; 0 before any, and after one that closed it
	// Dealloc ends the window, and closes it if it is open.
	Dealloc() error
}

// SRQInitAttr describes a shared receive queue.
type SRQInitAttr struct {
	MaxRecv int // posted RecvWRs; 0 = 64
	MaxSGE  int // per WR; 0 = 4
}

// SRQ is a receive queue that QPs of one PD share: an arriving message takes the oldest receive,
// whichever QP it arrives on.
type SRQ interface {
	// PostRecv is like QP.PostRecv: the receive holds its place until its WC is polled.
	PostRecv(wr *RecvWR) error
	// Arm requests one EventSRQLimit, when fewer than limit receives are left; 0 requests
	// none.
	Arm(limit int) error
	// Destroy fails while QPs use the queue. Receives that no message took are dropped.
	Destroy() error
}

// QPInitAttr describes a QP to be created. Send and receive CQ may be the same.
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	MaxSend        int // outstanding SendWRs; 0 = 64
	MaxRecv        int // posted RecvWRs; 0 = 64
	MaxSGE         int // per WR; 0 = 4

	// SRQ, when set, supplies the receives; PostRecv is then an error. MaxRecv is the most of
	// them that this QP may hold, from the arrival of a message until its WC is polled. A peer
	// that sends more than that ends its own stream and takes nothing from the others (RFC
	// 5042 §6.4.3.1).
	SRQ SRQ
	// Overcommit lets CreateQP promise more completions than the CQ holds. If it
	// overflows, every QP that uses it ends (EventCQErr).
	Overcommit bool
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
	// Modify requests a state as ibv_modify_qp does. From RTS, StateClosing is a Disconnect
	// that does not wait (with work outstanding: StateError), StateTerminate ends the stream
	// with a Terminate 0/0/00, and StateError is Abort. From IDLE, RTR and CLOSING,
	// StateError is Abort too. From ERROR, StateIdle prepares the QP for another connection
	// once its completions are polled; Modify waits until the last connection is closed. Done
	// is a new channel then, and regions and windows that were bound to the QP stay shut to
	// its next peer. Any other transition is ErrState and changes nothing.
	Modify(s QPState) error
	// Disconnect closes gracefully once the SQ is drained; ctx bounds the wait.
	Disconnect(ctx context.Context) error
	// Abort resets the connection and flushes both queues.
	Abort()
	// Done is closed when the QP has left RTS for good and all WRs are flushed.
	Done() <-chan struct{}
	// Err returns the reason once Done is closed: a *TerminateError (ours or the peer's), an
	// I/O error, or nil after a graceful close by either side. The kernel closes gracefully
	// for a process that was killed: a caller that still waits for an answer has lost its
	// peer, whatever Err returns.
	Err() error
	// Destroy aborts if need be, waits for the QP's goroutines and frees the QP. Its
	// completions that have not been polled are removed from the CQs.
	Destroy() error
	Stats() QPStats
}

// CQ is a completion queue.
type CQ interface {
	// Poll moves up to len(dst) completions into dst.
	Poll(dst []WC) int
	// Wait returns when at least one completion can be polled, the CQ is closed (ErrClosed),
	// has overflowed and is empty (ErrLimit), or ctx ends. SetWaiting says how it waits; by
	// default it blocks and does not spin.
	Wait(ctx context.Context) error
	// SetWaiting makes the Waits that begin from now on wait as w says. A process has at most
	// GOMAXPROCS less one spinning goroutines: Waits beyond that block, whatever w says. One
	// that reads the connection itself may spin on the only processor.
	SetWaiting(w Waiting) error
	// ReqNotify arms the queue once: the next completion, or with solicitedOnly the next one
	// that is solicited or failed, puts one token into Events. Completions already in the
	// queue do not: arm, poll, then wait for Events. An overflow puts in a token.
	ReqNotify(solicitedOnly bool) error
	// Events returns the channel on which the tokens of ReqNotify arrive. It is never closed.
	Events() <-chan struct{}
	Close() error
}
