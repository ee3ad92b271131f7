package report

import (
	"path/filepath"
	"strings"
	"time"
)

// Why lists the remembered commands that have a file as their source or output.
type Why struct {
	File string `json:"file"`
	// Jobs are at most maxWhy such commands, the newest first.
	Jobs []JobRecord `json:"jobs"`
	// Parts are, by the ID of each of them that is a link with LTO, where what it had compiled has ended (JobRecord.Place).
	Parts map[uint64]map[string]int `json:"parts,omitempty"`
	// Remembered is how many commands were searched, and Since the time of the oldest.
	Remembered int       `json:"remembered"`
	Since      time.Time `json:"since"`
}

// maxWhy is how many jobs an answer has at most.
const maxWhy = 5

// likeness returns how well a file that a command in cwd named matches name, which is absolute or as the user
// typed it: 3 if they are the same, 2 if one path ends in the other, 1 if their base names are equal,
// otherwise 0.
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

// likeness returns how well the source or output of a record matches a file, the better of the two. names are
// different names of that file.
func (r *JobRecord) likeness(names []string) (best int) {
	for _, n := range names {
		best = max(best, likeness(r.Source, r.Cwd, n), likeness(r.Output, r.Cwd, n))
	}
	return best
}

// Why returns the last jobs of a source or output file. names are its absolute name and what the user typed,
// in this order. since is the time since which the book has been kept.
func (b *Book) Why(names []string, since time.Time) Why {
	n := min(b.n, maxRecent)
	if n == maxRecent {
		since = b.ring[b.n%maxRecent].Began
	}
	return why(names, since, int(n), func(i int) *JobRecord { return &b.ring[(b.n-1-uint64(i))%maxRecent] })
}

// OfFile returns the same as Book.Why from what a manager saved: the newest commands only.
func (k *Kept) OfFile(names []string) Why {
	recent, since := k.Status.Recent, k.Status.Since
	if n := len(recent); n == maxShown {
		since = recent[n-1].Began
	}
	return why(names, since, len(recent), func(i int) *JobRecord { return &recent[i] })
}

// why searches n commands, the oldest of which began at since; at(0) is the newest.
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
	for i := range n {
		w.addPart(at(i))
	}
	return w
}

// addPart counts a command that was a part of one of the links.
func (w *Why) addPart(part *JobRecord) {
	for i := range w.Jobs {
		r := &w.Jobs[i]
		if part.Link == "" || likeness(r.Output, r.Cwd, part.Link) < 2 || part.Began.Before(r.Began) || part.Ended.After(r.Ended) {
			continue
		}
		if w.Parts == nil {
			w.Parts = make(map[uint64]map[string]int)
		}
		if w.Parts[r.ID] == nil {
			w.Parts[r.ID] = make(map[string]int)
		}
		w.Parts[r.ID][part.Place()]++
	}
}
