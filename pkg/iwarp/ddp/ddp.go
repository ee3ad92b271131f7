// Package ddp is the Direct Data Placement protocol (RFC 5041): the headers of
// its segments, how a message is cut into segments, and its errors. It is pure:
// no I/O, no goroutines, no clock.
package ddp

import (
	"encoding/binary"
	"fmt"
)

// STag names a registered buffer (RFC 5041 §3).
type STag uint32

// Version is the only DDP version there is (RFC 5041 §4.1).
const Version = 1

// Bits of the DDP control octet (RFC 5041 §4.1).
//
//	bit 0  1  2-5       6-7
//	    T  L  reserved  DV
const (
	ctrlTagged  = 0x80
	ctrlLast    = 0x40
	ctrlVersion = 0x03
)

// Header sizes in bytes, control octet included.
const (
	TaggedSize   = 14
	UntaggedSize = 18
)

// MaxMessage is the longest message in bytes (RFC 5041 §5.2: less than 2^32).
const MaxMessage = 1<<32 - 1

// IsTagged reports whether a segment has a tagged header. seg must not be empty.
func IsTagged(seg []byte) bool { return seg[0]&ctrlTagged != 0 }

// VersionOf returns the DV field. seg must not be empty.
func VersionOf(seg []byte) uint8 { return seg[0] & ctrlVersion }

// Tagged is the header of a tagged segment (RFC 5041 §4.2).
//
//	0      1         2         6         14 bytes
//	| ctrl | RsvdULP |  STag   |   TO    |
type Tagged struct {
	Last bool   // ends the message
	ULP  uint8  // opaque here; RDMAP keeps its control field in it
	STag STag   // the sink's buffer
	TO   uint64 // offset in that buffer of this segment's first payload byte
}

// Put writes the header to b, which must have room for TaggedSize bytes.
func (h *Tagged) Put(b []byte) {
	_ = b[TaggedSize-1]
	b[0] = ctrlTagged | Version
	if h.Last {
		b[0] |= ctrlLast
	}
	b[1] = h.ULP
	binary.BigEndian.PutUint32(b[2:], uint32(h.STag))
	binary.BigEndian.PutUint64(b[6:], h.TO)
}

// ParseTagged reads a tagged header; seg must have at least TaggedSize bytes. Reserved
// bits are ignored.
func ParseTagged(seg []byte) Tagged {
	_ = seg[TaggedSize-1]
	return Tagged{
		Last: seg[0]&ctrlLast != 0,
		ULP:  seg[1],
		STag: STag(binary.BigEndian.Uint32(seg[2:])),
		TO:   binary.BigEndian.Uint64(seg[6:]),
	}
}

// Untagged is the header of an untagged segment (RFC 5041 §4.3).
//
//	0      1         2          6    10    14   18 bytes
//	| ctrl | RsvdULP  (5 bytes) | QN | MSN | MO |
type Untagged struct {
	Last    bool
	ULP     uint8  // first octet of RsvdULP
	ULPWord uint32 // the other four: RDMAP's Invalidate STag
	QN      uint32
	MSN     uint32
	MO      uint32 // offset in the message of this segment's first payload byte
}

// Put writes the header to b, which must have room for UntaggedSize bytes.
func (h *Untagged) Put(b []byte) {
	_ = b[UntaggedSize-1]
	b[0] = Version
	if h.Last {
		b[0] |= ctrlLast
	}
	b[1] = h.ULP
	binary.BigEndian.PutUint32(b[2:], h.ULPWord)
	binary.BigEndian.PutUint32(b[6:], h.QN)
	binary.BigEndian.PutUint32(b[10:], h.MSN)
	binary.BigEndian.PutUint32(b[14:], h.MO)
}

// ParseUntagged reads an untagged header; seg must have at least UntaggedSize bytes.
func ParseUntagged(seg []byte) Untagged {
	_ = seg[UntaggedSize-1]
	return Untagged{
		Last:    seg[0]&ctrlLast != 0,
		ULP:     seg[1],
		ULPWord: binary.BigEndian.Uint32(seg[2:]),
		QN:      binary.BigEndian.Uint32(seg[6:]),
		MSN:     binary.BigEndian.Uint32(seg[10:]),
		MO:      binary.BigEndian.Uint32(seg[14:]),
	}
}

// SegmentPayload returns the payload in bytes of every segment of a message except its last one,
// for segments of at most mulpdu bytes with headers of header bytes. It is a multiple of 8: such
// segments need no pad, and copies at the sink stay aligned.
func SegmentPayload(mulpdu, header int) int { return (mulpdu - header) &^ 7 }

// Error types of a Violation (RFC 5041 §8, RFC 5040 §4.8).
const (
	TypeLocal    = 0
	TypeTagged   = 1
	TypeUntagged = 2
)

// Codes of TypeTagged.
const (
	TaggedInvalidSTag = 0x00
	TaggedBounds      = 0x01
	TaggedStream      = 0x02 // STag not associated with this stream
	TaggedWrap        = 0x03
	TaggedVersion     = 0x04
)

// Codes of TypeUntagged.
const (
	UntaggedInvalidQN  = 0x01
	UntaggedNoBuffer   = 0x02
	UntaggedMSNRange   = 0x03
	UntaggedInvalidMO  = 0x04
	UntaggedTooLong    = 0x05
	UntaggedBadVersion = 0x06
)

// Violation is a peer's breach of DDP, with the numbers of RFC 5041 §8. The
// stream must end.
type Violation struct {
	Type, Code uint8
}

func (v *Violation) Error() string {
	return fmt.Sprintf("ddp: %s", violationText(v.Type, v.Code))
}

func violationText(typ, code uint8) string {
	switch typ {
	case TypeLocal:
		return "local catastrophic error"
	case TypeTagged:
		switch code {
		case TaggedInvalidSTag:
			return "tagged segment: invalid STag"
		case TaggedBounds:
			return "tagged segment: base or bounds violation"
		case TaggedStream:
			return "tagged segment: STag not associated with this stream"
		case TaggedWrap:
			return "tagged segment: TO wraps"
		case TaggedVersion:
			return "tagged segment: unknown DDP version"
		}
	case TypeUntagged:
		switch code {
		case UntaggedInvalidQN:
			return "untagged segment: invalid queue number"
		case UntaggedNoBuffer:
			return "untagged segment: no buffer available"
		case UntaggedMSNRange:
			return "untagged segment: message sequence number out of range"
		case UntaggedInvalidMO:
			return "untagged segment: invalid message offset"
		case UntaggedTooLong:
			return "untagged segment: message too long for its buffer"
		case UntaggedBadVersion:
			return "untagged segment: unknown DDP version"
		}
	}
	return fmt.Sprintf("error type %d code %#02x", typ, code)
}
