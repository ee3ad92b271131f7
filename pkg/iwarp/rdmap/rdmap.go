// Package rdmap is the Remote Direct Memory Access Protocol (RFC 5040): its opcodes, its
// Terminate message, and the engine of one stream, which turns bytes into placements and
// deliveries (Receiver) and work into FPDUs (Sender). It is pure: no I/O, no goroutines, no
// clock. Memory and receive queues belong to its owner, behind the Consumer interface.
package rdmap

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
)

// Opcode is an RDMA message opcode (RFC 5040 §4.3, RFC 7306 §4).
type Opcode uint8

// Opcodes. 8 to 11 are RFC 7306's and disabled unless both sides agreed otherwise.
const (
	OpWrite Opcode = iota
	OpReadRequest
	OpReadResponse
	OpSend
	OpSendInv
	OpSendSE
	OpSendSEInv
	OpTerminate
	OpImmediate
	OpImmediateSE
	OpAtomicRequest
	OpAtomicResponse
)

// Solicited reports whether the message asks for a solicited event.
func (o Opcode) Solicited() bool { return o == OpSendSE || o == OpSendSEInv || o == OpImmediateSE }

// Invalidates reports whether the message carries an STag to invalidate.
func (o Opcode) Invalidates() bool { return o == OpSendInv || o == OpSendSEInv }

// tagged reports whether the message uses the tagged buffer model (RFC 5040 §4.3).
func (o Opcode) tagged() bool { return o == OpWrite || o == OpReadResponse }

// queue returns the untagged queue of the message (RFC 5040 §4.3).
func (o Opcode) queue() uint32 {
	switch o {
	case OpReadRequest, OpAtomicRequest:
		return QNReadRequest
	case OpTerminate:
		return QNTerminate
	case OpAtomicResponse:
		return QNAtomicResponse
	}
	return QNSend
}

// Untagged queue numbers.
const (
	QNSend           = 0
	QNReadRequest    = 1
	QNTerminate      = 2
	QNAtomicResponse = 3
	queues           = 4
)

// RDMAP control octet: RV in the two high bits, the opcode in the four low ones
// (RFC 5040 §4.1).
const (
	ctrlVersion  = 0x40
	maskVersion  = 0xc0
	maskOpcode   = 0x0f
	readReqSize  = 28 // after the DDP header
	maxHeader    = ddp.UntaggedSize + AtomicRequestSize
	shortestULP  = ddp.TaggedSize
	minTerminate = 4
)

// Layers of a Terminate (RFC 5040 §4.8).
const (
	LayerRDMAP = 0
	LayerDDP   = 1
	LayerMPA   = 2
)

// Error types of layer RDMAP.
const (
	TypeLocal      = 0
	TypeProtection = 1
	TypeOperation  = 2
)

// Codes of TypeProtection.
const (
	ProtInvalidSTag     = 0x00
	ProtBounds          = 0x01
	ProtAccess          = 0x02
	ProtStream          = 0x03
	ProtWrap            = 0x04
	ProtCannotInvalid   = 0x09
	codeUnspecified     = 0xff
	OpCodeVersion       = 0x05
	OpCodeUnexpected    = 0x06
	OpCodeCatastrophic  = 0x07 // localized to this stream
	OpCodeGlobal        = 0x08
	OpCodeCannotInvalid = 0x09
	OpCodeUnspecified   = codeUnspecified
)

// Violation is a peer's breach of RDMAP, with the numbers of RFC 5040 §4.8. The
// stream must end.
type Violation struct {
	Type, Code uint8
}

func (v *Violation) Error() string {
	return "rdmap: " + codeText(LayerRDMAP, v.Type, v.Code)
}

// codeText returns the name of a code of the RDMAP layer.
func codeText(layer, typ, code uint8) string {
	switch uint32(layer)<<16 | uint32(typ)<<8 | uint32(code) {
	case 0x000100:
		return "remote protection: invalid STag"
	case 0x000101:
		return "remote protection: base or bounds violation"
	case 0x000102:
		return "remote protection: access rights violation"
	case 0x000103:
		return "remote protection: STag not associated with this stream"
	case 0x000104:
		return "remote protection: TO wraps"
	case 0x000109, 0x000209:
		return "STag cannot be invalidated"
	case 0x000205:
		return "unknown RDMAP version"
	case 0x000206:
		return "unexpected opcode"
	case 0x000207:
		return "catastrophic error of this stream"
	case 0x000208:
		return "catastrophic error, global"
	case 0x0001ff, 0x0002ff:
		return "unspecified error"
	}
	if layer == LayerRDMAP && typ == TypeLocal {
		return "local catastrophic error"
	}
	return fmt.Sprintf("error %d/%d/%02x", layer, typ, code)
}
