package mpa

import (
	"encoding/binary"
)

// Limits of a Batch in bytes.
const (
	// copyMax is the longest piece of payload, in bytes, that is copied into the scratch
	// rather than gathered: a short iovec costs more than the copy.
	copyMax = 4 << 10
	// batchScratch holds headers, trailers and copied payload.
	batchScratch = 64 << 10
	// batchBytes ends a batch: after the CRC pass over this much, the data is still in the
	// cache for the system call that follows. Twice as much takes a tenth less CPU time, but where no acknowledgements are
	// told, a batch is also what shows that a slow connection moves: at 100 KB/s this one takes 2.6 s.
	batchBytes = 256 << 10
	// batchBufs stays below IOV_MAX (1024).
	batchBufs = 512
	// fpduOverhead is the most scratch that an FPDU takes besides its payload.
	fpduOverhead = LengthSize + 80 + 3 + CRCSize
)

// Batch gathers FPDUs for one writev. Longer pieces of payload are not copied: they must
// stay unchanged until the batch has been written. The zero value is not usable; see
// NewBatch.
type Batch struct {
	scratch []byte   // fixed capacity: what bufs points at must not move
	open    int      // scratch[open:] is not yet in bufs
	bufs    [][]byte //
	size    int      // bytes, of all FPDUs
	fpdus   int
	crcOn   bool
	copyMax int
	marks   *Marks // nil: no markers

	segment int   // bytes of a TCP segment to align to; 0: none
	each    bool  // cut after full segments too
	filled  int   // bytes in the last segment
	cuts    []int // where in the batch a new segment has to begin
}

// NewBatch returns an empty Batch. Its memory is about 80 KiB, so reuse it.
func NewBatch() *Batch {
	return &Batch{scratch: make([]byte, 0, batchScratch), bufs: make([][]byte, 0, batchBufs)}
}

// Reset empties the batch. crc says whether its FPDUs get a CRC, or zeros. Pieces of payload of
// up to 4 KiB will be copied, longer ones gathered. It ends the effect of Mark and Align.
func (b *Batch) Reset(crc bool) {
	clear(b.bufs) // forget the payload
	b.scratch, b.bufs = b.scratch[:0], b.bufs[:0]
	b.open, b.size, b.fpdus = 0, 0, 0
	b.crcOn, b.copyMax, b.marks = crc, copyMax, nil
	b.segment, b.filled, b.cuts = 0, 0, b.cuts[:0]
}

// CopyAll makes the batch copy every piece that the scratch has room for: a batch
// of one buffer needs no writev.
func (b *Batch) CopyAll() { b.copyMax = batchScratch }

// Align makes the batch record, until Reset, where TCP has to begin a new segment of segment
// bytes so that no FPDU that fits into one segment spans two (RFC 5044 §5.1). The batch copies
// everything into one buffer. Its first FPDU begins a segment, and what is written after the
// batch must begin one too; segment may be up to 16 KiB. After a full segment TCP usually cuts
// by itself; with each, a cut is recorded there as well.
func (b *Batch) Align(segment int, each bool) {
	b.segment, b.each = segment, each
	b.CopyAll()
}

// Cuts returns the offsets in the batch where a new segment has to begin, in order.
func (b *Batch) Cuts() []int { return b.cuts }

// place assigns the next FPDU, of size bytes, to a segment: several short ones may share one.
func (b *Batch) place(size int) {
	if b.filled > 0 && b.filled+size > b.segment {
		b.cuts = append(b.cuts, b.size)
		b.filled = 0
	}
	if b.filled += size; !b.each {
		b.filled %= b.segment // after a full segment TCP cuts by itself
	}
}

// Full reports whether another FPDU of up to pieces pieces of payload must wait for the next
// batch. An empty batch takes 200 pieces, 120 with markers.
func (b *Batch) Full(pieces int) bool {
	if b.marks != nil && (cap(b.scratch)-len(b.scratch) < fpduOverhead+maxMarkers*markerSize ||
		cap(b.bufs)-len(b.bufs) < 2*(pieces+maxMarkers)+2) {
		return true
	}
	if b.segment > 0 && cap(b.scratch)-len(b.scratch) < max(b.segment, MinMULPDU)+fpduOverhead+maxMarkers*markerSize {
		return true
	}
	return b.size >= batchBytes ||
		cap(b.scratch)-len(b.scratch) < fpduOverhead ||
		cap(b.bufs)-len(b.bufs) < 2*pieces+2
}

// Size returns the number of bytes gathered, FPDUs the number of FPDUs.
func (b *Batch) Size() int  { return b.size }
func (b *Batch) FPDUs() int { return b.fpdus }

// Bufs closes the batch and returns what to write, in order. The slice may be
// consumed as net.Buffers does.
func (b *Batch) Bufs() [][]byte {
	b.flush()
	return b.bufs
}

func (b *Batch) flush() {
	if b.open < len(b.scratch) {
		b.bufs = append(b.bufs, b.scratch[b.open:len(b.scratch):len(b.scratch)])
		b.open = len(b.scratch)
	}
}

// Add appends one FPDU whose ULPDU is header, then the payload pieces. The caller must have
// asked Full before.
func (b *Batch) Add(header []byte, payload ...[]byte) {
	n := len(header)
	for _, p := range payload {
		n += len(p)
	}
	if b.marks != nil {
		b.addMarked(n, header, payload)
		return
	}
	if b.segment > 0 {
		b.place(FPDUSize(n))
	}
	from := len(b.scratch) // of what the CRC has not covered yet
	b.scratch = binary.BigEndian.AppendUint16(b.scratch, uint16(n))
	b.scratch = append(b.scratch, header...)
	crc := uint32(0)
	for _, p := range payload {
		if len(p) <= b.copyMax && len(p)+fpduOverhead <= cap(b.scratch)-len(b.scratch) {
			b.scratch = append(b.scratch, p...)
			continue
		}
		if b.crcOn {
			crc = CRC(CRC(crc, b.scratch[from:]), p)
		}
		b.flush()
		from = len(b.scratch)
		b.bufs = append(b.bufs, p)
	}
	for range PadSize(n) {
		b.scratch = append(b.scratch, 0)
	}
	if b.crcOn {
		crc = CRC(crc, b.scratch[from:])
	}
	b.scratch = binary.LittleEndian.AppendUint32(b.scratch, crc)
	b.size += FPDUSize(n)
	b.fpdus++
}
