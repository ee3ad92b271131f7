package rdmap

import (
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// Fault is the reason why the owner of the memory refuses an access. The order of the constants
// is the order of the checks (RFC 5040 §7.1).
type Fault uint8

// Faults.
const (
	FaultNone   Fault = iota
	FaultSTag         // unknown or invalidated
	FaultStream       // of another protection domain, or bound to another stream
	FaultAccess       // the right is missing
	FaultWrap         // TO + length passes 2^64
	FaultBounds       // outside the region
	FaultAlign        // an atomic's word is not at a multiple of 8
	FaultLocal        // our own buffer is no longer usable
)

// ReceiveFault is the reason why a receive that a message had begun to fill fails.
type ReceiveFault uint8

// Receive faults.
const (
	ReceiveTooLong    ReceiveFault = iota // the message is longer than the receive
	ReceiveLocal                          // PlaceReceive returned FaultLocal
	ReceiveInvalidate                     // its STag cannot be invalidated
)

// Delivery is an untagged message on queue 0 that has arrived completely.
type Delivery struct {
	Op      Opcode
	Len     uint32   // bytes
	InvSTag ddp.STag // invalid by now; only with Op.Invalidates

	// Of Immediate Data. Len is that of the Write right before it, if there is one.
	Imm        [ImmediateSize]byte
	AfterWrite bool
}

// Consumer owns the memory and the receive queue of a stream. Filled calls its methods, in the
// order of the stream; they must not block.
type Consumer interface {
	// Place copies p, which is not empty, to offset to of the region stag. On a fault nothing has
	// been written.
	Place(stag ddp.STag, to uint64, p []byte) Fault
	// NextReceive takes the oldest posted receive for the message that begins now and returns its
	// room in bytes; ok is false when there is none.
	NextReceive() (room uint64, ok bool)
	// PlaceReceive copies p to offset mo of that receive. p fits.
	PlaceReceive(mo uint32, p []byte) Fault
	// Invalidate ends the peer's access to a region; it acts before Deliver.
	Invalidate(stag ddp.STag) Fault
	// Deliver completes the receive.
	Deliver(d Delivery)
	// FailReceive completes it with an error; the stream ends.
	FailReceive(f ReceiveFault)

	// RequestRoom reports whether another Read or Atomic Request can be held: fewer than IRD are.
	RequestRoom() bool
	// ReadRequest checks a Read Request, unless its size is 0, and holds it. seg is the segment in
	// which it arrived, and must not be kept.
	ReadRequest(r ReadRequest, seg []byte) Fault
	// AtomicRequest checks an Atomic Request, executes it, and holds the word's previous value. Its
	// TO is a multiple of 8.
	AtomicRequest(r AtomicRequest) Fault
	// NextResponse returns what the Response that begins now must look like: it answers the
	// oldest unanswered request of ours. ok is false when there is none.
	NextResponse() (e Expected, ok bool)
	// PlaceResponse copies p to offset off of that request's sink. p fits; an
	// atomic's value is 8 bytes in native order.
	PlaceResponse(off uint64, p []byte) Fault
	// DeliverResponse completes the request.
	DeliverResponse()
	// FailResponse completes it with an error; the stream ends.
	FailResponse(f ResponseFault)
}

// PeerTerminate is the error of a stream that the peer has terminated. No answer may be sent
// (RFC 5040 §5.4).
type PeerTerminate struct {
	Terminate        // its slices are slices of Raw
	Raw       []byte // the payload as it arrived
}

func (e *PeerTerminate) Error() string { return "rdmap: the peer terminated: " + e.String() }

var (
	errBadTerminate = errors.New("rdmap: malformed Terminate")
	errShortSegment = &Violation{TypeOperation, OpCodeUnspecified}
)

// Receiver is the receiving half of a stream in full operation. Bytes go in by Want and Filled;
// calls of the Consumer's methods come out. It is owned by one goroutine.
//
// After an error nothing more is placed or delivered: discard the Receiver once Answer has been
// asked.
type Receiver struct {
	rd  *mpa.Reader
	c   Consumer
	seg []byte // the current segment, on which Answer reports
	err error

	msn      [queues]uint32 // next expected, per queue (RFC 5041 §4.3: from 1)
	setup    bool           // the first FPDU may be a Terminate of enhanced start-up
	rtr      bool           // the first FPDU may be an RTR
	rtrSend  bool           // even by a Send
	tagged   message        // unfinished tagged message
	untagged message        // unfinished untagged message on queue 0
	room     uint64         // of its receive
	want     Expected       // of the Read whose Response is the unfinished tagged message
	wrote    bool           // the last message was a Write
	wroteLen uint32         // its bytes
	old      [8]byte        // of the current Atomic Response

	// Extensions admits the messages of RFC 7306. Set it before the first byte.
	Extensions bool

	// Counters, for the owner to read.
	Sends, Writes  uint64 // messages
	Reads, Atomics uint64 // Requests
	Imms           uint64 // messages of Immediate Data
	Bytes          uint64 // payload
}

type message struct {
	open bool
	op   Opcode
	got  uint64 // bytes so far
}

// NewReceiver returns the receiving half of a new stream. crc is what start-up agreed on.
// enhancedResponder says that we answered an enhanced Request, whose sender may give up with a
// Terminate of start-up.
func NewReceiver(c Consumer, crc, enhancedResponder bool) *Receiver {
	r := &Receiver{rd: mpa.NewReader(crc), c: c, setup: enhancedResponder, rtr: enhancedResponder}
	for q := range r.msn {
		r.msn[q] = 1
	}
	return r
}

// ExpectMarkers makes r remove markers from the stream. Call it first.
func (r *Receiver) ExpectMarkers() { r.rd.ExpectMarkers() }

// ExpectRTR says that the first FPDU may be the message of length zero by which an initiator
// says that it is ready; such a message belongs to no request. A Write and a Read are accepted
// as one even if none was agreed on, as some RNICs send them with revision 1. A Send, which could
// be the application's, is accepted only with send.
func (r *Receiver) ExpectRTR(send bool) { r.rtr, r.rtrSend = true, send }

// Want returns where the next bytes of the stream belong. It is never empty, and valid until
// Filled.
func (r *Receiver) Want() []byte { return r.rd.Want() }

// FPDUs returns the number of FPDUs received with a correct CRC.
func (r *Receiver) FPDUs() uint64 { return r.rd.FPDUs }

// Boundary reports whether the stream is between two messages. Only there may the peer close it
// gracefully.
func (r *Receiver) Boundary() bool {
	return !r.rd.Partial() && !r.tagged.open && !r.untagged.open
}

// Release returns borrowed memory once the Receiver is no longer needed.
func (r *Receiver) Release() { r.rd.Release() }

// Filled processes n bytes that have been put where Want said. An error ends the stream: it is
// the breach of a rule (see Answer), or a *PeerTerminate.
func (r *Receiver) Filled(n int) error {
	if r.err != nil {
		return r.err
	}
	r.rd.Filled(n)
	for {
		seg, err := r.rd.Next()
		if err == nil && seg == nil {
			return nil
		}
		r.seg = seg
		if err == nil {
			err = r.segment(seg)
		}
		if err != nil {
			r.err = err
			return err
		}
		r.setup, r.rtr = false, false
	}
}

// Answer returns the Terminate to send about the error that Filled returned. ok is false if none
// may be sent. Encode it before the Receiver is used again, as it refers to the segment at fault.
func (r *Receiver) Answer(err error) (t Terminate, ok bool) {
	switch err.(type) {
	case *mpa.Error, *ddp.Violation, *Violation:
		return TerminateFor(err, r.seg), true
	}
	return Terminate{}, false
}

// segment handles one DDP segment. It checks in the order of RFC 5040 §7.2 and RFC 5041 §7.1:
// what the segment is, whether it fits the stream, then its payload.
func (r *Receiver) segment(seg []byte) error {
	if len(seg) < 2 || len(seg) < ddp.TaggedSize || !ddp.IsTagged(seg) && len(seg) < ddp.UntaggedSize {
		return errShortSegment
	}
	tagged := ddp.IsTagged(seg)
	if ddp.VersionOf(seg) != ddp.Version {
		if tagged {
			return &ddp.Violation{Type: ddp.TypeTagged, Code: ddp.TaggedVersion}
		}
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedBadVersion}
	}
	if seg[1]&maskVersion != ctrlVersion {
		return &Violation{TypeOperation, OpCodeVersion}
	}
	op := Opcode(seg[1] & maskOpcode)
	last := OpTerminate
	if r.Extensions {
		last = OpAtomicResponse
	}
	if op > last || op.tagged() != tagged {
		return &Violation{TypeOperation, OpCodeUnexpected}
	}
	if tagged {
		return r.taggedSegment(op, seg)
	}
	return r.untaggedSegment(op, seg)
}

