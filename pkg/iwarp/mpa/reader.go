package mpa

import (
	"encoding/binary"
	"sync"
)

// Scratch sizes in bytes, measured on loopback: with FPDUs of 32 KiB a big scratch that holds
// eight of them gave the highest throughput, a ninth more than one of four, in a ninth less of CPU time, as each
// read has an ACK and often a wake-up behind it. Twice that gained nothing more. Reads of exactly the rest of an FPDU,
// into its place, cost more system calls and wake-ups than the copy saves: with 32 KiB 0.74 of the throughput, with
// 63 KiB 0.91.
const (
	smallScratch = 4 << 10
	bigScratch   = 264 << 10
	shortRead    = 1 << 10 // not worth a system call: make room first
)

// keepBig is how many small FPDUs in a row show that no more large ones come, so that the big scratch is given back.
// Without it, each FPDU a little longer than the small scratch would take two reads: a ping-pong of 4 KiB took five
// times as long, because the completion was not in the read that a waiter had been lent the connection for.
const keepBig = 16

// bigPool lends the big scratch to connections that are busy with large FPDUs; others have only their small one.
var bigPool = sync.Pool{New: func() any { return new([bigScratch]byte) }}

// Reader cuts an incoming stream into ULPDUs, however it is chunked: Want says where the next
// bytes belong, Filled that they have arrived, and Next takes the ULPDUs out. It never blocks.
type Reader struct {
	crc   bool
	small []byte
	big   *[bigScratch]byte
	buf   []byte // the one in use: small or big[:]
	r, w  int    // buf[r:w] is not yet parsed
	last  int    // size of the last FPDU
	large int    // how many FPDUs big is still kept for
	asked int    // bytes of the last Want
	read  int    // bytes of the last Filled
	marks *Marks // at buf[r]; nil: no markers

	FPDUs uint64 // parsed so far
}

// NewReader returns a Reader. With crc false the CRC field is not checked.
func NewReader(crc bool) *Reader {
	small := make([]byte, smallScratch)
	return &Reader{crc: crc, small: small, buf: small}
}

// current returns the size of the FPDU in progress, as far as it is known.
func (rd *Reader) current() int {
	if rd.marks != nil {
		return rd.currentMarked()
	}
	if rd.w-rd.r < LengthSize {
		return LengthSize
	}
	return FPDUSize(int(binary.BigEndian.Uint16(rd.buf[rd.r:])))
}

// Want returns where the next bytes of the stream belong: never empty, valid
// until Filled. Next must have returned nil before.
func (rd *Reader) Want() []byte {
	cur := rd.current()
	have := rd.w - rd.r
	switch {
	case rd.big == nil && (cur > smallScratch || rd.read == rd.asked && rd.read >= smallScratch/2):
		rd.big = bigPool.Get().(*[bigScratch]byte)
		rd.move(rd.big[:])
	case rd.big != nil && have == 0 && rd.read <= smallScratch/2 && rd.large == 0:
		rd.Release()
	case have == 0:
		rd.r, rd.w = 0, 0
	case rd.r > 0 && (len(rd.buf)-rd.r < cur || len(rd.buf)-rd.w < shortRead && have < shortRead):
		rd.move(rd.buf)
	}
	// End the read where an FPDU will end if the stream goes on as before: then nothing is left
	// over that would have to be moved to the front.
	limit := len(rd.buf)
	if rd.last > 0 {
		if have < LengthSize {
			cur = rd.last
		}
		if spare := limit - rd.r - cur; spare >= 0 {
			limit -= spare % rd.last
		}
	}
	rd.asked = limit - rd.w
	return rd.buf[rd.w:limit]
}

func (rd *Reader) move(to []byte) {
	rd.w = copy(to, rd.buf[rd.r:rd.w])
	rd.r = 0
	rd.buf = to
}

// Filled says that n bytes have been put where Want said.
func (rd *Reader) Filled(n int) {
	rd.w += n
	rd.read = n
}

// Next returns the next whole ULPDU, valid until the next Want, or nil when more bytes are
// needed. No byte of an FPDU is returned before its CRC has been verified (RFC 5044 §6). The
// error is a *Error with CodeCRC or CodeMarker: the stream is dead.
func (rd *Reader) Next() ([]byte, error) {
	if rd.marks != nil {
		return rd.nextMarked()
	}
	have := rd.w - rd.r
	if have < LengthSize {
		return nil, nil
	}
	p := rd.buf[rd.r:rd.w]
	length := int(binary.BigEndian.Uint16(p))
	size := FPDUSize(length)
	if have < size {
		return nil, nil
	}
	body := size - CRCSize
	if rd.crc && CRC(0, p[:body]) != binary.LittleEndian.Uint32(p[body:]) {
		return nil, &Error{Code: CodeCRC}
	}
	rd.r += size
	rd.counted(size)
	return p[LengthSize : LengthSize+length : LengthSize+length], nil
}

// counted records a whole FPDU of size bytes.
func (rd *Reader) counted(size int) {
	rd.last = size
	rd.FPDUs++
	if size > smallScratch {
		rd.large = keepBig
	} else if rd.large > 0 {
		rd.large--
	}
}

// Partial reports whether the stream is inside an FPDU.
func (rd *Reader) Partial() bool { return rd.w > rd.r }

// Release returns borrowed memory. The Reader must be between FPDUs, or no longer needed.
func (rd *Reader) Release() {
	rd.r, rd.w = 0, 0
	rd.buf = rd.small
	if rd.big != nil {
		bigPool.Put(rd.big)
		rd.big = nil
	}
}
