package regcache

import (
	"cmp"
	"slices"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// table holds regions in the order of their first byte. Regions may overlap. A search goes back from the
// last region that begins early enough, no further than the longest one reaches.
type table struct {
	es      []*entry
	longest uintptr // no region is longer
}

// after returns the index of the first region that begins at lo or later.
func (t *table) after(lo uintptr) int {
	i, _ := slices.BinarySearchFunc(t.es, lo, func(e *entry, lo uintptr) int { return cmp.Compare(e.lo, lo) })
	return i
}

func (t *table) insert(e *entry) {
	t.es = slices.Insert(t.es, t.after(e.lo), e)
	t.longest = max(t.longest, e.hi-e.lo)
}

func (t *table) remove(e *entry) {
	for i := t.after(e.lo); i < len(t.es) && t.es[i].lo == e.lo; i++ {
		if t.es[i] == e {
			t.es = slices.Delete(t.es, i, i+1)
			break
		}
	}
	if len(t.es) == 0 {
		t.longest = 0
	}
}

func (t *table) all() []*entry { return slices.Clone(t.es) }

// find returns a region that serves for the bytes from lo to hi with the rights a, or nil.
func (t *table) find(lo, hi uintptr, a iwarp.Access) *entry {
	exact := a&remoteRights != 0
	for i := t.after(lo+1) - 1; i >= 0; i-- {
		e := t.es[i]
		switch {
		case lo-e.lo > t.longest:
			return nil
		case exact && e.lo != lo:
			return nil
		case exact && e.hi == hi && e.access == a:
			return e
		case !exact && e.hi >= hi && e.access&a == a:
			return e
		}
	}
	return nil
}

// overlapping returns the regions that have a byte from lo up to hi.
func (t *table) overlapping(lo, hi uintptr) (found []*entry) {
	for i := t.after(hi) - 1; i >= 0; i-- {
		e := t.es[i]
		if e.lo < lo && lo-e.lo > t.longest {
			break
		}
		if e.hi > lo {
			found = append(found, e)
		}
	}
	return found
}
