package shelf

import (
	"encoding/binary"
	"time"

	"github.com/rdistcc/rdistcc/internal/wire"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Numbers of the table of marks, in bytes. It lies between the head and the records.
const (
	MarkLen  = 24
	MaxMarks = 160
)

// Mark says that a job is under way on the host whose result will be an entry, if it has one. It lasts as long as
// the job. Its entry, if there is one, is there before the mark is gone.
type Mark struct {
	Maker   uint32        // the manager that it is for, see MakerOf
	Expect  time.Duration // what it is expected to take; 0 = unknown
	Running bool          // it has a place; otherwise it waits for one
}

// MakerOf returns how marks name a manager with that boot number. It is never 0.
func MakerOf(boot [16]byte) uint32 { return binary.LittleEndian.Uint32(boot[:]) | 1 }

// Makers say for whom marks are, as far as 64 bits can.
type Makers uint64

const several Makers = 1 << 32

// add returns the makers with one more.
func (m Makers) add(maker uint32) Makers {
	if m == 0 || m == Makers(maker) {
		return Makers(maker)
	}
	return several
}

// Others reports whether there are marks for another manager than this one.
func (m Makers) Others(maker uint32) bool { return m != 0 && m != Makers(maker) }

// marked is a place in the table.
//
//	0      8       12      16    24 bytes
//	| mark | maker | state | sum |
//
// state is twice the expected milliseconds, plus 1 if the job has a place. A free place has zeros.
type marked struct {
	mark uint64
	Mark
}

func (m *marked) appendTo(dst []byte) []byte {
	if m.Maker == 0 {
		return append(dst, make([]byte, MarkLen)...)
	}
	start := len(dst)
	dst = wire.AppendUint64(dst, m.mark)
	dst = wire.AppendUint32(dst, m.Maker)
	state := uint32(min(max(m.Expect.Milliseconds(), 0), 1<<31-1)) << 1
	if m.Running {
		state |= 1
	}
	dst = wire.AppendUint32(dst, state)
	return wire.AppendUint64(dst, sum64(dst[start:]))
}

// parseMark reads a place of the table. ok is false if it is free, or torn.
func parseMark(b []byte) (m marked, ok bool) {
	b = b[:MarkLen]
	state := binary.LittleEndian.Uint32(b[12:])
	m = marked{binary.LittleEndian.Uint64(b), Mark{Maker: binary.LittleEndian.Uint32(b[8:]), Expect: time.Duration(state>>1) * time.Millisecond, Running: state&1 != 0}}
	return m, m.Maker != 0 && binary.LittleEndian.Uint64(b[16:]) == sum64(b[:16])
}

// marks is the table of a Shelf; guarded by Shelf.head.
type marks struct {
	all  []marked // those that are free have no Maker
	shut bool     // nothing is kept now
}

// Begin adds a mark for a job whose result will have that key. It returns what ends it; 0 if there is no room, or if
// nothing is kept now. It waits for no entry that is being added, and for no disk.
func (s *Shelf) Begin(key resultcache.Key, m Mark) (at int) {
	s.head.Lock()
	defer s.head.Unlock()
	if s.marks.shut || m.Maker == 0 {
		return 0
	}
	i := 0
	for i < len(s.marks.all) && s.marks.all[i].Maker != 0 {
		i++
	}
	if i == MaxMarks {
		return 0
	}
	if i == len(s.marks.all) {
		s.marks.all = append(s.marks.all, marked{})
	}
	s.setMark(i, marked{mark(key), m})
	return i + 1
}

// Runs notes that the job of a mark has got a place. at is what Begin has returned.
func (s *Shelf) Runs(at int) {
	if at == 0 {
		return
	}
	s.head.Lock()
	defer s.head.Unlock()
	m := s.marks.all[at-1]
	m.Running = true
	s.setMark(at-1, m)
}

// End removes a mark. at is what Begin has returned, and of no use after that.
func (s *Shelf) End(at int) {
	if at == 0 {
		return
	}
	s.head.Lock()
	defer s.head.Unlock()
	s.setMark(at-1, marked{})
}

// setMark shows a place of the table, and the head. The caller holds head.
func (s *Shelf) setMark(i int, m marked) {
	t := &s.marks
	t.all[i] = m
	var b [MarkLen]byte
	s.mem.show(uint64(HeadLen+i*MarkLen), m.appendTo(b[:0]))
	for len(t.all) > 0 && t.all[len(t.all)-1].Maker == 0 {
		t.all = t.all[:len(t.all)-1]
	}
	s.told.Marks, s.told.Makers = uint64(len(t.all)), 0
	for i := range t.all {
		if t.all[i].Maker != 0 {
			s.told.Makers = s.told.Makers.add(t.all[i].Maker)
		}
	}
	s.showHead()
}

// UnderWay is what a reader knows of a mark.
type UnderWay struct {
	Mark
	Since time.Time // when it was first seen like this
}

// LearnMarks takes over the table of marks, or the first places of it, which was read at the time now together
// with the head that Learn got last.
func (x *Index) LearnMarks(b []byte, now time.Time) {
	old := x.marks
	x.marks = nil
	for i := uint64(0); i < x.h.Marks && len(b) >= MarkLen; i, b = i+1, b[MarkLen:] {
		m, ok := parseMark(b)
		if !ok {
			continue
		}
		u := UnderWay{m.Mark, now}
		if before, is := old[m.mark]; is && before.Mark == m.Mark {
			u.Since = before.Since
		}
		if x.marks == nil {
			x.marks = make(map[uint64]UnderWay)
		}
		if other, is := x.marks[m.mark]; !is || !other.Running { // of several jobs, the one that is ahead
			x.marks[m.mark] = u
		}
	}
}

// UnderWay returns the mark of a job whose result will have that key, if there is one, as far as is known.
func (x *Index) UnderWay(key resultcache.Key) (u UnderWay, ok bool) {
	u, ok = x.marks[mark(key)]
	return u, ok
}
