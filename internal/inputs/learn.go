package inputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// Learn keeps what the compiler said that the compile of q reads: names, as it spells them, of the
// files that are there, after Resolve was in doubt. absent are names that it may have looked for in vain.
func (t *Table) Learn(q *Query, names, absent []string, unsure bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // whoever needs the files has asked
	t.begin()
	before := t.units[q.Key]
	if before == nil || before.set != nil || !t.holds(before) {
		return // something changed while the compiler was asked
	}
	w := newWalk(t, q)
	w.told = true
	if w.all() != nil && !w.whole || w.listed(names, absent, before.at) != nil {
		return
	}
	u := t.unit(w)
	u.set = w.finish()
	u.set.Memo, u.set.Unsure = true, unsure
	t.units[q.Key] = u
}

// listed has the set be what the compiler has listed, which has been asked at the time
// began, in nanoseconds since 1970. What else the files name counts for how long that holds.
func (w *walk) listed(names, absent []string, began int64) *Doubt {
	known := len(w.hits)
	w.only = make(map[string]struct{}, len(names))
	var computed []*entry
	for _, name := range names {
		e, d := w.at(name)
		if d != nil {
			return d
		}
		if e == nil {
			return &Doubt{Why: DoubtChanged, Name: name}
		}
		if _, known := w.seen[e]; !known {
			computed = append(computed, e)
		}
		if d := w.hit(e, true); d != nil {
			return d
		}
		w.only[e.real()] = struct{}{}
	}
	if d := w.follow(); d != nil {
		return d
	}
	for _, name := range absent {
		if e, d := w.at(name); d != nil || e != nil {
			return &Doubt{Why: DoubtChanged, Name: name}
		}
	}
	// How a macro's name led to a file is not known: it may have been looked for wherever
	// a part of its path could be a name, in vain; and is from now on.
	dirs := slices.Clone(w.search.all)
	for _, e := range w.hits {
		if !slices.Contains(dirs, e.dir) && e.file.text != nil && (e.file.text.doubt != "" || len(e.file.text.macros) > 0) {
			dirs = append(dirs, e.dir)
		}
	}
	for _, e := range computed {
		path := e.path()
		for _, dir := range dirs {
			rest, ok := strings.CutPrefix(path, dir.path+"/")
			if !ok {
				continue
			}
			for _, other := range dirs {
				found, d := w.find(other, rest)
				if d != nil {
					return d
				}
				if found != nil {
					if d := w.hit(found, true); d != nil {
						return d
					}
				}
			}
		}
	}
	if d := w.follow(); d != nil {
		return d
	}
	// What was not looked at before the compiler was asked must not have changed since.
	for _, e := range w.hits[min(known, len(w.hits)):] {
		if e.st.CTime >= began-stamp.Tick || e.target().CTime >= began-stamp.Tick {
			return &Doubt{Why: DoubtChanged, Name: e.path()}
		}
	}
	return nil
}
