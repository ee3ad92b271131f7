// Package gain works out, from the records of a build's commands, where they ran, and how long the build would have
// taken without a farm.
package gain

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Sum says what became of the commands of a build.
type Sum struct {
	Jobs   int `json:"jobs"`
	Failed int `json:"failed,omitempty"` // the command's exit status was not 0, or it was ended from outside
	Twice  int `json:"twice,omitempty"`  // compiled on a host and then here as well
	// Places are where they ran: hosts first, then tiers of the cache, then this machine, each by its number.
	Places []Place `json:"places"`
	Asked  int     `json:"asked"` // commands for which the cache was asked
	Hits   int     `json:"hits"`  // of these, those that it had a result for
	// Compiles are the commands that compiled a source, wherever that was, and CompilesHere those of them that did so here,
	// without those that were ended from outside.
	Compiles     int `json:"compiles"`
	CompilesHere int `json:"compiles_here"`
	// Missed are why the cache had no result, the most frequent reason first, as far as that is known.
	Missed []Missed `json:"missed,omitempty"`
	// BytesOut and BytesIn are what was sent to hosts and received.
	BytesOut uint64 `json:"bytes_out"`
	BytesIn  uint64 `json:"bytes_in"`
	// Reasons are why commands ran here, the costliest first. Those that were ended from outside have none.
	Reasons []Reason `json:"reasons"`
	// Links are those with LTO, by the names of their outputs.
	Links []Link `json:"links,omitempty"`
	// Work is what all commands take together on one processor of this machine, and Alone what the build would have
	// taken on all of them. Both are estimates.
	Work  time.Duration `json:"work_ns"`
	Alone time.Duration `json:"alone_ns"`
}

// Place is where commands ran.
type Place struct {
	Place  string        `json:"place"`          // as report.JobRecord.Place
	Name   string        `json:"name,omitempty"` // of the host or the tier
	Jobs   int           `json:"jobs"`
	Failed int           `json:"failed,omitempty"`
	Work   time.Duration `json:"work_ns"` // as in Sum
}

// Reason is why commands ran here.
type Reason struct {
	Reason string        `json:"reason"`
	Jobs   int           `json:"jobs"`
	Took   time.Duration `json:"took_ns"`        // how long they ran here, together
	File   string        `json:"file,omitempty"` // of the one that took longest, if it names one
	worst  time.Duration
}

// Link says where the parts of a program were compiled that a link with LTO has left.
type Link struct {
	Link   string `json:"link"` // its output
	Parts  int    `json:"parts"`
	Remote int    `json:"remote"`
	Cached int    `json:"cached"`
}

// Missed is why the cache had no result of commands.
type Missed struct {
	Why  string `json:"why"` // in words, as report.JobRecord.Missed
	Jobs int    `json:"jobs"`
}

// maxMissed is how many of these a Sum names.
const maxMissed = 20

// Of returns the number of commands that ended in a place, as in report.JobRecord.Place.
func (s *Sum) Of(place string) (n int) {
	for _, p := range s.Places {
		if p.Place == place {
			n += p.Jobs
		}
	}
	return n
}

// Tally adds up the commands of a build. The zero value is ready for use. It is not safe for concurrent use.
type Tally struct {
	sum     Sum
	places  map[Place]*Place // by their Place and Name
	reasons map[string]*Reason
	links   map[string]*Link
	missed  map[string]int
	spans   []span // from began
	began   time.Time
}

// maxReasons bounds the reasons that are told apart: some name an option. So does maxLinks.
const (
	maxReasons = 1000
	maxLinks   = 1000
)

// Add adds a command that has ended.
func (t *Tally) Add(r *report.JobRecord) {
	if t.places == nil {
		t.places, t.reasons, t.missed, t.began = make(map[Place]*Place), make(map[string]*Reason), make(map[string]int), r.Began
	}
	here := hereOf(r)
	t.spans = append(t.spans, span{r.Began.Sub(t.began), max(r.Ended.Sub(t.began), r.Began.Sub(t.began)), here})
	s := &t.sum
	s.Jobs++
	s.Work += here
	s.BytesOut += r.BytesOut
	s.BytesIn += r.BytesIn
	if r.Asked {
		s.Asked++
		switch _, seen := t.missed[r.Missed]; {
		case r.Cached != "" && !r.Local:
			s.Hits++
		case r.Missed != "" && (seen || len(t.missed) < maxReasons):
			t.missed[r.Missed]++
		}
	}
	if !r.Local || r.Finished && reason.Compiles(r.Reason) {
		s.Compiles++
		if r.Local {
			s.CompilesHere++
		}
	}
	if r.Twice {
		s.Twice++
	}
	key := Place{Place: r.Place()}
	switch key.Place {
	case report.PlaceRemote:
		key.Name = r.Host
	case report.PlaceCached:
		key.Name = r.Cached
	}
	t.addLink(r)
	p := t.places[key]
	if p == nil {
		p = &Place{Place: key.Place, Name: key.Name}
		t.places[key] = p
	}
	p.Jobs++
	p.Work += here
	if r.Exit != 0 || !r.Finished {
		s.Failed++
		p.Failed++
	}
	if r.Local && r.Finished { // otherwise it was ended from outside before it could run, or while it did
		t.addReason(r, here)
	}
}

