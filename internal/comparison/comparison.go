// Package comparison works out in what two builds differ, and by that why one took longer.
//
//	comparison  the figures of both, and in words which of them explains the difference
//	commands    what each command took in both, and what has changed for it
//	headers     what headers cost in both
package comparison

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// Comparison says in what two builds differ. Each pair has the earlier build first. Names can be printed, as those of a costs.Report.
type Comparison struct {
	Builds [2]builds.Build `json:"builds"`
	// Partial means that not all commands of both builds are known: there is only what the builds' own sums tell then, and Notes say why.
	Partial bool     `json:"partial,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	// A build takes as long as no command of it ran (Idle), and what all commands took (Took), divided by how many ran at a time.
	Idle [2]time.Duration `json:"idle_ns"`
	Took [2]time.Duration `json:"took_ns"`
	// Waited is how long commands waited for a place on a host and their turn there, or for their turn here.
	Waited [2]time.Duration `json:"waited_ns"`
	CPU    [2]time.Duration `json:"cpu_ns"` // of what ran, on hosts and here
	// Causes divide the change of Took, the one that weighs most first.
	Causes []Cause `json:"causes"`
	// What has changed in where commands ran, with what they are worth; in why they ran here, with how long; and in why the cache had no
	// result, with the CPU time of these compiles. What has changed for most commands is first.
	Places  []Change `json:"places"`
	Reasons []Change `json:"reasons"`
	Missed  []Change `json:"missed"`
	// Commands are those that did not take as long in both. If the later build took longer, those that took longer by most are first,
	// otherwise those that took less.
	Commands []Command `json:"commands"`
	// Headers are those whose cost differs by more than the estimate may be off, over the units that both builds compiled.
	Headers []Header `json:"headers"`
}

// Change is something that applies to commands, to how many in each build, and a time of theirs.
type Change struct {
	What     string           `json:"what"`
	Commands [2]int           `json:"commands"`
	Time     [2]time.Duration `json:"time_ns"`
}

// By returns for how many more commands it applies in the later build, and Longer how much more their time is.
func (c *Change) By() int               { return c.Commands[1] - c.Commands[0] }
func (c *Change) Longer() time.Duration { return c.Time[1] - c.Time[0] }

// changes collects a Change for each thing.
type changes map[string]*Change

func (c changes) add(what string, build, n int, took time.Duration) {
	x := c[what]
	if x == nil {
		x = &Change{What: figure.Printable(what)}
		c[what] = x
	}
	x.Commands[build] += n
	x.Time[build] += took
}

// list returns those of which the number of commands has changed.
func (c changes) list() []Change {
	list := []Change{}
	for x := range maps.Values(c) {
		if x.By() != 0 {
			list = append(list, *x)
		}
	}
	slices.SortFunc(list, func(x, y Change) int {
		return cmp.Or(cmp.Compare(max(y.By(), -y.By()), max(x.By(), -x.By())), cmp.Compare(x.What, y.What))
	})
	return list
}

// Of compares two builds of a store that have ended.
func Of(s *builds.Store, a, b *builds.Build) *Comparison {
	if b.Began.Before(a.Began) {
		a, b = b, a
	}
	c := &Comparison{Builds: [2]builds.Build{*a, *b}, Causes: []Cause{}, Missed: []Change{}, Commands: []Command{}, Headers: []Header{}}
	places, reasons := make(changes), make(changes)
	for i := range c.Builds {
		for _, p := range c.Builds[i].Gain.Places {
			places.add(placeName(p.Place, p.Name), i, p.Jobs, p.Work)
		}
		for _, r := range c.Builds[i].Gain.Reasons {
			reasons.add(r.Reason, i, r.Jobs, r.Took)
		}
	}
	c.Places, c.Reasons = places.list(), reasons.list()
	c.commands(s)
	return c
}

// placeName names where commands ran.
func placeName(place, name string) string {
	switch place {
	case report.PlaceRemote:
		return name
	case report.PlaceCached:
		return "cache: " + name
	}
	return "here"
}

// Longer returns by how much the later build took longer.
func (c *Comparison) Longer() time.Duration { return c.Builds[1].Wall() - c.Builds[0].Wall() }

// atATime returns how many commands of a build ran at a time while any did.
func (c *Comparison) atATime(i int) float64 {
	return float64(c.Took[i]) / float64(max(c.Builds[i].Wall()-c.Idle[i], 1))
}

// Says says by how much the later build took longer, and what most of that is.
func (c *Comparison) Says() string {
	a, b, by := &c.Builds[0], &c.Builds[1], c.Longer()
	if by.Abs() <= a.Wall()/100 {
		return fmt.Sprintf("Build %d took %s, about as long as build %d (%s).", b.ID, digits(b.Wall()), a.ID, digits(a.Wall()))
	}
	how, sign := "longer", time.Duration(1)
	if by < 0 {
		how, sign = "less", -1
	}
	text := fmt.Sprintf("Build %d took %s, %s %s than build %d (%+.0f%%).", b.ID, digits(b.Wall()), figure.Digits(by*sign), how, a.ID, 100*float64(by)/float64(max(a.Wall(), 1)))
	if c.Partial {
		return text
	}
	// The three parts of the change, whose sum it is.
	p, q := c.atATime(0), c.atATime(1)
	idle, crowd := float64(c.Idle[1]-c.Idle[0]), 0.0
	if p > 0 && q > 0 {
		crowd = float64(c.Took[1]+c.Took[0]) / 2 * (1/q - 1/p)
	}
	work := float64(by) - idle - crowd
	if sign < 0 {
		idle, work, crowd = -idle, -work, -crowd
	}
	switch {
	case idle >= max(work, crowd):
		return text + fmt.Sprintf(" Most of that is time in which no command of it ran: %s, before %s.", digits(c.Idle[1]), digits(c.Idle[0]))
	case crowd >= work:
		return text + fmt.Sprintf(" Most of that is due to how many commands ran at a time: %.1f, before %.1f.", q, p)
	}
	more, took := "more", c.Took[1]-c.Took[0]
	if took < 0 {
		more, took = "less", -took
	}
	text += fmt.Sprintf(" Its commands took %s %s together.", digits(took), more)
	for i := range c.Causes {
		if x := &c.Causes[i]; (x.Time < 0) == (by < 0) {
			return text + fmt.Sprintf(" What weighs most: %s (%s, %s).", x.Label(), Signed(x.Time), figure.Count(x.Commands, "command"))
		}
	}
	return text
}

// Row is a figure of both builds, as text, and by how much it has changed.
type Row struct{ Name, Before, After, Change string }

// Figures returns the figures of both builds.
func (c *Comparison) Figures() (rows []Row) {
	add := func(name, before, after, change string) {
		if before == after {
			change = "same"
		}
		rows = append(rows, Row{name, before, after, change})
	}
	times := func(name string, t [2]time.Duration) { add(name, digits(t[0]), digits(t[1]), Signed(t[1]-t[0])) }
	number := func(name string, of func(b *builds.Build) int) {
		x, y := of(&c.Builds[0]), of(&c.Builds[1])
		add(name, fmt.Sprint(x), fmt.Sprint(y), fmt.Sprintf("%+d", y-x))
	}
	share := func(name, place string) {
		x, y := &c.Builds[0].Gain, &c.Builds[1].Gain
		of := func(n, all int) string {
			return fmt.Sprintf("%d (%s)", n, figure.Percent(uint64(n), uint64(all)))
		}
		add(name, of(x.Of(place), x.Jobs), of(y.Of(place), y.Jobs), fmt.Sprintf("%+d", y.Of(place)-x.Of(place)))
	}
	a, b := &c.Builds[0], &c.Builds[1]
	times("took", [2]time.Duration{a.Wall(), b.Wall()})
	if !c.Partial {
		times("without any command", c.Idle)
		p, q := c.atATime(0), c.atATime(1)
		add("commands at a time", fmt.Sprintf("%.1f", p), fmt.Sprintf("%.1f", q), fmt.Sprintf("%+.1f", q-p))
		times("commands took, together", c.Took)
		times("of that, waited", c.Waited)
		times("CPU time, on hosts and here", c.CPU)
	}
	times("work, on one processor here", [2]time.Duration{a.Gain.Work, b.Gain.Work})
	number("commands", func(b *builds.Build) int { return b.Gain.Jobs })
	share("on hosts", report.PlaceRemote)
	share("from the cache", report.PlaceCached)
	share("here", report.PlaceLocal)
	number("not in the cache", func(b *builds.Build) int { return b.Gain.Asked - b.Gain.Hits })
	number("failed", func(b *builds.Build) int { return b.Gain.Failed })
	number("hosts", func(b *builds.Build) (n int) {
		for _, p := range b.Gain.Places {
			if p.Place == report.PlaceRemote {
				n++
			}
		}
		return n
	})
	bytes := func(name string, x, y uint64) {
		sign, by := "+", y-x
		if y < x {
			sign, by = "-", x-y
		}
		add(name, figure.Bytes(x), figure.Bytes(y), sign+figure.Bytes(by))
	}
	bytes("sent", a.Gain.BytesOut, b.Gain.BytesOut)
	bytes("received", a.Gain.BytesIn, b.Gain.BytesIn)
	return rows
}

func digits(d time.Duration) string {
	if d == 0 {
		return "0 s"
	}
	return figure.Digits(d)
}

// Signed formats by how much a time has changed.
func Signed(d time.Duration) string {
	if d < 0 {
		return "-" + figure.Digits(-d)
	}
	return "+" + digits(d)
}
