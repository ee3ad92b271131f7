package costs

import (
	"cmp"
	"path/filepath"
	"slices"
	"time"
)

// Once is what it would save if headers were compiled once, as a precompiled header or a module, and not by each unit that reads them. It is
// estimated by what they cost, so what it takes to load what was made of them is not counted, nor that a module hides its macros.
type Once struct {
	Headers []OnceHeader  `json:"headers"` // of a precompiled header, the one that saves most first
	Saves   time.Duration `json:"saves_ns"`
}

// OnceHeader is a Header of these.
type OnceHeader struct {
	Name  string        `json:"name"`
	More  int           `json:"more"` // files that are always read with it
	Units int           `json:"units"`
	Saves time.Duration `json:"saves_ns"` // also of a module of it alone
}

// Once returns what the n headers would save that save most. One that has changed is not among them: with what it is in, all units that read
// that are compiled again.
func (r *Report) Once(n int) Once {
	o := Once{Headers: []OnceHeader{}}
	for i := range r.Headers {
		h := &r.Headers[i]
		// Compilers read stdc-predef.h by themselves, in front of anything else.
		if saves := h.CPU - h.CPU/time.Duration(max(h.Units, 1)); saves > 0 && h.Changes == 0 && filepath.Base(h.Name()) != "stdc-predef.h" {
			o.Headers = append(o.Headers, OnceHeader{h.Name(), len(h.Files) - 1, h.Units, saves})
		}
	}
	slices.SortStableFunc(o.Headers, func(x, y OnceHeader) int { return cmp.Compare(y.Saves, x.Saves) })
	o.Headers = o.Headers[:min(len(o.Headers), n)]
	for _, h := range o.Headers {
		o.Saves += h.Saves
	}
	return o
}

// Each returns what the model says that reading a file takes in one unit, by its name; of one that is always read with others, in
// proportion to its text.
func (r *Report) Each() map[string]time.Duration {
	each := make(map[string]time.Duration)
	for i := range r.Headers {
		h := &r.Headers[i]
		all := uint64(0)
		for _, f := range h.Files {
			all += f.Size
		}
		for _, f := range h.Files {
			each[f.Name] = time.Duration(float64(h.CPU) / float64(max(h.Units, 1)) * float64(f.Size) / float64(max(all, 1)))
		}
	}
	return each
}
