// Package costs works out, from what a journal has of compiles, what units and headers cost, and why the cache of results missed.
//
// It knows of each compile which files it read and how long it took, but not how long a single file took. So there are three answers
// to what a header costs, from certain to guessed: how much text compiles read of it; how long the compiles take that an edit of it
// brings about; and seconds of its own, from a model that is fitted to all units (fit.go), with how much they may be off.
package costs

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/figure"
)

// Report says what compiles cost. Times are CPU times on a core of the build host. Names can be printed: one with other characters
// than those is written as in a string of Go, without the quotes around it.
type Report struct {
	// From and To are when the first and the last compile ended.
	From     time.Time `json:"from,omitzero"`
	To       time.Time `json:"to,omitzero"`
	Compiles int       `json:"compiles"`
	OnHosts  int       `json:"on_hosts"`
	Cached   int       `json:"cached"`
	Here     int       `json:"here"`
	Failed   int       `json:"failed"`
	// Spent is what those on hosts and here took together.
	Spent time.Duration `json:"spent_ns"`
	// Units are all units, the one that takes longest first, and UnitsCPU is what they take together, each compiled once.
	Units    []Unit        `json:"units"`
	UnitsCPU time.Duration `json:"units_cpu_ns"`
	// Known is of how many units it is known what they read and take; the rest counts for nothing in what follows. KnownCPU is what
	// they take together, and Text, in bytes, what they read.
	Known    int           `json:"known"`
	KnownCPU time.Duration `json:"known_cpu_ns"`
	Text     uint64        `json:"text_bytes"`
	// Headers are all files that units read beside their sources, the one that costs most first.
	Headers []Header `json:"headers"`
	Fit     Fit      `json:"fit"`
	Cache   Cache    `json:"cache"`
	// Notes say what of the journal could not be read.
	Notes []string `json:"notes,omitempty"`
}

// Unit is a source and what it is compiled to.
type Unit struct {
	Source   string        `json:"source"`
	Output   string        `json:"output,omitempty"`
	Compiles int           `json:"compiles"`
	CPU      time.Duration `json:"cpu_ns"`       // as last compiled; 0: not known
	Memory   uint64        `json:"memory_bytes"` // the most that it has taken; 0: not known
	Files    int           `json:"files"`        // that it reads, with its source; 0: not known
	Text     uint64        `json:"text_bytes"`   // in these

	reads []uint32 // indices in journal.Log.Files
}

// Header is a file that units read, or several that all units read together or not at all. What one of these costs alone cannot be
// known: nobody has ever compiled without the others.
type Header struct {
	Files []HeaderFile `json:"files"` // the one that most likely includes the others first
	Units int          `json:"units"` // that read it
	// Text is what all units read of it together, in bytes.
	Text uint64 `json:"text_bytes"`
	// CPU is what it costs over all units, by the model, and Error how far that may be off: in 19 of 20 cases no further,
	// if the model holds. Error is negative if it was not worked out.
	CPU   time.Duration `json:"cpu_ns"`
	Error time.Duration `json:"error_ns"`
	// Touch is how long all units take that read it, which an edit compiles again.
	Touch time.Duration `json:"touch_ns"`
	// Changes is how often one of the files has changed, as far as a compile has noticed.
	Changes int `json:"changes"`
}

// Name returns the name of the first of the files.
func (h *Header) Name() string { return h.Files[0].Name }

// HeaderFile is one file of a Header.
type HeaderFile struct {
	Name    string `json:"name"`
	Size    uint64 `json:"size_bytes"`
	Changes int    `json:"changes"`
}

// Of works out what the compiles of a journal cost that counts reports true for; nil: all. Of the others it is only of interest what units
// had read before.
func Of(l *journal.Log, counts func(*journal.Compile) bool) *Report {
	r := &Report{Notes: l.Notes, Units: []Unit{}, Headers: []Header{}}
	byUnit, history := make(map[[2]string][]*journal.Compile), make(map[[2]string][]past)
	for i := range l.Compiles {
		c := &l.Compiles[i]
		key := [2]string{c.Source, c.Output}
		ours := counts == nil || counts(c)
		if history[key] = append(history[key], past{c, ours}); !ours {
			continue
		}
		if r.Compiles++; r.Compiles == 1 {
			r.From = c.Ended
		}
		r.To = c.Ended
		switch c.Place {
		case journal.Remote:
			r.OnHosts++
			r.Spent += c.CPU
		case journal.Cached:
			r.Cached++
		default:
			r.Here++
			r.Spent += c.CPU
		}
		if !c.OK {
			r.Failed++
		}
		byUnit[key] = append(byUnit[key], c)
	}
	for key, list := range byUnit {
		u := unitOf(l, list)
		u.Source, u.Output = key[0], key[1]
		r.Units = append(r.Units, u)
		r.UnitsCPU += u.CPU
	}
	slices.SortFunc(r.Units, func(x, y Unit) int {
		return cmp.Or(cmp.Compare(y.CPU, x.CPU), cmp.Compare(x.Source, y.Source), cmp.Compare(x.Output, y.Output))
	})
	var known []*Unit
	for i := range r.Units {
		if u := &r.Units[i]; u.reads != nil && u.CPU > 0 {
			known = append(known, u)
			r.KnownCPU += u.CPU
			r.Text += u.Text
		}
	}
	r.Known = len(known)
	r.headers(l, known)
	r.Cache = cacheOf(l, history)
	r.names(figure.Printable)
	return r
}

// unitOf returns the unit of compiles, which are in the order in which they ended.
func unitOf(l *journal.Log, list []*journal.Compile) Unit {
	u := Unit{Compiles: len(list)}
	var last *journal.Compile // that tells most
	for _, c := range list {
		u.Memory = max(u.Memory, c.Memory)
		if c.OK && c.CPU > 0 && (c.Reads != nil || last == nil || last.Reads == nil) {
			last = c
		}
	}
	if last == nil {
		return u
	}
	u.CPU = last.CPU
	// One that ran says more than a result from the cache, and several more than one.
	var sum time.Duration
	n := 0
	for _, c := range list {
		if c.OK && c.CPU > 0 && c.Place != journal.Cached && slices.Equal(c.Reads, last.Reads) {
			sum += c.CPU
			n++
		}
	}
	if n > 0 {
		u.CPU = sum / time.Duration(n)
	}
	u.reads = last.Reads
	if !last.Exact {
		// A hit does not tell which headers were read, but its compile has.
		for _, c := range slices.Backward(list) {
			if c.OK && c.Exact && c.Reads != nil && c.Command == last.Command && within(c.Reads, last.Reads) {
				u.reads = c.Reads
				break
			}
		}
	}
	u.Files = len(u.reads)
	for _, f := range u.reads {
		u.Text += l.Files[f].Size
	}
	return u
}

// within reports whether all numbers of a are in b, both sorted.
func within(a, b []uint32) bool {
	i := 0
	for _, n := range a {
		for i < len(b) && b[i] < n {
			i++
		}
		if i == len(b) || b[i] != n {
			return false
		}
	}
	return true
}

// names replaces all names.
func (r *Report) names(by func(string) string) {
	for i := range r.Units {
		r.Units[i].Source, r.Units[i].Output = by(r.Units[i].Source), by(r.Units[i].Output)
	}
	for i := range r.Headers {
		for j := range r.Headers[i].Files {
			r.Headers[i].Files[j].Name = by(r.Headers[i].Files[j].Name)
		}
	}
	for i := range r.Cache.Missed {
		r.Cache.Missed[i].File = by(r.Cache.Missed[i].File)
	}
}
