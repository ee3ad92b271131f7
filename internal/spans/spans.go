// Package spans turns the records of a build's commands into spans, each with a begin and an end: commands with their
// phases, and what ran in each place of each host and on this machine.
package spans

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Phases of a command. The first is spent on this machine, with finding out what the compile reads or with waiting for
// a turn; the next five are those of report.JobRecord.
const (
	Prepare = "prepare"
	Credit  = "credit" // waits for a place on a host
	Write   = "write"
	Queue   = "queue" // on the host
	Compile = "compile"
	Return  = "return"
	Look    = "cache" // a result is looked for, and found
	Take    = "take"  // the wrapper writes the files
	Runs    = "runs"  // here
)

// Span is one command, or one phase of it.
type Span struct {
	Name       string
	Begin, End time.Time // End is not before Begin
	Phases     []Span    // one after the other, within the span
}

// Of returns the span of a command, with its phases. Those of a host are measured one by one; they end when the
// answer came.
func Of(r *report.JobRecord) Span {
	s := Span{Name: Name(r), Begin: r.Began, End: later(r.Ended, r.Began)}
	at := s.Begin
	add := func(name string, end time.Time) {
		if end.After(s.End) {
			end = s.End
		}
		if end.After(at) {
			s.Phases = append(s.Phases, Span{Name: name, Begin: at, End: end})
			at = end
		}
	}
	after := func(us uint32) time.Time { return s.Begin.Add(micros(us)) }
	switch r.Place() {
	case report.PlaceLocal:
		add(Prepare, after(r.TurnUS))
		add(Runs, s.End)
		return s
	case report.PlaceCached:
		add(Look, after(r.AnsweredUS))
	default:
		end := after(r.AnsweredUS)
		for _, us := range []uint32{r.CreditUS, r.WriteUS, r.QueueUS, r.CompileUS, r.ReturnUS} {
			end = end.Add(-micros(us))
		}
		add(Prepare, end)
		for _, p := range []struct {
			name string
			us   uint32
		}{{Credit, r.CreditUS}, {Write, r.WriteUS}, {Queue, r.QueueUS}, {Compile, r.CompileUS}, {Return, r.ReturnUS}} {
			end = end.Add(micros(p.us))
			add(p.name, end)
		}
	}
	add(Take, s.End)
	return s
}

// Name returns what a command is called: its source, output or program.
func Name(r *report.JobRecord) string {
	return cmp.Or(r.Source, r.Output, r.Compiler, "job "+strconv.FormatUint(r.ID, 10))
}

// phase returns a phase of a span; ok is false if it has none of that name.
func (s *Span) phase(name string) (p Span, ok bool) {
	i := slices.IndexFunc(s.Phases, func(p Span) bool { return p.Name == name })
	if i < 0 {
		return p, false
	}
	return s.Phases[i], true
}

func micros(us uint32) time.Duration { return time.Duration(us) * time.Microsecond }

func later(x, y time.Time) time.Time {
	if x.Before(y) {
		return y
	}
	return x
}

// lanes places spans so that none overlaps another on the same lane, with as few lanes as possible.
type lanes struct{ ends []time.Time }

// place returns the lane of a span. Spans come in the order in which they begin.
func (l *lanes) place(s *Span) int {
	for i, end := range l.ends {
		if !s.Begin.Before(end) {
			l.ends[i] = s.End
			return i
		}
	}
	l.ends = append(l.ends, s.End)
	return len(l.ends) - 1
}
