package inputs

import (
	"path"
	"strings"
)

// beside adds the files named Query.Beside in the directory of e and in those above it. Programs find these lexically,
// some after resolving dots in the path, so every spelling counts, as do the directories above the place where e
// physically is.
func (w *walk) beside(e *entry) *Doubt {
	if w.besides == nil {
		w.besides = make(map[string]struct{})
	}
	name := e.path()
	for _, name := range [...]string{name, path.Clean(name), e.real()} {
		for i := strings.LastIndexByte(name, '/'); i >= 0; i = strings.LastIndexByte(name[:i], '/') {
			if _, known := w.besides[name[:i]]; known {
				break // so are those above it
			}
			w.besides[name[:i]] = struct{}{}
			found, d := w.at(name[:i] + "/" + w.q.Beside)
			if d != nil {
				return d
			}
			if found != nil {
				if d := w.hit(found, false); d != nil {
					return d
				}
			}
		}
	}
	return nil
}
