package shelf

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Index is what a reader knows of a Shelf. It is not safe for concurrent use. The zero value is an Index of
// a shelf of which nothing is known.
type Index struct {
	h     Head
	known uint64 // records before this one have been read, or are not wanted
	all   map[uint64]Place
	marks map[uint64]UnderWay // by the names of their results; of the last look at the table
}

// Place says where an entry is.
type Place struct {
	Number uint64 // of its record
	Off    uint64 // in bytes from the start of the memory
	Len    uint32 // in bytes
}

// Learn takes over a head that was read. It returns an error, which wraps ErrMalformed, if no shelf changes
// like this.
func (x *Index) Learn(h Head) error {
	if old := &x.h; old.Records != 0 && (h.Records != old.Records || h.Data != old.Data || h.Last < old.Last || h.First < old.First) {
		return fmt.Errorf("%w: %+v after %+v", ErrMalformed, h, *old)
	}
	x.h = h
	x.known = max(x.known, h.First)
	if n := h.Last - h.First; uint64(len(x.all)) > 2*n+minRecords { // mostly records that count no more
		for m, p := range x.all {
			if p.Number < h.First {
				delete(x.all, m)
			}
		}
	}
	return nil
}

// readMost is the most records that are read at a time, in several Reads that are under way together: many
// round trips would make a long list take long.
const readMost = 1 << 20 / recordLen

// Next returns which bytes of the memory to read next for Add; n is 0 if all records are known.
func (x *Index) Next() (off, n uint64) {
	if x.known == x.h.Last {
		return 0, 0
	}
	at := x.known % x.h.Records
	return recordsAt + at*recordLen, min(x.h.Last-x.known, x.h.Records-at, readMost) * recordLen
}

// Add takes over the records in b, which was read where Next has said. It leaves out those that are torn, or
// belong to an entry elsewhere than in the data: such an entry is not found.
func (x *Index) Add(b []byte) {
	if x.all == nil {
		x.all = make(map[uint64]Place)
	}
	for ; len(b) >= recordLen && x.known < x.h.Last; b, x.known = b[recordLen:], x.known+1 {
		r, ok := parseRecord(b)
		if ok && r.number == uint32(x.known) && r.length > 0 && uint64(r.place)*align+uint64(r.length) <= x.h.Data {
			x.all[r.mark] = Place{Number: x.known, Off: x.h.At + uint64(r.place)*align, Len: r.length}
		}
	}
}

// Find returns where the entry of key is. ok is false if there is none, as far as is known.
func (x *Index) Find(key resultcache.Key) (p Place, ok bool) {
	p, ok = x.all[mark(key)]
	return p, ok && p.Number >= x.h.First
}

// Forget makes Find not return p for key again, because the entry there is of no use.
func (x *Index) Forget(key resultcache.Key, p Place) {
	if x.all[mark(key)] == p {
		delete(x.all, mark(key))
	}
}

// Counts reports whether p's record still counted when the head was read that Learn got last.
func (x *Index) Counts(p Place) bool { return p.Number >= x.h.First }

// Head returns the head that Learn got last.
func (x *Index) Head() Head { return x.h }

// Len returns for how many entries there is a record that counts, or has not been read.
func (x *Index) Len() uint64 { return x.h.Last - x.h.First }
