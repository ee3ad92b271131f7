package capture

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/rdistcc/rdistcc/pkg/iwarp/ddp"
	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
	"github.com/rdistcc/rdistcc/pkg/iwarp/rdmap"
)

// stream cuts what one side sends into units: its frame of start-up, then FPDUs.
type stream struct {
	begun bool   // the frame of start-up is over
	buf   []byte // of the unit in progress
}

// Where the fields of a frame of start-up are (RFC 5044 §7.1.1).
const (
	keyStart    = "MPA ID Re"
	flagsAt     = 16
	privateAt   = 18
	flagMarkers = 0x80
	flagBlock   = 0x10 // private data begins with a block of RFC 6581
)

var (
	errNotMPA  = errors.New("it does not begin with a frame of MPA")
	errMarkers = errors.New("it has markers")
)

// next takes from b what belongs to the unit in progress. It returns the unit once it is whole, until the next call, and what is left of b.
func (s *stream) next(b []byte) (unit, rest []byte, err error) {
	if s.buf != nil && len(s.buf) == s.want() { // the one returned last
		s.buf, s.begun = s.buf[:0], true
	}
	for len(b) > 0 {
		n := min(s.want()-len(s.buf), len(b))
		s.buf, b = append(s.buf, b[:n]...), b[n:]
		if !s.begun && len(s.buf) >= mpa.FrameSize {
			if !bytes.HasPrefix(s.buf, []byte(keyStart)) {
				return nil, nil, errNotMPA
			}
			if s.buf[flagsAt]&flagMarkers != 0 {
				return nil, nil, errMarkers
			}
		}
		if len(s.buf) == s.want() {
			return s.buf, b, nil
		}
	}
	return nil, nil, nil
}

// want returns the size of the unit in progress, as far as it is known: that of its head at first.
func (s *stream) want() int {
	switch {
	case s.begun && len(s.buf) < mpa.LengthSize:
		return mpa.LengthSize
	case s.begun:
		return mpa.FPDUSize(int(binary.BigEndian.Uint16(s.buf)))
	case len(s.buf) < mpa.FrameSize:
		return mpa.FrameSize
	}
	return mpa.FrameSize + int(binary.BigEndian.Uint16(s.buf[privateAt:]))
}

// blank replaces what a unit carries by zeros.
func (s *stream) blank(unit []byte) {
	if !s.begun {
		keep := mpa.FrameSize
		if unit[flagsAt]&flagBlock != 0 {
			keep += mpa.EnhancedSize
		}
		clear(unit[min(keep, len(unit)):])
		return
	}
	body := len(unit) - mpa.CRCSize
	right := mpa.CRC(0, unit[:body]) == binary.LittleEndian.Uint32(unit[body:])
	blankSegment(unit[mpa.LengthSize:body])
	if right {
		binary.LittleEndian.PutUint32(unit[body:], mpa.CRC(0, unit[:body]))
	}
}

// blankSegment blanks a DDP segment with its padding. What a Read Request or a Terminate carries is headers.
func blankSegment(seg []byte) {
	if len(seg) < 2 {
		return
	}
	keep := ddp.TaggedSize
	if !ddp.IsTagged(seg) {
		keep = ddp.UntaggedSize
		switch rdmap.Opcode(seg[1] & 0x0f) {
		case rdmap.OpReadRequest, rdmap.OpTerminate:
			keep = min(len(seg), ddp.UntaggedSize+headersMax)
		}
	}
	clear(seg[min(keep, len(seg)):])
}

// headersMax is the most that a Terminate carries of headers: its own two fields, and those of the segment at fault with a Read Request's.
const headersMax = 4 + 2 + ddp.UntaggedSize + 28
