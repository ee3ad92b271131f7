package iwarp

// SGE is one scatter/gather element: Length bytes at TO Addr of the region LKey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   STag
}

// Opcode is the operation of a work request or completion.
type Opcode uint8

// Opcodes of requests, then of completions only.
const (
	OpSend Opcode = iota
	OpSendInv
	OpWrite
	OpRecv // a completion: a Send, or Immediate Data alone
	OpRead
	OpLocalInv
	OpImmediate    // Immediate Data alone (RFC 7306 §6)
	OpWriteImm     // a Write followed by Immediate Data
	OpCmpSwap      // RFC 7306 §5.1.2
	OpFetchAdd     // RFC 7306 §5.1.1
	OpFastReg      // gives a region of AllocMR its memory
	OpBindMW       // opens a memory window
	OpRecvWriteImm // a completion: Immediate Data right after a Write
)

// ImmSize is the size of Immediate Data in bytes. The 4 bytes of verbs are the first four, in
// network order, with the rest zero.
const ImmSize = 8

// SendFlags modify a SendWR.
type SendFlags uint8

// Flags of a SendWR.
const (
	Unsignaled SendFlags = 1 << iota // no completion on success
	Solicited                        // Send with Solicited Event
	Fence                            // waits for earlier Reads
	Inline                           // payload is copied at posting: the memory may be reused at once
	More                             // another PostSend follows at once: both may be sent in one system call
)

// SendWR is a send-queue work request.
type SendWR struct {
	ID      uint64
	Op      Opcode
	Flags   SendFlags
	SGL     []SGE  // copied at posting; the memory it names is not
	Data    []byte // with Inline, instead of SGL: the payload itself, at most DeviceAttr.MaxInline bytes
	STag    STag   // OpWrite, OpWriteImm, OpRead, atomics: the peer's region
	TO      uint64 // offset in it; of an atomic a multiple of 8
	InvSTag STag   // OpSendInv: the peer's region to invalidate; OpLocalInv: ours

	Imm    [ImmSize]byte // OpImmediate, which has no other payload; OpWriteImm
	Atomic AtomicArgs    // OpCmpSwap, OpFetchAdd; the old value goes to SGL, 8 bytes in native order
	Reg    *FastReg      // OpFastReg; copied at posting
	Bind   *BindMW       // OpBindMW; copied at posting
}

// AtomicArgs are the operands of an atomic, in native byte order (RFC 7306 §5.1).
type AtomicArgs struct {
	// Add is FetchAdd's addend. A set bit in AddMask is the highest one of a field,
	// whose carry is dropped; 0 = one field of 64 bits.
	Add, AddMask uint64
	// CmpSwap compares the bits in CompareMask and, if they are equal, replaces those in
	// SwapMask.
	Compare, CompareMask, Swap, SwapMask uint64
}

// FastReg registers memory by a work request: it takes effect in the order of the SQ, and the
// region has a new STag (MR.STag) as soon as PostSend has returned.
//
// For peers the region belongs to the stream whose request registered it, as with MROptions.QP,
// so that OpLocalInv or a Send with Invalidate of that peer ends it. If the region is still
// registered when its turn comes, the request fails with StatusLocProtErr.
type FastReg struct {
	MR     MR // of AllocMR, and not registered at that moment (new, or after an OpLocalInv)
	Buf    []byte
	Access Access
	Base   uint64 // TO of Buf[0]
}

// BindMW opens MW, on the QP it is posted to, for Len bytes of MR from TO Addr on. The window has
// a new STag (MW.STag) as soon as PostSend has returned, the TOs of MR, and remote rights as in
// Access. MR keeps its own rights and needs none of these, except LocalWrite where the window may
// be written. A region that cannot carry the window is ErrInvalid at once or, where that depends
// on earlier requests, StatusLocProtErr. While the window is open, requests and peers that would
// invalidate MR fail.
type BindMW struct {
	MW     MW
	MR     MR
	Addr   uint64
	Len    uint64 // 0 closes the window
	Access Access
}

// RecvWR is a receive-queue work request.
type RecvWR struct {
	ID  uint64
	SGL []SGE
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
	ByteLen   uint32 // of a receive: bytes that arrived; of a Read: bytes read
	Inv       bool   // a Send with Invalidate: InvSTag is invalid by now
	InvSTag   STag
	Solicited bool
	HasImm    bool // Imm is Immediate Data; ByteLen then counts the Write before it
	Imm       [ImmSize]byte
}
