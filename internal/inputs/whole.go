package inputs

import (
	"cmp"
	"slices"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Whole returns a Set with the same files, whose List has all of them, including the source, and no base. Precompiled
// headers are compared by it, because it covers names, contents, times and modes, and sent as such a list.
func (s *Set) Whole() *Set {
	w := &Set{Files: append([]*Input{{Name: s.Files[0].Name}}, s.Files...), Dirs: s.Dirs, Links: s.Links, Len: s.Len, Unsure: s.Unsure, Timed: s.Timed}
	w.findLinked()
	return w
}

// Lacks returns the names of files of other that s does not have.
func (s *Set) Lacks(other *Set) (names []string) {
	have := make(map[string]unit.ContentID, len(s.Files))
	for _, f := range s.Files {
		have[f.Name] = f.ID
	}
	for _, f := range other.Files {
		if _, ok := have[f.Name]; !ok {
			names = append(names, f.Name)
		}
	}
	return names
}

// With returns a Set that also has what a Set by Whole has.
func (s *Set) With(whole *Set) *Set {
	w := &Set{Files: slices.Clone(s.Files), Dirs: slices.Clone(s.Dirs), Links: slices.Clone(s.Links), Len: s.Len, Unsure: s.Unsure, Memo: s.Memo,
		Images: s.Images, Timed: s.Timed, blurred: true}
	have := make(map[string]bool, len(s.Files))
	for _, f := range s.Files {
		have[f.Name] = true
	}
	for _, f := range whole.Files[1:] {
		if !have[f.Name] {
			w.Files, w.Len = append(w.Files, f), w.Len+f.Len
		}
	}
	slices.SortFunc(w.Files[1:], func(a, b *Input) int { return cmp.Compare(a.Name, b.Name) })
	for _, d := range whole.Dirs {
		if !slices.Contains(w.Dirs, d) {
			w.Dirs = append(w.Dirs, d)
		}
	}
	for _, l := range whole.Links {
		if !slices.Contains(w.Links, l) {
			w.Links = append(w.Links, l)
		}
	}
	w.findLinked()
	return w
}

// Before reports whether no file of s has changed since the time at, in nanoseconds since 1970.
func (s *Set) Before(at int64) bool {
	return !slices.ContainsFunc(s.Files, func(f *Input) bool { return f.st.CTime >= at })
}
