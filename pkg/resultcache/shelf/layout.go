package shelf

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/wire"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// HeadLen is the length of a Head, which is at the start of the memory, in bytes.
const HeadLen = 80

// Numbers of the layout, in bytes.
const (
	magic     = "RDSHELF\x02" // ends with the version of the layout
	recordsAt = 8192
	recordLen = 24
	align     = 64 // of entries
)

// Bounds of the number of places for records. There is one for each perRecord bytes of data, the size of a
// small object.
const (
	minRecords = 64
	maxRecords = 1 << 24
	perRecord  = 4 << 10
)

// maxData is how long the data can be, in bytes: places in it are counted in units of align.
const maxData = 1 << 36

// Head says what is in the memory.
//
//	0       8       16      24        32   40     48      56       64    72    80 bytes
//	| magic | last  | first | records | at | data | marks | makers | sum | last |
type Head struct {
	Last    uint64 // the number of records that were ever written
	First   uint64 // records from this number on, and before Last, count
	Records uint64 // number of places for records
	At      uint64 // where the data begins, in bytes from the start of the memory
	Data    uint64 // length of the data, in bytes
	Marks   uint64 // places of the table of marks that have to be read, at most MaxMarks
	Makers  Makers // for whom these marks are
}

// ErrTorn says that a head was read while it changed.
var ErrTorn = errors.New("a shelf changed while it was read")

// ErrMalformed is wrapped by errors about a head that no host writes.
var ErrMalformed = errors.New("malformed shelf")

// Append appends the encoding of h, of HeadLen bytes, to dst.
func (h *Head) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, magic...)
	for _, v := range [...]uint64{h.Last, h.First, h.Records, h.At, h.Data, h.Marks, uint64(h.Makers)} {
		dst = wire.AppendUint64(dst, v)
	}
	dst = wire.AppendUint64(dst, sum64(dst[start:]))
	return wire.AppendUint64(dst, h.Last)
}

// ParseHead reads a head, which must be the whole of b, of memory that has n bytes. Its error is ErrTorn, or
// wraps ErrMalformed.
func ParseHead(b []byte, n uint64) (h Head, err error) {
	if len(b) != HeadLen {
		return h, fmt.Errorf("%w: a head of %d bytes", ErrMalformed, len(b))
	}
	word := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	if word(HeadLen-16) != sum64(b[:HeadLen-16]) || word(HeadLen-8) != word(8) {
		return h, ErrTorn
	}
	h = Head{Last: word(8), First: word(16), Records: word(24), At: word(32), Data: word(40), Marks: word(48), Makers: Makers(word(56))}
	switch {
	case string(b[:len(magic)]) != magic:
		return h, fmt.Errorf("%w: it is of another kind or version", ErrMalformed)
	case h.Records == 0 || h.Records > maxRecords || h.At != recordsAt+h.Records*recordLen || h.At > n || h.Data > n-h.At || h.Data > maxData:
		return h, fmt.Errorf("%w: %d records and %d bytes of data in %d bytes", ErrMalformed, h.Records, h.Data, n)
	case h.First > h.Last || h.Last-h.First > h.Records:
		return h, fmt.Errorf("%w: records %d to %d in %d places", ErrMalformed, h.First, h.Last, h.Records)
	case h.Marks > MaxMarks:
		return h, fmt.Errorf("%w: %d marks", ErrMalformed, h.Marks)
	}
	return h, nil
}

// mark is how records name a Key: two keys with the same mark are told apart by their entries.
func mark(k resultcache.Key) uint64 { return binary.LittleEndian.Uint64(k[:]) }

// record says where an entry is.
//
//	0      8        12       16       20    24 bytes
//	| mark | place  | length | number | sum |
type record struct {
	mark   uint64
	place  uint32 // in units of align from the start of the data
	length uint32 // in bytes
	number uint32 // the lower half of its number
}

func (r *record) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = wire.AppendUint64(dst, r.mark)
	dst = wire.AppendUint32(dst, r.place)
	dst = wire.AppendUint32(dst, r.length)
	dst = wire.AppendUint32(dst, r.number)
	return wire.AppendUint32(dst, uint32(sum64(dst[start:])))
}

// parseRecord reads a record. ok is false if it is torn.
func parseRecord(b []byte) (r record, ok bool) {
	b = b[:recordLen]
	r = record{mark: binary.LittleEndian.Uint64(b), place: binary.LittleEndian.Uint32(b[8:]), length: binary.LittleEndian.Uint32(b[12:]),
		number: binary.LittleEndian.Uint32(b[16:])}
	return r, binary.LittleEndian.Uint32(b[20:]) == uint32(sum64(b[:20]))
}

// end returns where the record's entry, filled up to whole units, ends in the data, in bytes.
func (r *record) end() uint64 { return uint64(r.place)*align + roundUp(uint64(r.length)) }

func roundUp(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }

// sum64 returns the FNV-1a sum of b.
func sum64(b []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}