func (r *Receiver) taggedSegment(op Opcode, seg []byte) error {
	if r.tagged.open && r.tagged.op != op {
		return &Violation{TypeOperation, OpCodeUnexpected}
	}
	if op == OpReadResponse {
		return r.readResponse(seg)
	}
	h := ddp.ParseTagged(seg)
	// "If the DDP Segment is of zero length, the STag and TO MUST NOT be
	// checked" (after RFC 5041 §5.2): such a Write places nothing.
	if p := seg[ddp.TaggedSize:]; len(p) > 0 {
		if err := taggedError(r.c.Place(h.STag, h.TO, p)); err != nil {
			return err
		}
		r.Bytes += uint64(len(p))
	}
	m := &r.tagged
	m.open, m.op, m.got = true, op, m.got+uint64(len(seg)-ddp.TaggedSize)
	if !h.Last {
		return nil
	}
	r.wrote, r.wroteLen = !r.rtr || m.got > 0, uint32(m.got)
	*m = message{}
	if !(r.rtr && len(seg) == ddp.TaggedSize) { // an RTR counts as no Write
		r.Writes++
	}
	return nil
}

// taggedError returns the error code of a refused Write (RFC 5041 §7.1). DDP has no code for a
// missing right: the STag is then not valid for this use.
func taggedError(f Fault) error {
	if f == FaultNone {
		return nil
	}
	v := &ddp.Violation{Type: ddp.TypeTagged}
	switch f {
	case FaultSTag, FaultAccess:
		v.Code = ddp.TaggedInvalidSTag
	case FaultStream:
		v.Code = ddp.TaggedStream
	case FaultWrap:
		v.Code = ddp.TaggedWrap
	case FaultBounds:
		v.Code = ddp.TaggedBounds
	default:
		v.Type = ddp.TypeLocal
	}
	return v
}

