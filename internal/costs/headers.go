package costs

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// headers works out what the headers of units cost.
func (r *Report) headers(l *journal.Log, units []*Unit) {
	names, changes := namesOf(l)
	sizes := make([]uint64, len(changes)) // of the state that was read last
	// Which units read a name, as a sum of random numbers: names with the same sum are read together.
	type mark struct {
		sum   uint64
		units int
	}
	marks := make([]mark, len(changes))
	each := func(u *Unit, see func(name uint32, size uint64)) { // without its source
		source := filepath.Base(u.Source)
		for _, f := range u.reads {
			if file := &l.Files[f]; file.Name != u.Source && filepath.Base(file.Name) != source {
				see(names[f], file.Size)
			}
		}
	}
	for i, u := range units {
		at := scatter(uint64(i) + 1)
		each(u, func(name uint32, size uint64) {
			marks[name].sum += at
			marks[name].units++
			sizes[name] = size
		})
	}
	numbers := make(map[mark]int)
	of := make([]int, len(changes)) // a name's group
	file := make([]string, len(changes))
	for f, name := range names {
		file[name] = l.Files[f].Name
	}
	for name, m := range marks {
		if of[name] = -1; m.units == 0 {
			continue
		}
		g, ok := numbers[m]
		if !ok {
			g = len(r.Headers)
			numbers[m] = g
			r.Headers = append(r.Headers, Header{Units: m.units, Error: -1})
		}
		of[name] = g
		h := &r.Headers[g]
		h.Files = append(h.Files, HeaderFile{file[name], sizes[name], changes[name]})
		h.Changes += changes[name]
	}
	m := newModel(len(units), len(r.Headers))
	text := make([]uint64, len(r.Headers)) // that one unit reads
	reads := make([]bool, len(r.Headers))
	var groups []int // that it reads
	for i, u := range units {
		groups = groups[:0]
		all := uint64(0)
		each(u, func(name uint32, size uint64) {
			g := of[name]
			if !reads[g] {
				reads[g] = true
				groups = append(groups, g)
			}
			text[g] += size
			all += size
		})
		for _, g := range groups {
			h := &r.Headers[g]
			h.Text += text[g]
			h.Touch += u.CPU
			m.add(i, g, float64(text[g]))
			text[g], reads[g] = 0, false
		}
		m.unit(i, u.CPU.Seconds(), float64(u.Text-all))
	}
	r.Fit = m.fit(r.Headers)
	for i := range r.Headers {
		slices.SortFunc(r.Headers[i].Files, likelier)
	}
	slices.SortFunc(r.Headers, func(x, y Header) int {
		return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(y.Text, x.Text), cmp.Compare(x.Name(), y.Name()))
	})
}

// namesOf numbers the names of a journal's files. It returns the number of each file's name, and how often what has a name has
// changed.
func namesOf(l *journal.Log) (names []uint32, changes []int) {
	number := make(map[string]uint32, len(l.Files))
	names = make([]uint32, len(l.Files))
	for i := range l.Files {
		n, ok := number[l.Files[i].Name]
		if ok {
			changes[n]++
		} else {
			n = uint32(len(changes))
			number[l.Files[i].Name] = n
			changes = append(changes, 0)
		}
		names[i] = n
	}
	return names, changes
}

// likelier orders files that are always read together by how likely they include the others: a header of the project before the system's;
// of C++'s library the headers that it documents, which have no suffix, before <bits/...>; then the one with the shortest way to it.
func likelier(x, y HeaderFile) int {
	rank := func(name string) (r int) {
		if unit.IsSystemFile(name) {
			r = 2
			if filepath.Ext(name) == "" {
				r = 1
			}
		}
		return r
	}
	return cmp.Or(cmp.Compare(rank(x.Name), rank(y.Name)), cmp.Compare(strings.Count(x.Name, "/"), strings.Count(y.Name, "/")),
		cmp.Compare(len(x.Name), len(y.Name)), cmp.Compare(x.Name, y.Name))
}

// scatter returns a number that looks random (splitmix64).
func scatter(x uint64) uint64 {
	x *= 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Edited returns the headers in the order of what edits of them have cost, and then of what one would cost, the most first. Those of
// the system are left out: nobody edits them.
func (r *Report) Edited() []*Header {
	var list []*Header
	for i := range r.Headers {
		if h := &r.Headers[i]; !h.System() {
			list = append(list, h)
		}
	}
	slices.SortStableFunc(list, func(x, y *Header) int {
		return cmp.Or(cmp.Compare(y.edits(), x.edits()), cmp.Compare(y.Touch, x.Touch), cmp.Compare(x.Name(), y.Name()))
	})
	return list
}

// System reports whether a header is one of the system, and not of a project.
func (h *Header) System() bool { return unit.IsSystemFile(h.Name()) }

// edits returns what the changes of a header have cost, if each unit that reads it was compiled after each.
func (h *Header) edits() time.Duration { return time.Duration(h.Changes) * h.Touch }
