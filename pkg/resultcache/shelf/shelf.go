package shelf

import (
	"fmt"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Shelf is memory with entries, for the host that writes them. Its methods may be called concurrently.
type Shelf struct {
	mem memory

	head  sync.Mutex // taken after mu, and before the memory's lock; not held while anything is written; guards the next two
	told  Head       // what readers see
	marks marks

	mu      sync.Mutex // one writer of entries at a time; guards the rest
	h       Head
	limit   uint64 // bytes of the data that are in use
	at      uint64 // where the next entry goes in the data, in bytes
	used    uint64 // bytes of entries that count, in whole units
	evicted uint64
	err     error  // of the memory: nothing is added any more
	parts   *parts // of those that share it; nil: nobody does
}

// records returns the number of places for records with n bytes of data.
func records(n uint64) uint64 { return min(max(n/perRecord, minRecords), maxRecords) }

// Size returns how much memory a Shelf with n bytes of data takes, in bytes.
func Size(n uint64) uint64 { return recordsAt + records(n)*recordLen + n }

// New makes an empty Shelf with data bytes of data in mem, which has Size(data) bytes, all of them zero. lock
// is held whenever bytes of mem change, but not for longer than it takes to copy 64 KiB.
func New(mem []byte, data uint64, lock sync.Locker) (*Shelf, error) {
	if data > maxData || uint64(len(mem)) != Size(data) {
		return nil, fmt.Errorf("a shelf with %d bytes of data in %d bytes", data, len(mem))
	}
	s := newShelf(ram{mem, lock}, data)
	s.tell()
	return s, s.err
}

func newShelf(mem memory, data uint64) *Shelf {
	return &Shelf{mem: mem, limit: data / align * align, h: NewHead(data)}
}

// NewHead returns the head of an empty Shelf with data bytes of data.
func NewHead(data uint64) Head {
	n := records(data)
	return Head{Records: n, At: recordsAt + n*recordLen, Data: data}
}

// tell writes and shows the head, after entries have changed. The caller holds mu. What is kept has no marks, as their
// jobs end with the program.
func (s *Shelf) tell() {
	var b [HeadLen]byte
	if s.err == nil {
		s.err = s.mem.keep(s.h.Append(b[:0]))
	}
	if s.err != nil {
		return
	}
	s.head.Lock()
	defer s.head.Unlock()
	marks, makers := s.told.Marks, s.told.Makers
	s.told = s.h
	s.told.Marks, s.told.Makers = marks, makers
	s.showHead()
}

// showHead shows the head. The caller holds head.
func (s *Shelf) showHead() {
	var b [HeadLen]byte
	s.mem.show(0, s.told.Append(b[:0]))
}

// write writes bytes of the memory, unless that has failed before.
func (s *Shelf) write(off uint64, b []byte) {
	if s.err == nil {
		s.err = s.mem.write(off, b)
	}
}

// place returns what is in the place of record n.
func (s *Shelf) place(n uint64) []byte {
	b := make([]byte, recordLen)
	if s.err == nil {
		s.err = s.mem.read(s.placeAt(n), b)
	}
	return b
}

// placeAt returns where the place of record n is, in bytes from the start of the memory.
func (s *Shelf) placeAt(n uint64) uint64 { return recordsAt + n%s.h.Records*recordLen }

// first returns the oldest record that counts, of which there must be one.
func (s *Shelf) first() record {
	r, _ := parseRecord(s.place(s.h.First)) // nobody else writes there
	return r
}

// evict makes the oldest record count no more.
func (s *Shelf) evict() {
	r := s.first()
	s.used -= roundUp(uint64(r.length))
	s.evicted++
	s.evictPart(&r)
	s.h.First++
}

// partMost is the most of an entry that is copied at a time, in bytes.
const partMost = 64 << 10

// share is how much of the data one entry may take: an eighth.
const share = 8

// Put adds an entry for key, which consists of parts. It reports whether it did: an entry that would take too
// much of the data is not added. What key had before is still there, but readers no longer find it.
func (s *Shelf) Put(key resultcache.Key, parts ...[]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(mark(key), parts)
}

// put is Put for an entry of whose key that is the mark. The caller holds mu.
func (s *Shelf) put(mark uint64, parts [][]byte) bool {
	n := uint64(0)
	for _, p := range parts {
		n += uint64(len(p))
	}
	if n == 0 || n > s.limit/share {
		return false
	}
	s.makeRoom(roundUp(n))
	to := s.h.At + s.at
	for _, p := range parts {
		for len(p) > 0 {
			k := min(len(p), partMost)
			s.write(to, p[:k])
			to, p = to+uint64(k), p[k:]
		}
	}
	r := record{mark: mark, place: uint32(s.at / align), length: uint32(n), number: uint32(s.h.Last)}
	var b [recordLen]byte
	s.write(s.placeAt(s.h.Last), r.appendTo(b[:0]))
	if s.err != nil {
		return false
	}
	s.h.Last++
	s.at += roundUp(n)
	s.used += roundUp(n)
	s.tell()
	return s.err == nil
}

// makeRoom evicts entries until n bytes from at on, and the place of the next record, are free.
func (s *Shelf) makeRoom(n uint64) {
	before := s.h.First
	if s.at+n > s.limit {
		for s.h.First < s.h.Last && uint64(s.first().place)*align >= s.at {
			s.evict()
		}
		s.at = 0
	}
	for s.h.First < s.h.Last {
		r := s.first()
		if s.h.Last-s.h.First < s.h.Records && (uint64(r.place)*align >= s.at+n || r.end() <= s.at) {
			break
		}
		s.evict()
	}
	if s.h.First != before {
		s.tell()
	}
}

// Limit makes the Shelf use only the first n bytes of its data from now on, and evicts what lies beyond them
// and all that is older than that.
func (s *Shelf) Limit(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.limit
	s.limit = min(n, s.h.Data) / align * align
	s.head.Lock()
	s.marks.shut = s.limit == 0
	s.head.Unlock()
	if s.limit >= before {
		return
	}
	last := s.h.First                           // what is beyond the limit comes before it
	_ = s.each(func(i uint64, b []byte) error { // an error is noted, and then nothing is added any more
		if r, _ := parseRecord(b); r.end() > s.limit {
			last = i + 1
		}
		return nil
	})
	s.evictTo(last)
	if s.at > s.limit {
		s.at = 0
	}
}

// Clear evicts all entries.
func (s *Shelf) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictTo(s.h.Last)
	s.at = 0
}

// evictTo evicts what comes before record n.
func (s *Shelf) evictTo(n uint64) {
	if s.h.First == n {
		return
	}
	for s.h.First < n {
		s.evict()
	}
	s.tell()
}

// Wraps reports whether the next entry, of n bytes, would not fit behind the last one, so that a larger limit would
// save older ones.
func (s *Shelf) Wraps(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at+roundUp(n) > s.limit
}

// Head returns what s tells of itself.
func (s *Shelf) Head() Head {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h
}

// Stats say how much is in a Shelf.
type Stats struct {
	Entries int
	Bytes   uint64 // that they take
	Evicted uint64 // entries, so far
}

// Stats returns how much is in s.
func (s *Shelf) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{Entries: int(s.h.Last - s.h.First), Bytes: s.used, Evicted: s.evicted}
}

// Data returns where the data that is beyond the limit begins, in bytes from the start of the memory. Nothing
// there is read or written.
func (s *Shelf) Data() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.h.At + s.limit
}
