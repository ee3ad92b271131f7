package buildpage

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Sizes of the timeline, in its own units.
const (
	width   = 1000
	lane    = 8 // height
	maxBars = 5000
	maxLane = 200 // of one place
)

// timeline is what ran where, and when.
type timeline struct {
	Width, Height int
	Rows          []row
	Ticks         []tick
	// Left is how many commands are not drawn: those that took least.
	Left int
}

// row is a place: a host, a tier of the cache, or this machine.
type row struct {
	Name      string
	Y, Height int
	Busy      string // which part of the build's time something ran there
	Most      int    // commands at a time
	Bars      []bar

	Commands, Failed int
	Share            string        // of all commands
	CPU              time.Duration // that compiles took there; of the cache, what they would have taken
	Waited           time.Duration // of all commands: for a place, and for their turn there
	Idle             time.Duration // when nothing ran there
}

type bar struct {
	X, Width float64
	Y        int
	Kind     string
	Title    string
}

type tick struct {
	X    float64
	Text string
}

// timelineOf lays out the commands, which are in the order in which they began.
func timelineOf(b *builds.Build, jobs []report.JobRecord) *timeline {
	wall := max(b.Wall(), time.Millisecond)
	for i := range jobs {
		wall = max(wall, jobs[i].Ended.Sub(b.Began))
	}
	least := leastDrawn(jobs)
	t := &timeline{Width: width}
	at := func(d time.Duration) float64 { return width * float64(min(max(d, 0), wall)) / float64(wall) }
	byPlace := make(map[string][]*report.JobRecord)
	for i := range jobs {
		byPlace[placeOf(&jobs[i])] = append(byPlace[placeOf(&jobs[i])], &jobs[i])
	}
	names := make([]string, 0, len(byPlace))
	for name := range byPlace {
		names = append(names, name)
	}
	slices.SortFunc(names, func(x, y string) int { return cmp.Or(cmp.Compare(rank(x), rank(y)), cmp.Compare(x, y)) })
	y := 0
	for _, name := range names {
		r := row{Name: name, Y: y, Commands: len(byPlace[name]), Share: figure.Percent(uint64(len(byPlace[name])), uint64(len(jobs)))}
		var free []time.Time // when each lane is
		var busy time.Duration
		var until time.Time
		for _, j := range byPlace[name] {
			r.count(j)
			if j.Began.After(until) {
				until = j.Began
			}
			if j.Ended.After(until) {
				busy += j.Ended.Sub(until)
				until = j.Ended
			}
			k := slices.IndexFunc(free, func(at time.Time) bool { return !at.After(j.Began) })
			if k < 0 {
				k = len(free)
				free = append(free, time.Time{})
			}
			free[k] = j.Ended
			took := j.Ended.Sub(j.Began)
			if k >= maxLane || took < least {
				t.Left++
				continue
			}
			x := at(j.Began.Sub(b.Began))
			r.Bars = append(r.Bars, bar{x, max(at(j.Ended.Sub(b.Began))-x, 0.5), y + k*lane, kindOf(j),
				fmt.Sprintf("%s: %s, from %s on", nameOf(b, j), figure.Digits(took), since(j.Began.Sub(b.Began)))})
		}
		r.Most = len(free)
		r.Height = min(len(free), maxLane) * lane
		r.Busy, r.Idle = figure.Percent(uint64(busy), uint64(wall)), max(wall-busy, 0)
		t.Rows = append(t.Rows, r)
		y += r.Height + lane/2
	}
	t.Height = max(y, 1)
	for i := range 5 {
		t.Ticks = append(t.Ticks, tick{float64(i) * width / 4, since(wall * time.Duration(i) / 4)})
	}
	return t
}

// count counts a command of the place.
func (r *row) count(j *report.JobRecord) {
	if kindOf(j) == kindFailed {
		r.Failed++
	}
	r.CPU += time.Duration(j.CPUUS) * time.Microsecond
	wait := j.CreditUS + j.QueueUS
	switch j.Place() {
	case report.PlaceCached:
		wait = 0 // of its compile
	case report.PlaceLocal:
		wait = j.TurnUS
	}
	r.Waited += time.Duration(wait) * time.Microsecond
}

// since formats a time since the build's beginning.
func since(d time.Duration) string {
	if d <= 0 {
		return "0 s"
	}
	return figure.Digits(d)
}

// leastDrawn returns how long a command must have taken to be drawn, if there are more than a browser shows well.
func leastDrawn(jobs []report.JobRecord) time.Duration {
	if len(jobs) <= maxBars {
		return 0
	}
	took := make([]time.Duration, len(jobs))
	for i := range jobs {
		took[i] = jobs[i].Ended.Sub(jobs[i].Began)
	}
	slices.Sort(took)
	return took[len(took)-maxBars]
}

// rank orders places: hosts, the cache, this machine.
func rank(name string) int {
	switch {
	case name == "here":
		return 2
	case strings.HasPrefix(name, "cache: "):
		return 1
	}
	return 0
}
