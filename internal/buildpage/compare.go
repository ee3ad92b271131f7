package buildpage

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// compared is what the page shows of a comparison with an earlier build, of each table no more rows than a browser shows well.
type compared struct {
	*comparison.Comparison
	Before, After int // their numbers
	Causes        []cause
	More          int // commands that are not among Commands

	Places, Reasons, Missed changed
}

// cause is a row of the table of causes, with a bar to the right of Zero if commands took longer, else to the left, of a width of 100.
type cause struct {
	comparison.Cause
	Zero, X, Width float64
}

// changed is a table of what has changed for how many commands.
type changed struct {
	Title, Head, Time string
	Rows              []comparison.Change
	Means             func(string) string // nil: nothing more
}

func comparedOf(c *comparison.Comparison) *compared {
	if c == nil {
		return nil
	}
	v := &compared{Comparison: c, Before: c.Builds[0].ID, After: c.Builds[1].ID}
	var least, most time.Duration
	for _, x := range c.Causes {
		least, most = min(least, x.Time), max(most, x.Time)
	}
	scale := 100 / float64(max(most-least, 1))
	for _, x := range c.Causes {
		v.Causes = append(v.Causes, cause{x, scale * float64(-least), scale * float64(min(x.Time, 0)-least), scale * float64(x.Time.Abs())})
	}
	table := func(title, head, time string, rows []comparison.Change, means func(string) string) changed {
		return changed{title, head, time, rows[:min(len(rows), maxRows)], means}
	}
	v.Places = table("Where commands ran", "Place", "work", c.Places, nil)
	v.Reasons = table("Why commands ran here", "Reason", "time", c.Reasons, reason.Explain)
	v.Missed = table("Why the cache had no result", "Why", "CPU", c.Missed, nil)
	short := *c
	short.Commands, short.Headers = c.Commands[:min(len(c.Commands), maxRows)], c.Headers[:min(len(c.Headers), maxRows)]
	v.Comparison, v.More = &short, len(c.Commands)-len(short.Commands)
	return v
}

// other is a build that this one can be compared with.
type other struct {
	ID   int
	Text string
}

// others sets which builds this one can be compared with: those before it that have ended. The last one of the same command and directory is
// the obvious one, or else of the directory.
func (v *view) others(list []builds.Build) {
	b, best := v.Build, 1
	if b.Ended.IsZero() {
		return
	}
	for i := range list {
		o := &list[i]
		if o.ID == b.ID || o.Ended.IsZero() || !o.Began.Before(b.Began) {
			continue
		}
		like, where := 2, ""
		switch {
		case o.Dir != b.Dir:
			like, where = 1, " in "+figure.Printable(o.Dir)
		case slices.Equal(o.Command, b.Command):
			like = 3
		}
		x := other{o.ID, fmt.Sprintf("%s: %s%s, %s", o.Began.Format(time.DateTime), CommandOf(o, true), where, figure.Digits(o.Wall()))}
		if v.Others = append(v.Others, x); like > best {
			best, v.Last = like, o.ID
		}
	}
}
