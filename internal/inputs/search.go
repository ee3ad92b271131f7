package inputs

import (
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/sources"
)

// search is a search list, without the directories that a compiler leaves out.
type search struct {
	quote []*dir // for "x" alone
	angle []*dir // for both: -I, then the system's
	user  []*dir // all that the command names and that exist, as it names them
	own   []*dir // the compiler's own
	all   []*dir // all of the above, for the assembler too

	maps []*sources.HeaderMap // files in the place of directories that clang looks names up in

	system []*dir // those of angle whose headers compilers count as the system's, without those below /usr/include and /usr/lib
}

// lists makes the search list from what the command and the compiler say.
func (w *walk) lists() *Doubt {
	q := w.q
	w.t.dirAt(q.Cwd) // which knows of those in it
	list := func(names []string) (dirs []*dir, d *Doubt) {
		for _, name := range names {
			dir := w.t.dirAt(trimSlash(w.abs(name)))
			if d := w.t.check(dir); d != nil {
				return nil, d
			}
			if dir.there {
				dirs = append(dirs, dir)
				continue
			}
			// If it is something else, the compiler reports that.
			e, d := w.at(name)
			if d != nil {
				return nil, d
			}
			if e == nil {
				continue
			}
			w.odd = append(w.odd, e)
			if d := w.headerMap(e); d != nil {
				return nil, d
			}
		}
		return dirs, nil
	}
	var lists [5][]*dir
	for i, names := range [...][]string{q.Quote, q.Angle, q.System, q.Own, q.After} {
		var d *Doubt
		if lists[i], d = list(names); d != nil {
			return d
		}
	}
	missing, d := list(q.Missing)
	if d != nil {
		return d
	}
	if len(missing) > 0 {
		return &Doubt{Why: DoubtSearch, Name: missing[0].path}
	}
	s := &w.search // its maps are there already
	s.user = slices.Concat(lists[0], lists[1], lists[2], lists[4])
	s.own = lists[3]
	system := unique(slices.Concat(lists[2], lists[3], lists[4]), nil)
	angle := unique(lists[1], system) // a directory that is also the system's counts as that
	s.quote = lists[0]
	if q.GCC {
		s.quote = unique(lists[0], system)
	}
	s.angle = append(angle, system...)
	s.system = slices.DeleteFunc(slices.Clone(system), func(d *dir) bool { return d.way.headers })
	s.all = append(slices.Clone(s.quote), s.angle...)
	return nil
}

// headerMap has the names in e looked up, which stands in the place of a directory, if it is a header map.
func (w *walk) headerMap(e *entry) *Doubt {
	if w.q.GCC {
		return nil
	}
	if (e.file == nil || e.file.void) && w.over(e) {
		return again
	}
	if d := w.t.load(e); d != nil {
		return d
	}
	if d := w.t.loaded(e.file); d != nil {
		return d
	}
	switch x := e.file.text; {
	case x == nil:
		w.noticed(DoubtSize, e.path())
	case x.headers != nil:
		w.search.maps = append(w.search.maps, x.headers)
		w.blurred = true // what it names is the system's if it stands among the system's directories
	}
	return nil
}

// trimSlash removes trailing slashes from a directory's name.
func trimSlash(name string) string {
	if cut := strings.TrimRight(name, "/"); cut != "" {
		return cut
	}
	return "/."
}

// unique returns list with only the first of equal directories, and without those in not.
func unique(list, not []*dir) []*dir {
	type id struct{ dev, ino uint64 }
	seen := make(map[id]bool, len(list)+len(not))
	for _, d := range not {
		seen[id{d.st.Dev, d.st.Ino}] = true
	}
	out := make([]*dir, 0, len(list))
	for _, d := range list {
		if at := (id{d.st.Dev, d.st.Ino}); !seen[at] {
			seen[at] = true
			out = append(out, d)
		}
	}
	return out
}
