package report

import (
	"path/filepath"
	"strings"
	"time"
)

// Why is what is remembered of the commands that a file had a part in.
type Why struct {
	File string `json:"file"`
	// Jobs are the last ones, the newest first.
	Jobs []JobRecord `json:"jobs"`
	// Remembered commands are looked through, since Since.
	Remembered int       `json:"remembered"`
	Since      time.Time `json:"since"`
}

// maxWhy is how many jobs an answer has.
const maxWhy = 5

// likeness says how well a file that a command named, seen from cwd, matches a name:
// 3 it is that one, 2 it ends like it, 1 it has the same base name, 0 it is another.
// A name is absolute, or as it was typed.
func likeness(file, cwd, name string) int {
	if file == "" || name == "" {
		return 0
	}
	if cwd != "" && !filepath.IsAbs(file) {
		file = filepath.Join(cwd, file)
	}
	file, name = filepath.Clean(file), filepath.Clean(name)
	switch {
	case file == name:
		return 3
	case strings.HasSuffix(file, "/"+strings.TrimPrefix(name, "/")), strings.HasSuffix(name, "/"+strings.TrimPrefix(file, "/")):
		return 2
	case filepath.Base(file) == filepath.Base(name):
		return 1
	}
	return 0
}

// likeness of a record's files; names are two ways to name one file.
func (r *JobRecord) likeness(names []string) (best int) {
	for _, n := range names {
		best = max(best, likeness(r.Source, r.Cwd, n), likeness(r.Output, r.Cwd, n))
	}
	return best
}

// Why looks for the last jobs of a source or output file. names are its absolute name
// and what was typed; the book was begun at since.
func (b *Book) Why(names []string, since time.Time) Why {
	n := min(b.n, maxRecent)
	if n == maxRecent {
		since = b.ring[b.n%maxRecent].Began
	}
	return why(names, since, int(n), func(i int) *JobRecord { return &b.ring[(b.n-1-uint64(i))%maxRecent] })
}

// OfFile is Book.Why of what a manager kept: of its newest commands only.
func (k *Kept) OfFile(names []string) Why {
	recent, since := k.Status.Recent, k.Status.Since
	if n := len(recent); n == maxShown {
		since = recent[n-1].Began
	}
	return why(names, since, len(recent), func(i int) *JobRecord { return &recent[i] })
}

// why looks through n commands since then, the newest of which is at(0).
func why(names []string, since time.Time, n int, at func(int) *JobRecord) Why {
	w := Why{File: names[len(names)-1], Jobs: []JobRecord{}, Since: since, Remembered: n}
	best := 1
	for i := range n {
		r := at(i)
		switch like := r.likeness(names); {
		case like > best:
			best, w.Jobs = like, append(w.Jobs[:0], *r)
		case like == best && len(w.Jobs) < maxWhy:
			w.Jobs = append(w.Jobs, *r)
		}
	}
	return w
}
