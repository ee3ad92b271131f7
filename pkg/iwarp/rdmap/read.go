package rdmap

import (
	"encoding/binary"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
)

// ReadRequestSize is the size in bytes of a Read Request's RDMAP header, and
// ReadRequestSegment that of its only segment.
const (
	ReadRequestSize    = readReqSize
	ReadRequestSegment = ddp.UntaggedSize + ReadRequestSize
)

// ReadRequest is the RDMAP header of an RDMA Read Request (RFC 5040 §4.4).
//
//	0          4        12     16        20       28 bytes
//	| SinkSTag | SinkTO | Size | SrcSTag | SrcTO |
type ReadRequest struct {
	SinkSTag ddp.STag // both are copied unchanged into the Response
	SinkTO   uint64
	Size     uint32 // bytes
	SrcSTag  ddp.STag
	SrcTO    uint64
}

// Put writes the header to b, which must have room for ReadRequestSize bytes.
func (r *ReadRequest) Put(b []byte) {
	_ = b[ReadRequestSize-1]
	binary.BigEndian.PutUint32(b, uint32(r.SinkSTag))
	binary.BigEndian.PutUint64(b[4:], r.SinkTO)
	binary.BigEndian.PutUint32(b[12:], r.Size)
	binary.BigEndian.PutUint32(b[16:], uint32(r.SrcSTag))
	binary.BigEndian.PutUint64(b[20:], r.SrcTO)
}

// ParseReadRequest reads a header of at least ReadRequestSize bytes.
func ParseReadRequest(b []byte) ReadRequest {
	_ = b[ReadRequestSize-1]
	return ReadRequest{
		SinkSTag: ddp.STag(binary.BigEndian.Uint32(b)),
		SinkTO:   binary.BigEndian.Uint64(b[4:]),
		Size:     binary.BigEndian.Uint32(b[12:]),
		SrcSTag:  ddp.STag(binary.BigEndian.Uint32(b[16:])),
		SrcTO:    binary.BigEndian.Uint64(b[20:]),
	}
}

// Expected is the oldest request of ours that the peer has not answered.
type Expected struct {
	Op   Opcode   // OpReadResponse or OpAtomicResponse
	ID   uint32   // of an atomic
	STag ddp.STag // the sink that a Read's Response must name
	TO   uint64
	Size uint32 // bytes
}

// ResponseFault is the reason why a Read or atomic of ours fails.
type ResponseFault uint8

// Response faults.
const (
	ResponseBad   ResponseFault = iota // not what was requested
	ResponseLocal                      // PlaceResponse returned FaultLocal
)

// readRequest handles a Read Request. The whole message is one segment, as ours are: it fits the
// smallest MULPDU.
func (r *Receiver) readRequest(h *ddp.Untagged, seg []byte) error {
	if !r.isReadRTR(seg) && !r.c.RequestRoom() {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedNoBuffer}
	}
	if h.MO != 0 {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedInvalidMO}
	}
	if !h.Last || len(seg) != ReadRequestSegment {
		return errShortSegment
	}
	req := ParseReadRequest(seg[ddp.UntaggedSize:])
	if f := r.c.ReadRequest(req, seg); f != FaultNone {
		return protectionError(f)
	}
	r.msn[QNReadRequest]++
	if !r.isReadRTR(seg) { // which belongs to no Read
		r.Reads++
	}
	r.wrote = false
	return nil
}

// isReadRTR reports whether seg, a Read Request, is an RTR. It is answered whatever our IRD is: a
// peer may not have been told that it needs one.
func (r *Receiver) isReadRTR(seg []byte) bool {
	return r.rtr && len(seg) == ReadRequestSegment && ParseReadRequest(seg[ddp.UntaggedSize:]).Size == 0
}

// protectionError returns the error code of a refused Read (RFC 5040 §7.2).
func protectionError(f Fault) error {
	v := &Violation{Type: TypeProtection}
	switch f {
	case FaultSTag:
		v.Code = ProtInvalidSTag
	case FaultStream:
		v.Code = ProtStream
	case FaultAccess:
		v.Code = ProtAccess
	case FaultWrap:
		v.Code = ProtWrap
	case FaultBounds:
		v.Code = ProtBounds
	default:
		v.Type, v.Code = TypeOperation, OpCodeCatastrophic
	}
	return v
}

// TerminateRead reports that the source of a Read, requested by seg, vanished when sent bytes of
// the Response had been sent: "the RDMA Read Request Header is advanced by what was sent" (after
// RFC 5040 §4.8).
func TerminateRead(f Fault, seg []byte, sent uint64) Terminate {
	t := TerminateFor(protectionError(f), append([]byte(nil), seg...))
	req := ParseReadRequest(t.ReadRequest)
	req.SinkTO += sent
	req.SrcTO += sent
	req.Size -= uint32(sent)
	req.Put(t.ReadRequest)
	return t
}

// readResponse handles a segment of a Read Response. "A Read Response is only accepted for the
// oldest Read, into exactly the place that was asked for" (after RFC 5042 §6.2.1).
func (r *Receiver) readResponse(seg []byte) error {
	h := ddp.ParseTagged(seg)
	p := seg[ddp.TaggedSize:]
	m := &r.tagged
	if !m.open {
		var ok bool
		if r.want, ok = r.c.NextResponse(); !ok || r.want.Op != OpReadResponse {
			return &Violation{TypeOperation, OpCodeUnexpected}
		}
		*m = message{open: true, op: OpReadResponse}
	}
	got := m.got + uint64(len(p))
	code := uint8(0)
	switch {
	case r.want.Size == 0 && len(p) > 0: // whatever its STag and TO, which are not checked
		code = ddp.TaggedBounds
	case len(p) > 0 && h.STag != r.want.STag:
		code = ddp.TaggedInvalidSTag
	case len(p) > 0 && h.TO != r.want.TO+m.got,
		got > uint64(r.want.Size), h.Last && got < uint64(r.want.Size):
		code = ddp.TaggedBounds
	case len(p) > 0 && r.c.PlaceResponse(m.got, p) != FaultNone:
		r.c.FailResponse(ResponseLocal)
		return &ddp.Violation{Type: ddp.TypeTagged, Code: ddp.TaggedInvalidSTag}
	default:
		m.got = got
		r.Bytes += uint64(len(p))
		if h.Last {
			*m = message{}
			r.wrote = false
			r.c.DeliverResponse()
		}
		return nil
	}
	r.c.FailResponse(ResponseBad)
	return &ddp.Violation{Type: ddp.TypeTagged, Code: code}
}
