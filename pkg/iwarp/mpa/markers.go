package mpa

import "encoding/binary"

// Markers tell a receiver that gets TCP segments out of order where FPDUs begin.
// In a direction whose receiver asked for them, one stands at every position
// that is a multiple of 512, counted from the first octet after start-up and
// markers included (RFC 5044 §4.3):
//
//	0          2         4 bytes
//	| reserved | FPDUPTR |
//
// FPDUPTR is the distance back to the ULPDU_Length of the FPDU around it. A marker
// between two FPDUs says 0 and belongs to the second of them, one between pad and
// CRC to the FPDU of both. The CRC covers all that belong to its FPDU.
const (
	markerSize     = 4   // bytes
	markerInterval = 512 // bytes of stream, the marker itself included
	markerRun      = markerInterval - markerSize
)

// maxMarkers is how many can be in the longest FPDU that a 16-bit length allows.
const maxMarkers = 2 + (LengthSize+0xffff+3)/markerRun

// Marks is the position in one direction of a stream that has markers. The zero
// value is the start of full operation. It may wrap: 2^32 is a multiple of 512.
type Marks struct {
	pos uint32 // octets, markers included

	// Of the FPDU that a Batch is adding.
	start uint32 // position of its ULPDU_Length
	from  int    // in the scratch: start of what the CRC has not covered
	crc   uint32
}

// markedSize returns the size of the whole FPDU around a ULPDU of n bytes that begins at pos, or
// with the marker there: RFC 5044 §4.3 makes a marker "immediately preceding" an FPDU part of
// that FPDU.
func markedSize(pos uint32, n int) int {
	size := FPDUSize(n)
	at := int(pos % markerInterval)
	if at == 0 {
		size += markerSize
		at = markerSize
	}
	// The markers between ULPDU_Length and CRC, including one right before the CRC: the CRC itself
	// is never split.
	body := LengthSize + n + PadSize(n)
	if first := markerInterval - at; body >= first {
		size += markerSize * (1 + (body-first)/markerRun)
	}
	return size
}

// Mark makes the batch insert markers, until Reset. m belongs to the direction of the stream and
// counts on from batch to batch, so every filled batch must be written, in order.
func (b *Batch) Mark(m *Marks) { b.marks = m }

// addMarked is Add with markers. Gathering would take two buffers for each 508
// bytes, so what fits is copied.
func (b *Batch) addMarked(n int, header []byte, payload [][]byte) {
	m := b.marks
	size := markedSize(m.pos, n)
	gather := size > cap(b.scratch)-len(b.scratch)
	if b.segment > 0 {
		b.place(size)
	}
	m.from, m.crc = len(b.scratch), 0
	m.start = m.pos
	b.mark() // the leading one has FPDUPTR 0
	m.start = m.pos
	b.scratch = binary.BigEndian.AppendUint16(b.scratch, uint16(n))
	m.pos += LengthSize
	b.putMarked(header, false)
	for _, p := range payload {
		b.putMarked(p, gather)
	}
	b.putMarked(zeros[:PadSize(n)], false)
	b.mark() // before the CRC, and covered by it
	if b.crcOn {
		m.crc = CRC(m.crc, b.scratch[m.from:])
	}
	b.scratch = binary.LittleEndian.AppendUint32(b.scratch, m.crc)
	m.pos += CRCSize
	b.size += size
	b.fpdus++
}

var zeros [3]byte // a pad

// mark inserts a marker if one is due here. Everything up to a marker is a
// multiple of 4, so it splits neither length nor CRC.
func (b *Batch) mark() {
	m := b.marks
	if m.pos%markerInterval != 0 {
		return
	}
	b.scratch = append(b.scratch, 0, 0)
	b.scratch = binary.BigEndian.AppendUint16(b.scratch, uint16(m.pos-m.start))
	m.pos += markerSize
}

// putMarked appends p with the markers that fall into it.
func (b *Batch) putMarked(p []byte, gather bool) {
	m := b.marks
	for len(p) > 0 {
		b.mark()
		run := p[:min(len(p), markerInterval-int(m.pos%markerInterval))]
		p = p[len(run):]
		m.pos += uint32(len(run))
		if !gather {
			b.scratch = append(b.scratch, run...)
			continue
		}
		if b.crcOn {
			m.crc = CRC(CRC(m.crc, b.scratch[m.from:]), run)
		}
		b.flush()
		m.from = len(b.scratch)
		b.bufs = append(b.bufs, run)
	}
}

// ExpectMarkers makes rd remove markers, from the start of the stream on.
func (rd *Reader) ExpectMarkers() { rd.marks = new(Marks) }

// markedHead returns the size of a leading marker and ULPDU_Length, and how much of it is the
// marker.
func (rd *Reader) markedHead() (head, lead int) {
	if rd.marks.pos%markerInterval == 0 {
		lead = markerSize
	}
	return lead + LengthSize, lead
}

// currentMarked is current for a stream with markers.
func (rd *Reader) currentMarked() int {
	head, lead := rd.markedHead()
	if rd.w-rd.r < head {
		return head
	}
	return markedSize(rd.marks.pos, int(binary.BigEndian.Uint16(rd.buf[rd.r+lead:])))
}

// nextMarked is Next for a stream with markers. They are examined only after a correct CRC
// (RFC 5044 §8, error 3), and removed by moving the rest together.
func (rd *Reader) nextMarked() ([]byte, error) {
	p := rd.buf[rd.r:rd.w]
	head, lead := rd.markedHead()
	if len(p) < head {
		return nil, nil
	}
	length := int(binary.BigEndian.Uint16(p[lead:]))
	size := markedSize(rd.marks.pos, length)
	if len(p) < size {
		return nil, nil
	}
	body := size - CRCSize
	if rd.crc && CRC(0, p[:body]) != binary.LittleEndian.Uint32(p[body:]) {
		return nil, &Error{Code: CodeCRC}
	}
	wrong := lead > 0 && pointer(p) != 0
	at := lead + markerInterval - int((rd.marks.pos+uint32(lead))%markerInterval)
	out := at
	for ; at < body; at += markerInterval {
		wrong = wrong || pointer(p[at:]) != uint16(at-lead)
		out += copy(p[out:], p[at+markerSize:min(at+markerInterval, body)])
	}
	if wrong {
		return nil, &Error{Code: CodeMarker}
	}
	rd.marks.pos += uint32(size)
	rd.r += size
	rd.counted(size)
	return p[head : head+length : head+length], nil
}

// pointer returns FPDUPTR of the marker at the head of p. "The lower two bits MUST be treated as
// zero" (after RFC 5044 §4.2), and the reserved half is ignored.
func pointer(p []byte) uint16 { return binary.BigEndian.Uint16(p[2:]) &^ 3 }
