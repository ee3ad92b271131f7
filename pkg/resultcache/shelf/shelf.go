package shelf

import (
	"fmt"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Shelf is memory with entries, for the host that writes them. Its methods may be called concurrently.
type Shelf struct {
	mem  []byte
	lock sync.Locker // held while bytes of mem change

	mu      sync.Mutex // one writer at a time; taken before lock; guards the rest
	h       Head
	limit   uint64 // bytes of the data that are in use
	at      uint64 // where the next entry goes in the data, in bytes
	used    uint64 // bytes of entries that count, in whole units
	evicted uint64
	parts   *parts // of those that share it; nil: nobody does
}

// records returns the number of places for records with n bytes of data.
func records(n uint64) uint64 { return min(max(n/perRecord, minRecords), maxRecords) }

// Size returns how much memory a Shelf with n bytes of data takes, in bytes.
func Size(n uint64) uint64 { return recordsAt + records(n)*recordLen + n }

// New makes an empty Shelf with data bytes of data in mem, which has Size(data) bytes, all of them zero. lock
// is held whenever bytes of mem change, but not for longer than it takes to copy 64 KiB.
func New(mem []byte, data uint64, lock sync.Locker) (*Shelf, error) {
	n := records(data)
	s := &Shelf{mem: mem, lock: lock, limit: data / align * align, h: Head{Records: n, At: recordsAt + n*recordLen, Data: data}}
	if data > maxData || uint64(len(mem)) != Size(data) {
		return nil, fmt.Errorf("a shelf with %d bytes of data in %d bytes", data, len(mem))
	}
	lock.Lock()
	defer lock.Unlock()
	s.tell()
	return s, nil
}

// tell writes the head. The caller holds lock.
func (s *Shelf) tell() {
	var b [HeadLen]byte
	copy(s.mem, s.h.Append(b[:0]))
}

// place returns the place of record n.
func (s *Shelf) place(n uint64) []byte {
	return s.mem[recordsAt+n%s.h.Records*recordLen:][:recordLen]
}

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
	to := s.mem[s.h.At+s.at:]
	for _, p := range parts {
		for len(p) > 0 {
			s.lock.Lock()
			k := copy(to, p[:min(len(p), partMost)])
			s.lock.Unlock()
			to, p = to[k:], p[k:]
		}
	}
	r := record{mark: mark, place: uint32(s.at / align), length: uint32(n), number: uint32(s.h.Last)}
	s.lock.Lock()
	defer s.lock.Unlock()
	r.appendTo(s.place(s.h.Last)[:0])
	s.h.Last++
	s.at += roundUp(n)
	s.used += roundUp(n)
	s.tell()
	return true
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
		s.lock.Lock()
		defer s.lock.Unlock()
		s.tell()
	}
}

// Limit makes the Shelf use only the first n bytes of its data from now on, and evicts what lies beyond them
// and all that is older than that.
func (s *Shelf) Limit(n uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = min(n, s.h.Data) / align * align
	last := s.h.First // what is beyond the limit comes before it
	for i := s.h.First; i < s.h.Last; i++ {
		if r, _ := parseRecord(s.place(i)); r.end() > s.limit {
			last = i + 1
		}
	}
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
	s.lock.Lock()
	defer s.lock.Unlock()
	s.tell()
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
