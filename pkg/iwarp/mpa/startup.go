package mpa

import (
	"encoding/binary"
	"fmt"
)

// Start-up frame sizes in bytes (RFC 5044 §7.1.1, RFC 6581 §9).
const (
	FrameSize      = 20  // without private data
	MaxPrivateData = 512 // the enhanced block included
	EnhancedSize   = 4
)

// Revisions of MPA that we speak.
const (
	Rev1 = 1 // RFC 5044
	Rev2 = 2 // RFC 6581
)

// DepthAny as IRD or ORD asks the other side to keep its own value
// (RFC 6581 §9.1). It is also the largest number that fits.
const DepthAny = 0x3fff

const (
	keyRequest = "MPA ID Req Frame"
	keyReply   = "MPA ID Rep Frame"
)

// Bits of the flags octet.
const (
	flagMarkers  = 0x80
	flagCRC      = 0x40
	flagReject   = 0x20
	flagEnhanced = 0x10
)

// RTR is a set of the messages by which an initiator may open a peer-to-peer
// stream (RFC 6581 §9.2).
type RTR uint8

// RTR messages, each of length zero.
const (
	RTRSend RTR = 1 << iota
	RTRWrite
	RTRRead
)

// Enhanced is the block at the head of the private data of an enhanced frame
// (RFC 6581 §9).
//
//	|A|B|  IRD (14)  |C|D|  ORD (14)  |
type Enhanced struct {
	PeerToPeer bool // A: an RTR message follows
	RTR        RTR  // B Send, C Write, D Read
	IRD, ORD   uint16
}

// Frame is a Request or a Reply (RFC 5044 §7.1.1).
//
//	0       16      17    18           20        20 + PD_Length bytes
//	|  key  | flags | rev | PD_Length | private data |
type Frame struct {
	Reply    bool
	Markers  bool // the sender wants markers in what it receives
	CRC      bool // the sender wants CRCs
	Reject   bool // only in a Reply; ignored in a Request
	Rev      uint8
	Enhanced *Enhanced // with Rev 2 and the S flag
	Private  []byte    // without the enhanced block
}

// Append appends the encoding of f to b. It fails for private data that does not fit.
func (f *Frame) Append(b []byte) ([]byte, error) {
	n := len(f.Private)
	if f.Enhanced != nil {
		n += EnhancedSize
	}
	if n > MaxPrivateData {
		return nil, fmt.Errorf("mpa: %d bytes of private data: at most %d fit", len(f.Private), MaxPrivateData-(n-len(f.Private)))
	}
	key, flags := keyRequest, byte(0)
	if f.Reply {
		key = keyReply
		if f.Reject {
			flags |= flagReject
		}
	}
	if f.Markers {
		flags |= flagMarkers
	}
	if f.CRC {
		flags |= flagCRC
	}
	if f.Enhanced != nil {
		flags |= flagEnhanced
	}
	b = append(b, key...)
	b = append(b, flags, f.Rev)
	b = binary.BigEndian.AppendUint16(b, uint16(n))
	if e := f.Enhanced; e != nil {
		ird, ord := e.IRD&DepthAny, e.ORD&DepthAny
		if e.PeerToPeer {
			ird |= 0x8000
		}
		if e.RTR&RTRSend != 0 {
			ird |= 0x4000
		}
		if e.RTR&RTRWrite != 0 {
			ord |= 0x8000
		}
		if e.RTR&RTRRead != 0 {
			ord |= 0x4000
		}
		b = binary.BigEndian.AppendUint16(b, ird)
		b = binary.BigEndian.AppendUint16(b, ord)
	}
	return append(b, f.Private...), nil
}

// Head is the part of a start-up frame before its private data: flags, revision, and the two
// words of an enhanced block, as they stand on the wire. Two frames with equal heads ask for the
// same.
//
//	0       1     2             4            6 bytes
//	| flags | rev | |A|B|  IRD  | |C|D| ORD  |
type Head [6]byte

// Head returns the head of f, without reserved flags that a peer has set, as they have no effect.
func (f *Frame) Head() (h Head) {
	bare := *f
	bare.Private = nil
	b, _ := bare.Append(nil) // never too long
	h[0], h[1] = b[16], b[17]
	copy(h[2:], b[FrameSize:])
	return h
}

// ParseFrame reads the start-up frame at the head of b. n is its length in bytes; n = 0 without
// an error means that b holds only a part of it. The private data is a slice of b. An error is a
// *Error with CodeStartup: close the connection, answer nothing (RFC 5044 §7.1.2, rule 5).
//
// An error is reported at the first byte that proves it, so that a peer which speaks another
// protocol is not waited for.
func ParseFrame(b []byte, reply bool) (f Frame, n int, err error) {
	want, other := keyRequest, keyReply
	if reply {
		want, other = other, want
	}
	k := min(len(b), len(want))
	if string(b[:k]) != want[:k] {
		if k == len(other) && string(b[:k]) == other {
			if reply {
				return f, 0, &Error{CodeStartup, "the peer is an initiator too: it sent a Request, not a Reply"}
			}
			return f, 0, &Error{CodeStartup, "the peer sent a Reply where a Request is due"}
		}
		if k < len(want) && string(b[:k]) == other[:k] {
			return f, 0, nil // wait for the whole key: it identifies the mistake
		}
		return f, 0, &Error{CodeStartup, "the peer does not speak MPA"}
	}
	if len(b) < FrameSize {
		return f, 0, nil
	}
	flags := b[16]
	f.Reply = reply
	f.Rev = b[17]
	pd := int(binary.BigEndian.Uint16(b[18:]))
	if f.Rev != Rev1 && f.Rev != Rev2 {
		return f, 0, &Error{CodeStartup, fmt.Sprintf("MPA revision %d: 1 and 2 are supported", f.Rev)}
	}
	if pd > MaxPrivateData {
		return f, 0, &Error{CodeStartup, fmt.Sprintf("%d bytes of private data: at most %d are allowed", pd, MaxPrivateData)}
	}
	// "S" is a reserved bit of revision 1, and reserved bits are ignored.
	enhanced := flags&flagEnhanced != 0 && f.Rev >= Rev2
	if enhanced && pd < EnhancedSize {
		return f, 0, &Error{CodeStartup, "enhanced frame without its IRD/ORD block"}
	}
	if len(b) < FrameSize+pd {
		return f, 0, nil
	}
	f.Markers = flags&flagMarkers != 0
	f.CRC = flags&flagCRC != 0
	f.Reject = reply && flags&flagReject != 0
	f.Private = b[FrameSize : FrameSize+pd]
	if enhanced {
		f.Enhanced = parseEnhanced(f.Private)
		f.Private = f.Private[EnhancedSize:]
	}
	return f, FrameSize + pd, nil
}

func parseEnhanced(b []byte) *Enhanced {
	ird, ord := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	e := &Enhanced{PeerToPeer: ird&0x8000 != 0, IRD: ird & DepthAny, ORD: ord & DepthAny}
	if ird&0x4000 != 0 {
		e.RTR |= RTRSend
	}
	if ord&0x8000 != 0 {
		e.RTR |= RTRWrite
	}
	if ord&0x4000 != 0 {
		e.RTR |= RTRRead
	}
	return e
}
