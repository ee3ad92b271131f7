package shelf

import "github.com/rdistcc/rdistcc/pkg/resultcache"

// parts are what those have in a Shelf who share it (PutFor). Each is guaranteed an even part of the room: as
// long as one has no more than that, its entries do not make room for those of others. The oldest entries
// are in the way of new ones, whoever has put them. So an entry that is to stay is put once more, as a new one.
//
// A file does not say who has put an entry. Those that were there when it was opened belong to nobody's part.
type parts struct {
	owner map[uint64]string // who has put an entry, by the number of its record
	has   map[string]uint64 // what their entries take, in bytes

	// while an entry is added
	adding string // who adds it; empty: no entry is to stay
	coming uint64 // what it will take, in bytes
	saved  []saved
}

// saved is an entry that was in the way of a new one, and is to stay.
type saved struct {
	mark  uint64
	owner string
	entry []byte
}

// movedMost bounds what is put once more for the sake of one new entry, in bytes: copying that takes about a
// millisecond. What is then still to stay is dropped, which is about as much as the new entry.
const movedMost = 4 << 20

// slack is which part of the room is not divided, as entries cannot use all of it: the end of the data stays
// empty when an entry does not fit there.
const slack = share

// PutFor is Put for an entry that belongs to owner, who shares the Shelf with others.
func (s *Shelf) PutFor(owner string, key resultcache.Key, entry ...[]byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts == nil {
		s.parts = &parts{owner: make(map[uint64]string), has: make(map[string]uint64)}
	}
	n := uint64(0)
	for _, b := range entry {
		n += uint64(len(b))
	}
	p := s.parts
	p.adding, p.coming = owner, s.takes(n)
	defer func() { p.adding, p.coming, p.saved = "", 0, nil }()
	if !s.put(mark(key), entry) {
		return false
	}
	p.add(s.h.Last-1, owner, p.coming)
	p.coming = 0
	for moved := 0; len(p.saved) > 0 && moved <= movedMost; {
		x := p.saved[0]
		p.saved = p.saved[1:]
		moved += len(x.entry)
		if s.put(x.mark, [][]byte{x.entry}) {
			s.evicted--
			p.add(s.h.Last-1, x.owner, s.takes(uint64(len(x.entry))))
		}
	}
	return true
}

// takes returns how much room an entry of n bytes takes, in bytes. A place for a record is worth its part of the data.
func (s *Shelf) takes(n uint64) uint64 { return max(roundUp(n), s.h.Data/s.h.Records) }

func (p *parts) add(number uint64, owner string, n uint64) {
	p.owner[number] = owner
	p.has[owner] += n
}

// evictPart takes the oldest entry, whose record is r, from its owner. It saves the entry if that owner has no more
// than its part.
func (s *Shelf) evictPart(r *record) {
	p := s.parts
	if p == nil {
		return
	}
	owner, known := p.owner[s.h.First]
	if !known {
		return
	}
	delete(p.owner, s.h.First)
	had := p.has[owner]
	if p.adding != "" && s.stays(owner) {
		entry := make([]byte, r.length)
		if s.mem.read(s.h.At+uint64(r.place)*align, entry) == nil { // otherwise it is lost
			p.saved = append(p.saved, saved{r.mark, owner, entry})
		}
	}
	if p.has[owner] = had - s.takes(uint64(r.length)); p.has[owner] == 0 {
		delete(p.has, owner)
	}
}

// stays reports whether an entry of owner is not to make room for the one that is added.
func (s *Shelf) stays(owner string) bool {
	p := s.parts
	has, owners := p.has[owner], uint64(len(p.has))
	if owner == p.adding {
		has += p.coming
	} else if p.has[p.adding] == 0 {
		owners++
	}
	return has <= (s.limit-s.limit/slack)/owners
}
