package rdmap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// HdrCt bits of a Terminate (RFC 5040 §4.8).
const (
	hasLength = 0x80 // M: the DDP Segment Length is valid
	hasDDP    = 0x40 // D: length and terminated DDP header are there
	hasRDMAP  = 0x20 // R: the terminated Read Request header is there
)

// Terminate is the last message of a stream. It says what went wrong, and holds the header of the
// segment at fault (RFC 5040 §4.8).
//
//	0              1      2                4           6
//	| layer | type | code | HdrCt and 0s  | seg. length | DDP header | Read Request header |
//	                                       only with D                  only with R
type Terminate struct {
	Layer, Type, Code uint8
	SegLen            uint16 // of the offending segment; valid with DDP
	DDP               []byte // its header, 14 or 18 bytes; nil = absent
	ReadRequest       []byte // its RDMAP header, 28 bytes; nil = absent
	PeerLayout        bool   // decoded from the bit order that Linux siw sends
}

// Append appends the encoding of t, the payload of the untagged message, to b.
func (t *Terminate) Append(b []byte) []byte {
	hdrct := byte(0)
	if t.DDP != nil {
		hdrct |= hasLength | hasDDP
	}
	if t.ReadRequest != nil {
		hdrct |= hasRDMAP
	}
	b = append(b, t.Layer<<4|t.Type&0xf, t.Code, hdrct, 0)
	if t.DDP != nil {
		b = binary.BigEndian.AppendUint16(b, t.SegLen)
		b = append(b, t.DDP...)
	}
	return append(b, t.ReadRequest...)
}

// Meaning returns the code in words.
func (t *Terminate) Meaning() string {
	switch t.Layer {
	case LayerRDMAP:
		return codeText(t.Layer, t.Type, t.Code)
	case LayerDDP:
		return (&ddp.Violation{Type: t.Type, Code: t.Code}).Error()
	}
	return (&mpa.Error{Code: t.Code}).Error()
}

func (t *Terminate) String() string {
	return fmt.Sprintf("%d/%d/%02x %s", t.Layer, t.Type, t.Code, t.Meaning())
}

var errShortTerminate = errors.New("rdmap: Terminate shorter than its 4 bytes")

// ParseTerminate decodes the payload of a Terminate. It tolerates headers that
// are cut short and a wrong segment length. The slices in the result are slices
// of p.
//
// Linux siw sends the fields in the order of little-endian bit fields: type and
// layer swapped, HdrCt in the low bits. Its messages are told apart by HdrCt,
// where there is one, and else by which reading is a registered code. 0/2/05-07
// and 2/0/05-07 are each other's mirror image: the latter are sent by an
// initiator that gives up in enhanced start-up, so setup says which it can be.
func ParseTerminate(p []byte, setup bool) (Terminate, error) {
	if len(p) < minTerminate {
		return Terminate{}, errShortTerminate
	}
	t := Terminate{Layer: p[0] >> 4, Type: p[0] & 0xf, Code: p[1]}
	hdrct := p[2]
	low := hdrct & 0x07
	swapped := low != 0 || !registered(t.Layer, t.Type, t.Code) && registered(t.Type, t.Layer, t.Code)
	if hdrct == 0 && t.Code >= mpa.CodeEnhanced && t.Code <= mpa.CodeRTR {
		switch {
		case setup:
			swapped = swapped || t.Layer == LayerRDMAP && t.Type == TypeOperation
		default:
			swapped = swapped || t.Layer == LayerMPA && t.Type == 0
		}
	}
	if swapped {
		t.Layer, t.Type = t.Type, t.Layer
		t.PeerLayout = true
		hdrct = 0
		for i, bit := range []byte{hasLength, hasDDP, hasRDMAP} {
			if low&(1<<i) != 0 {
				hdrct |= bit
			}
		}
	}
	rest := p[minTerminate:]
	if hdrct&hasDDP == 0 || len(rest) < 2 {
		return t, nil
	}
	t.SegLen = binary.BigEndian.Uint16(rest)
	rest = rest[2:]
	if len(rest) == 0 {
		return t, nil
	}
	n := ddp.UntaggedSize
	if ddp.IsTagged(rest) {
		n = ddp.TaggedSize
	}
	if len(rest) < n {
		return t, nil
	}
	t.DDP = rest[:n]
	if rest = rest[n:]; hdrct&hasRDMAP != 0 && len(rest) >= readReqSize {
		t.ReadRequest = rest[:readReqSize]
	}
	return t, nil
}

// registered reports whether layer/type/code is in the registry (RFC 6580).
func registered(layer, typ, code uint8) bool {
	switch layer<<4 | typ {
	case 0x00, 0x10, 0x13:
		return true
	case 0x01:
		return code <= ProtWrap || code == ProtCannotInvalid || code == codeUnspecified
	case 0x02:
		return code >= OpCodeVersion && code <= OpCodeCannotInvalid || code == codeUnspecified
	case 0x11:
		return code <= ddp.TaggedVersion
	case 0x12:
		return code >= ddp.UntaggedInvalidQN && code <= ddp.UntaggedBadVersion
	case 0x20:
		return code >= mpa.CodeClosed && code <= mpa.CodeRTR
	}
	return false
}

// TerminateFor returns the Terminate that reports err about the segment seg (nil when no segment
// is to blame). The headers follow RFC 5040 Figure 10; the slices are slices of seg.
func TerminateFor(err error, seg []byte) Terminate {
	var (
		mv *mpa.Error
		dv *ddp.Violation
		rv *Violation
	)
	switch {
	case errors.As(err, &mv):
		return Terminate{Layer: LayerMPA, Code: mv.Code}
	case errors.As(err, &dv):
		t := Terminate{Layer: LayerDDP, Type: dv.Type, Code: dv.Code}
		if dv.Type != ddp.TypeLocal {
			t.attach(seg)
		}
		return t
	case errors.As(err, &rv):
		t := Terminate{Layer: LayerRDMAP, Type: rv.Type, Code: rv.Code}
		switch {
		case rv.Type == TypeProtection:
			t.attach(seg)
			if len(seg) >= ddp.UntaggedSize+readReqSize && Opcode(seg[1]&maskOpcode) == OpReadRequest {
				t.ReadRequest = seg[ddp.UntaggedSize : ddp.UntaggedSize+readReqSize]
			}
		case rv.Type == TypeOperation && rv.Code != OpCodeVersion && rv.Code != OpCodeUnexpected:
			// Only an untagged header: Wireshark takes every header of this type for one, and would call
			// a packet with a tagged one malformed.
			if len(seg) > 0 && !ddp.IsTagged(seg) {
				t.attach(seg)
			}
		}
		return t
	}
	return Terminate{Layer: LayerRDMAP, Type: TypeLocal}
}

func (t *Terminate) attach(seg []byte) {
	if len(seg) < shortestULP {
		return
	}
	n := ddp.UntaggedSize
	if ddp.IsTagged(seg) {
		n = ddp.TaggedSize
	}
	if len(seg) < n {
		return
	}
	t.SegLen = uint16(len(seg))
	t.DDP = seg[:n]
}