func (t *Tally) addReason(r *report.JobRecord, took time.Duration) {
	x := t.reasons[r.Reason]
	if x == nil {
		if len(t.reasons) >= maxReasons {
			return
		}
		x = &Reason{Reason: r.Reason}
		t.reasons[r.Reason] = x
	}
	x.Jobs++
	x.Took += took
	if file := cmp.Or(r.Source, r.Output); file != "" && (x.File == "" || took > x.worst) {
		x.File, x.worst = file, took
	}
}

func (t *Tally) addLink(r *report.JobRecord) {
	x := t.links[r.Link]
	if x == nil {
		if r.Link == "" || len(t.links) >= maxLinks {
			return
		}
		if t.links == nil {
			t.links = make(map[string]*Link)
		}
		x = &Link{Link: r.Link}
		t.links[r.Link] = x
	}
	x.Parts++
	switch r.Place() {
	case report.PlaceRemote:
		x.Remote++
	case report.PlaceCached:
		x.Cached++
	}
}

// hereOf returns what a command takes on this machine, as far as its record says.
func hereOf(r *report.JobRecord) time.Duration {
	if us := cmp.Or(r.HereUS, r.CompileUS); us > 0 {
		return time.Duration(us) * time.Microsecond
	}
	return max(r.Ended.Sub(r.Began), 0)
}

// Jobs returns the number of commands so far.
func (t *Tally) Jobs() int { return t.sum.Jobs }

// Places returns how many of them ended where, by report.JobRecord.Place.
func (t *Tally) Places() map[string]int {
	n := make(map[string]int)
	for key, p := range t.places {
		n[key.Place] += p.Jobs
	}
	return n
}

// Sum returns the sum of all commands so far, for a build that began and ended then, on a machine with that many
// processors.
func (t *Tally) Sum(began, ended time.Time, cores int) Sum {
	s := t.sum
	s.Places, s.Reasons = make([]Place, 0, len(t.places)), make([]Reason, 0, len(t.reasons))
	for _, p := range t.places {
		s.Places = append(s.Places, *p)
	}
	order := []string{report.PlaceRemote, report.PlaceCached, report.PlaceLocal}
	slices.SortFunc(s.Places, func(x, y Place) int {
		return cmp.Or(cmp.Compare(slices.Index(order, x.Place), slices.Index(order, y.Place)), cmp.Compare(y.Jobs, x.Jobs), cmp.Compare(x.Name, y.Name))
	})
	for _, r := range t.reasons {
		s.Reasons = append(s.Reasons, *r)
	}
	slices.SortFunc(s.Reasons, func(x, y Reason) int {
		return cmp.Or(cmp.Compare(y.Took, x.Took), cmp.Compare(y.Jobs, x.Jobs), cmp.Compare(x.Reason, y.Reason))
	})
	for _, l := range t.links {
		s.Links = append(s.Links, *l)
	}
	slices.SortFunc(s.Links, func(x, y Link) int { return cmp.Or(cmp.Compare(y.Parts, x.Parts), cmp.Compare(x.Link, y.Link)) })
	for why, n := range t.missed {
		s.Missed = append(s.Missed, Missed{why, n})
	}
	slices.SortFunc(s.Missed, func(x, y Missed) int {
		return cmp.Or(cmp.Compare(y.Jobs, x.Jobs), cmp.Compare(x.Why, y.Why))
	})
	s.Missed = s.Missed[:min(len(s.Missed), maxMissed)]
	list := make([]span, len(t.spans))
	shift := t.began.Sub(began)
	if len(list) == 0 {
		shift = 0
	}
	for i, x := range t.spans {
		list[i] = span{max(x.began+shift, 0), max(x.ended+shift, 0), x.here}
	}
	s.Alone = alone(list, ended.Sub(began), cores)
	return s
}
