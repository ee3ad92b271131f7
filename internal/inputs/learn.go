package inputs

import (
	"crypto/sha256"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/stamp"
)

// Learn keeps the compiler's answer about the compile of q after Resolve was in doubt. names are the files
// that it reads, as the compiler spells them; absent are names that it may have looked for in vain.
func (t *Table) Learn(q *Query, names, absent []string, unsure bool) {
	key := sha256.Sum256([]byte(q.Key))
	t.join(t.begun.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() { _ = t.settle() }() // the caller already has what it needs
	t.begin()
	before := t.units[key]
	if before == nil || before.set != nil || !t.holds(before) {
		return // something changed while the compiler was asked
	}
	w := newWalk(t, q)
	w.told = true
	if w.all() != nil && !w.whole || w.listed(names, absent, before.at) != nil {
		return
	}
	u := t.resolved(w)
	u.set = w.finish()
	u.set.Memo, u.set.Unsure = true, unsure
	t.keep(key, u)
}

// listed makes the set of what the compiler has listed. The compiler was asked at the time began, in
// nanoseconds since 1970. Other files that the listed ones name only determine how long that remains valid.
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
	// It is unknown how a macro's name led to a file. The file may have been looked for in vain
	// wherever a part of its path could be the name, so all these places count from now on.
	dirs := slices.Clone(w.search.all)
	for _, e := range w.hits {
		if !slices.Contains(dirs, e.dir) && e.file.text != nil && (e.file.text.doubt != "" || e.file.text.escaped || len(e.file.text.macros) > 0) {
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
	// Entries first examined after the compiler was asked must not have changed since.
	for _, e := range w.hits[min(known, len(w.hits)):] {
		if e.st.CTime >= began-stamp.Tick || e.target().CTime >= began-stamp.Tick {
			return &Doubt{Why: DoubtChanged, Name: e.path()}
		}
	}
	return nil
}
