package inputs

import (
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Whole returns a Set with the same files whose List has all of them, also the source, and no base. It tells whether a
// precompiled header would be made of the same files again, with the same names, contents, times and modes, and is how they
// are sent for that.
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