func (r *Receiver) untaggedSegment(op Opcode, seg []byte) error {
	h := ddp.ParseUntagged(seg)
	if op == OpTerminate {
		return r.terminated(&h, seg)
	}
	m := &r.untagged
	if m.open && m.op != op {
		return &Violation{TypeOperation, OpCodeUnexpected}
	}
	if h.QN != op.queue() {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedInvalidQN}
	}
	if h.MSN != r.msn[h.QN] {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedMSNRange}
	}
	switch op {
	case OpReadRequest:
		return r.readRequest(&h, seg)
	case OpAtomicRequest:
		return r.atomicRequest(&h, seg)
	case OpAtomicResponse:
		return r.atomicResponse(&h, seg)
	}
	if r.rtr && r.rtrSend && op == OpSend && h.Last && h.MO == 0 && len(seg) == ddp.UntaggedSize {
		r.msn[QNSend]++ // it uses a number, but no receive
		return nil
	}
	if !m.open {
		room, ok := r.c.NextReceive()
		if !ok {
			return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedNoBuffer}
		}
		*m = message{open: true, op: op}
		r.room = min(room, ddp.MaxMessage)
	}
	if uint64(h.MO) != m.got {
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedInvalidMO}
	}
	if op == OpImmediate || op == OpImmediateSE {
		return r.immediate(op, &h, seg)
	}
	p := seg[ddp.UntaggedSize:]
	if m.got+uint64(len(p)) > r.room {
		r.c.FailReceive(ReceiveTooLong)
		return &ddp.Violation{Type: ddp.TypeUntagged, Code: ddp.UntaggedTooLong}
	}
	if len(p) > 0 && r.c.PlaceReceive(h.MO, p) != FaultNone {
		r.c.FailReceive(ReceiveLocal)
		return &ddp.Violation{Type: ddp.TypeLocal}
	}
	m.got += uint64(len(p))
	r.Bytes += uint64(len(p))
	if !h.Last {
		return nil
	}
	return r.deliver(op, &h)
}

// deliver ends a Send. An STag is invalidated before the message is delivered (RFC 5040 §5.3), so
// that the reader of the completion also owns the memory.
func (r *Receiver) deliver(op Opcode, h *ddp.Untagged) error {
	d := Delivery{Op: op, Len: uint32(r.untagged.got)}
	if op.Invalidates() {
		d.InvSTag = ddp.STag(h.ULPWord)
		switch r.c.Invalidate(d.InvSTag) {
		case FaultNone:
		case FaultSTag:
			r.c.FailReceive(ReceiveInvalidate)
			return &Violation{TypeOperation, OpCodeCannotInvalid}
		default:
			r.c.FailReceive(ReceiveInvalidate)
			return &Violation{TypeProtection, ProtCannotInvalid}
		}
	}
	r.untagged = message{}
	r.wrote = false
	r.msn[QNSend]++ // wraps from ffffffff to 0 (RFC 5041 §4.3)
	r.Sends++
	r.c.Deliver(d)
	return nil
}

// terminated handles a Terminate. It may arrive amid an unfinished message, whose sender gave up.
// A malformed one is a lost connection: a Terminate is never answered by a Terminate.
func (r *Receiver) terminated(h *ddp.Untagged, seg []byte) error {
	if h.QN != QNTerminate || h.MSN != r.msn[QNTerminate] || h.MO != 0 || !h.Last {
		return errBadTerminate
	}
	raw := append([]byte(nil), seg[ddp.UntaggedSize:]...)
	t, err := ParseTerminate(raw, r.setup)
	if err != nil {
		return errBadTerminate
	}
	return &PeerTerminate{Terminate: t, Raw: raw}
}

// Scratch returns memory to read unwanted bytes into once Filled has failed.
func (r *Receiver) Scratch() []byte {
	r.rd.Release()
	return r.rd.Want()
}
