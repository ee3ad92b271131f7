// Package mpa is Marker PDU Aligned framing (RFC 5044, and RFC 6581 for its
// enhanced start-up): Request and Reply frames, FPDUs and their CRC32C. It is
// pure: no I/O, no goroutines, no clock.
//
// A connection starts with one Request from the initiator and one Reply from
// the responder; all that follows are FPDUs:
//
//	0        2                                       a multiple of 4 bytes
//	| length | ULPDU (one DDP segment) | pad 0-3 | CRC |
//
// A side may ask for markers in what it receives; markers.go is all about them.
package mpa

import (
	"fmt"

	"github.com/klauspost/crc32"
)

// Sizes in bytes.
const (
	LengthSize = 2     // ULPDU_Length
	CRCSize    = 4     //
	MaxULPDU   = 64768 // what a sender may put into an FPDU (RFC 5044 §3)
	MinMULPDU  = 128   // RFC 5044 §3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// CRC continues the CRC32C crc (0 at the start) over p. On the wire the value's
// least significant octet comes first (RFC 5044 §4.4 as its examples show it).
func CRC(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }

// PadSize returns the number of zero bytes after a ULPDU of n bytes (RFC 5044 §4.1).
func PadSize(n int) int { return -(LengthSize + n) & 3 }

// FPDUSize returns the size of the whole FPDU around a ULPDU of n bytes, without markers.
func FPDUSize(n int) int { return LengthSize + n + PadSize(n) + CRCSize }

// MULPDU returns the size of the largest ULPDU for a path whose TCP segments carry emss bytes,
// with or without markers (RFC 5044 §4.5).
func MULPDU(emss int, markers bool) int {
	n := emss - (6 + emss%4)
	if markers {
		n -= markerSize * ((emss + markerInterval - 1) / markerInterval)
	}
	return min(max(n, MinMULPDU), MaxULPDU)
}

// Codes of an Error (RFC 5044 §8, RFC 6581 §9.3). In a Terminate they have layer 2
// and type 0.
const (
	CodeClosed    = 0x01 // TCP connection closed or lost: never sent
	CodeCRC       = 0x02
	CodeMarker    = 0x03
	CodeStartup   = 0x04 // invalid Request or Reply: never sent
	CodeEnhanced  = 0x05 // local failure in enhanced start-up
	CodeIRD       = 0x06 // insufficient IRD
	CodeRTR       = 0x07 // no matching RTR
	textCRC       = "CRC32C does not match"
	textMarker    = "marker does not agree with the ULPDU length"
	textEnhanced  = "enhanced start-up failed"
	textIRD       = "insufficient IRD"
	textRTR       = "no matching RTR message"
	textBadFrame  = "not an MPA start-up frame"
	textTCPClosed = "TCP connection closed inside an FPDU"
)

// Error is a breach of MPA, with the numbers of RFC 5044 §8.
type Error struct {
	Code   uint8
	Detail string // the details, where the code alone does not tell
}

func (e *Error) Error() string {
	text := e.Detail
	if text == "" {
		switch e.Code {
		case CodeClosed:
			text = textTCPClosed
		case CodeCRC:
			text = textCRC
		case CodeMarker:
			text = textMarker
		case CodeStartup:
			text = textBadFrame
		case CodeEnhanced:
			text = textEnhanced
		case CodeIRD:
			text = textIRD
		case CodeRTR:
			text = textRTR
		default:
			text = fmt.Sprintf("error %#02x", e.Code)
		}
	}
	return "mpa: " + text
}
