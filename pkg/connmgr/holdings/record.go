package holdings

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Record is what one host holds, for a later manager. It is as good as the host's epoch: a host that has wiped its store has another
// one, and says what it has dropped otherwise.
type Record struct {
	Addr   string
	Epoch  uint64
	Unlike bool // its system headers differ
	IDs    []unit.ContentID
}

// Recall makes h begin with what a record says, if the host's epoch is still that one.
func (h *Ledger) Recall(r *Record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.recalled = r
}

// Record returns what the host at addr is known to hold, or nil if that is nothing.
func (h *Ledger) Record(addr string) *Record {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil {
		return h.recalled
	}
	r := &Record{Addr: addr, Epoch: h.epoch, Unlike: h.unlike}
	for id, x := range h.known {
		if x.way == nil {
			r.IDs = append(r.IDs, id)
		}
	}
	if r.Epoch == 0 || len(r.IDs) == 0 {
		return nil
	}
	return r
}

// restoreLocked adds what was recalled, if it is of this epoch.
func (h *Ledger) restoreLocked() {
	r := h.recalled
	h.recalled = nil
	if r == nil || r.Epoch != h.epoch || h.epoch == 0 {
		return
	}
	h.unlike = r.Unlike
	for _, id := range r.IDs {
		h.known[id] = &holding{posted: past}
	}
}

// past is closed.
var past = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// The encoding of records, little-endian: contents are there once, and a bit for each at every host.
//
//	| "rdccheld1" | IDs u32 | 32 each | hosts: address's length u16, address, epoch u64, unlike u8, a bit for each ID | SHA-256 |
const magic = "rdccheld1"

// mostRecords bounds the contents in an encoding: what is beyond is forgotten.
const mostRecords = 2 * maxHoldings

// Encode returns the encoding of records, the same for equal ones.
func Encode(records []*Record) []byte {
	index := make(map[unit.ContentID]int)
	var ids []unit.ContentID
	for _, r := range records {
		for _, id := range r.IDs {
			if _, known := index[id]; !known && len(ids) < mostRecords {
				index[id] = 0
				ids = append(ids, id)
			}
		}
	}
	slices.SortFunc(ids, func(a, b unit.ContentID) int { return bytes.Compare(a[:], b[:]) })
	b := binary.LittleEndian.AppendUint32([]byte(magic), uint32(len(ids)))
	for i, id := range ids {
		index[id] = i
		b = append(b, id[:]...)
	}
	records = slices.Clone(records)
	slices.SortFunc(records, func(a, b *Record) int { return cmp.Compare(a.Addr, b.Addr) })
	for _, r := range records {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(r.Addr)))
		b = append(b, r.Addr...)
		b = binary.LittleEndian.AppendUint64(b, r.Epoch)
		bits := make([]byte, 1+(len(ids)+7)/8)
		if r.Unlike {
			bits[0] = 1
		}
		for _, id := range r.IDs {
			if i, known := index[id]; known {
				bits[1+i/8] |= 1 << (i % 8)
			}
		}
		b = append(b, bits...)
	}
	sum := sha256.Sum256(b)
	return append(b, sum[:]...)
}

// Decode returns the records in b, or nil if it is no encoding of any.
func Decode(b []byte) (records []*Record) {
	n := len(b) - sha256.Size
	if n < len(magic)+4 || string(b[:len(magic)]) != magic || sha256.Sum256(b[:n]) != [sha256.Size]byte(b[n:]) {
		return nil
	}
	count := int(binary.LittleEndian.Uint32(b[len(magic):]))
	b = b[len(magic)+4 : n]
	if count > len(b)/sha256.Size {
		return nil
	}
	ids, b := b[:count*sha256.Size], b[count*sha256.Size:]
	for len(b) > 0 {
		if len(b) < 2 {
			return nil
		}
		k := int(binary.LittleEndian.Uint16(b))
		if b = b[2:]; len(b) < k+9+(count+7)/8 {
			return nil
		}
		r := &Record{Addr: string(b[:k]), Epoch: binary.LittleEndian.Uint64(b[k:]), Unlike: b[k+8] == 1}
		bits := b[k+9:][:(count+7)/8]
		for i := range count {
			if bits[i/8]>>(i%8)&1 == 1 {
				r.IDs = append(r.IDs, unit.ContentID(ids[i*sha256.Size:]))
			}
		}
		records, b = append(records, r), b[k+9+len(bits):]
	}
	return records
}
