package rdmap

import (
	"encoding/binary"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
)

// Sizes in bytes of what RFC 7306 puts after the DDP header. Each of its messages is one
// segment.
const (
	ImmediateSize      = 8
	AtomicRequestSize  = 52
	AtomicResponseSize = 12
)

// AtomicOp is an atomic operation (RFC 7306 §5.2.1).
type AtomicOp uint8

// Atomic operations; 1 is reserved.
const (
	FetchAdd AtomicOp = 0
	CmpSwap  AtomicOp = 2
)

// AtomicRequest is the RDMAP header of an Atomic Request (RFC 7306 §5.2.1).
//
//	0               4    8      12   20     28     36        44            52 bytes
//	| reserved | op | ID | STag | TO | Data | Mask | Compare | CompareMask |
//
// For FetchAdd, Data and Mask are the addend and the highest bits of its fields; for CmpSwap,
// the new value and the bits to replace.
type AtomicRequest struct {
	Op                   AtomicOp
	ID                   uint32 // echoed by the response
	STag                 ddp.STag
	TO                   uint64
	Data, Mask           uint64
	Compare, CompareMask uint64
}

// Put writes the header to b, which has room for AtomicRequestSize bytes. "The
// Compare Data of a FetchAdd is zero and its mask all ones" (after RFC 7306
// §5.2.1).
func (r *AtomicRequest) Put(b []byte) {
	_ = b[AtomicRequestSize-1]
	compare, mask := r.Compare, r.CompareMask
	if r.Op == FetchAdd {
		compare, mask = 0, ^uint64(0)
	}
	binary.BigEndian.PutUint32(b, uint32(r.Op))
	binary.BigEndian.PutUint32(b[4:], r.ID)
	binary.BigEndian.PutUint32(b[8:], uint32(r.STag))
	binary.BigEndian.PutUint64(b[12:], r.TO)
	binary.BigEndian.PutUint64(b[20:], r.Data)
	binary.BigEndian.PutUint64(b[28:], r.Mask)
	binary.BigEndian.PutUint64(b[36:], compare)
	binary.BigEndian.PutUint64(b[44:], mask)
}

// ParseAtomicRequest reads a header of at least AtomicRequestSize bytes. Reserved
// bits are ignored.
func ParseAtomicRequest(b []byte) AtomicRequest {
	_ = b[AtomicRequestSize-1]
	return AtomicRequest{
		Op:          AtomicOp(b[3] & 0xf),
		ID:          binary.BigEndian.Uint32(b[4:]),
		STag:        ddp.STag(binary.BigEndian.Uint32(b[8:])),
		TO:          binary.BigEndian.Uint64(b[12:]),
		Data:        binary.BigEndian.Uint64(b[20:]),
		Mask:        binary.BigEndian.Uint64(b[28:]),
		Compare:     binary.BigEndian.Uint64(b[36:]),
		CompareMask: binary.BigEndian.Uint64(b[44:]),
	}
}

// Apply returns the new value of a word that was old.
func (r *AtomicRequest) Apply(old uint64) uint64 {
	if r.Op == CmpSwap {
		if (old^r.Compare)&r.CompareMask != 0 {
			return old
		}
		return old&^r.Mask | r.Data&r.Mask
	}
	// A field's highest bits are added without their carry (RFC 7306 §5.1.1). The carry into them
	// cannot go further, as each is alone in its place.
	low := ^r.Mask
	return (old&low + r.Data&low) ^ (old^r.Data)&r.Mask
}

// AtomicResponse is the header of an Atomic Response (RFC 7306 §5.2.2).
//
//	0    4       12 bytes
//	| ID | value |
type AtomicResponse struct {
	ID  uint32 // of the request
	Old uint64 // value of the word before
}

// Put writes the header to b, which has room for AtomicResponseSize bytes.
func (r *AtomicResponse) Put(b []byte) {
	_ = b[AtomicResponseSize-1]
	binary.BigEndian.PutUint32(b, r.ID)
	binary.BigEndian.PutUint64(b[4:], r.Old)
}

// ParseAtomicResponse reads a header of at least AtomicResponseSize bytes.
func ParseAtomicResponse(b []byte) AtomicResponse {
	_ = b[AtomicResponseSize-1]
	return AtomicResponse{ID: binary.BigEndian.Uint32(b), Old: binary.BigEndian.Uint64(b[4:])}
}

// atomicRequest handles an Atomic Request.
func (r *Receiver) atomicRequest(h *ddp.Untagged, seg []byte) error {
	if !r.c.RequestRoom() {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedNoBuffer}
	}
	if h.MO != 0 {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedInvalidMO}
	}
	if !h.Last || len(seg) != ddp.UntaggedSize+AtomicRequestSize {
		return errShortSegment
	}
	req := ParseAtomicRequest(seg[ddp.UntaggedSize:])
	if req.Op != FetchAdd && req.Op != CmpSwap {
		return &Violation{TypeOperation, OpCodeUnexpected}
	}
	if req.TO%8 != 0 {
		return protectionError(FaultAlign)
	}
	if f := r.c.AtomicRequest(req); f != FaultNone {
		return protectionError(f)
	}
	r.msn[QNReadRequest]++
	r.Atomics++
	r.wrote = false
	return nil
}

// atomicResponse handles an Atomic Response.
func (r *Receiver) atomicResponse(h *ddp.Untagged, seg []byte) error {
	want, ok := r.c.NextResponse()
	switch {
	case !ok || want.Op != OpAtomicResponse:
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedNoBuffer}
	case h.MO != 0:
		r.c.FailResponse(ResponseBad)
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedInvalidMO}
	case !h.Last || len(seg) != ddp.UntaggedSize+AtomicResponseSize:
		r.c.FailResponse(ResponseBad)
		return errShortSegment
	}
	rsp := ParseAtomicResponse(seg[ddp.UntaggedSize:])
	if rsp.ID != want.ID {
		r.c.FailResponse(ResponseBad)
		return errShortSegment
	}
	binary.NativeEndian.PutUint64(r.old[:], rsp.Old)
	if r.c.PlaceResponse(0, r.old[:]) != FaultNone {
		r.c.FailResponse(ResponseLocal)
		return &ddp.Violation{Type: ddp.TypeLocal}
	}
	r.msn[QNAtomicResponse]++
	r.wrote = false
	r.c.DeliverResponse()
	return nil
}

// immediate handles Immediate Data, which has consumed a receive like a Send. "It
// carries exactly 8 octets" (after RFC 7306 §6.3).
func (r *Receiver) immediate(op Opcode, h *ddp.Untagged, seg []byte) error {
	if !h.Last || len(seg) != ddp.UntaggedSize+ImmediateSize {
		return errShortSegment
	}
	d := Delivery{Op: op, AfterWrite: r.wrote, Imm: [ImmediateSize]byte(seg[ddp.UntaggedSize:])}
	if r.wrote {
		d.Len = r.wroteLen
	}
	r.untagged = message{}
	r.msn[QNSend]++
	r.Imms++
	r.wrote = false
	r.c.Deliver(d)
	return nil
}
