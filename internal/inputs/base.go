package inputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Two sources usually read nearly the same files, and a list takes some 100 bytes a file, half of them for
// names that cannot be shortened. So a Set's list holds only the difference to another Set's list, its base.

const (
	// mostBases is how many sets a Table keeps as bases.
	mostBases = 16
	// baseGain is how many times shorter a base must make a list.
	baseGain = 3
)

// delta is the difference between a Set and its base.
type delta struct {
	without []uint32 // indices of the base's list
	more    []*Input
}

// What a list takes for each of these, in bytes.
const (
	fileCost    = 4 + 8 + 8 + 4 + 1 + len(unit.ContentID{}) // besides its name
	withoutCost = 4
)

// relate finds a base for the new set s, or makes s a base.
func (t *Table) relate(s *Set) {
	s.findLinked()
	whole := 0
	for _, f := range s.Files[1:] {
		whole += fileCost + len(f.Name)
	}
	best, at := whole/baseGain, -1
	for i, b := range t.bases {
		if d, cost := s.beyond(b, best); cost < best {
			s.base, s.delta = b, d
			best, at = cost, i
		}
	}
	if s.base != nil && len(s.more)+len(s.without) == 0 && slices.Equal(s.Dirs, s.base.Dirs) && slices.Equal(s.Links, s.base.Links) {
		s.base = nil // their lists are equal
	}
	switch {
	case at >= 0: // to the front, so that the least recently used one goes first
		b := t.bases[at]
		copy(t.bases[1:at+1], t.bases[:at])
		t.bases[0] = b
	case len(s.Files) > 1:
		t.bases = slices.Insert(t.bases, 0, s)
		t.bases = t.bases[:min(len(t.bases), mostBases)]
	}
}

// findLinked finds the files of s that share an inode; each list describes those by itself.
func (s *Set) findLinked() {
	first := make(map[inode]int, len(s.Files))
	for i, f := range s.Files[1:] {
		at := inode{f.st.Dev, f.st.Ino}
		j, twice := first[at]
		if !twice {
			first[at] = i
			continue
		}
		if s.linked == nil {
			s.linked = make([]bool, len(s.Files)-1)
		}
		s.linked[i], s.linked[j] = true, true
	}
}

// beyond returns the difference between s and b, and how many bytes of a list it takes. A cost of most or
// more need not be exact.
func (s *Set) beyond(b *Set, most int) (d delta, cost int) {
	cost = len(unit.ContentID{})
	ours, theirs := s.Files[1:], b.Files[1:]
	lone := func(s *Set, i int) bool { return s.linked == nil || !s.linked[i] }
	i, j := 0, 0
	for cost < most && (i < len(ours) || j < len(theirs)) {
		var order int
		switch {
		case i == len(ours):
			order = 1
		case j == len(theirs):
			order = -1
		case ours[i] != theirs[j]:
			order = strings.Compare(ours[i].Name, theirs[j].Name)
		}
		if order == 0 && lone(s, i) && lone(b, j) && ours[i].alike(theirs[j]) {
			i, j = i+1, j+1
			continue
		}
		if order <= 0 {
			d.more = append(d.more, ours[i])
			cost += fileCost + len(ours[i].Name)
			i++
		}
		if order >= 0 {
			d.without = append(d.without, uint32(j))
			cost += withoutCost
			j++
		}
	}
	return d, cost
}

// alike reports whether a list describes both in the same way.
func (i *Input) alike(o *Input) bool {
	return i == o || i.Name == o.Name && i.ID == o.ID && i.Len == o.Len && i.MTime == o.MTime && i.Exec == o.Exec
}
