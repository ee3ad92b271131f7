package ctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// maxCompared is how many reasons, and how many commands, a comparison names.
const maxCompared = 10

// compareBuilds prints in what two builds differ, the earlier one first.
func (c *ctl) compareBuilds(one, other string, asJSON bool) error {
	a, err := c.findBuild(one)
	if err != nil {
		return err
	}
	b, err := c.findBuild(other)
	if err != nil {
		return err
	}
	if b.Began.Before(a.Began) {
		a, b = b, a
	}
	for _, x := range [...]*builds.Build{a, b} {
		if x.Ended.IsZero() {
			return failf(reason.ExitGeneral, "build %d has no figures to compare: it runs, or was killed", x.ID)
		}
	}
	if asJSON {
		return c.marshal([]*builds.Build{a, b})
	}
	units, err := c.unitsOf(a, b)
	if err != nil {
		return err
	}
	return c.print(compareText(a, b, units))
}

// compared is what a command took in two builds.
type compared struct {
	name  string
	where [2]string
	took  [2]time.Duration
	ran   [2]bool
}

func (u *compared) longer() time.Duration { return u.took[1] - u.took[0] }

// unitsOf returns the commands of two builds by what they make, those first that took longer in the second by most.
func (c *ctl) unitsOf(a, b *builds.Build) ([]compared, error) {
	byName := make(map[string]*compared)
	for i, x := range [...]*builds.Build{a, b} {
		err := c.buildStore().Jobs(x.ID, func(r *report.JobRecord) error {
			name := cmp.Or(r.Source, r.Output)
			if name == "" {
				return nil
			}
			key := within(x.Dir, r.Cwd, name) + "\x00" + within(x.Dir, r.Cwd, r.Output)
			u := byName[key]
			if u == nil {
				u = &compared{name: within(x.Dir, r.Cwd, name)}
				byName[key] = u
			}
			u.ran[i] = true
			u.took[i] += max(r.Ended.Sub(r.Began), 0)
			switch r.Place() {
			case report.PlaceRemote:
				u.where[i] = r.Host
			case report.PlaceCached:
				u.where[i] = "cache"
			default:
				u.where[i] = "here: " + r.Reason
			}
			return nil
		})
		if err != nil {
			return nil, failf(reason.ExitIO, "%v", err)
		}
	}
	list := make([]compared, 0, len(byName))
	for _, u := range byName {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(x, y compared) int {
		return cmp.Or(cmp.Compare(y.longer(), x.longer()), cmp.Compare(x.name, y.name))
	})
	return list, nil
}

// within returns the name of a file as it is seen from a build's directory, so that builds of two checkouts can be compared.
func within(dir, cwd, name string) string {
	if name == "" || cwd == "" && !filepath.IsAbs(name) {
		return name
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(cwd, name)
	}
	return figure.Near(dir, name)
}

// compareText formats a comparison for people.
func compareText(a, b *builds.Build, units []compared) []byte {
	var out bytes.Buffer
	ga, gb := &a.Gain, &b.Gain
	out.Write(table(func(w io.Writer) {
		fmt.Fprintf(w, "\tBUILD %d\tBUILD %d\tCHANGE\n", a.ID, b.ID)
		times := func(name string, x, y time.Duration) {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", name, figure.Digits(x), figure.Digits(y), plus(y-x))
		}
		numbers := func(name string, x, y int) { fmt.Fprintf(w, "%s\t%d\t%d\t%+d\n", name, x, y, y-x) }
		times("took", a.Wall(), b.Wall())
		times("work, on one processor", ga.Work, gb.Work)
		numbers("commands", ga.Jobs, gb.Jobs)
		for _, p := range [...]struct{ name, place string }{{"on hosts", report.PlaceRemote}, {"from the cache", report.PlaceCached}, {"here", report.PlaceLocal}} {
			numbers(p.name, ga.Of(p.place), gb.Of(p.place))
		}
		numbers("failed", ga.Failed, gb.Failed)
		fmt.Fprintf(w, "sent\t%s\t%s\t\n", figure.Bytes(ga.BytesOut), figure.Bytes(gb.BytesOut))
		hosts := func(x *builds.Build) int {
			n := 0
			for _, p := range x.Gain.Places {
				if p.Place == report.PlaceRemote {
					n++
				}
			}
			return n
		}
		numbers("hosts", hosts(a), hosts(b))
	}))
	if text := compareReasons(a, b); len(text) > 0 {
		fmt.Fprint(&out, "\nWhy commands ran here, where that has changed\n")
		out.Write(indent(text))
	}
	var longer []compared
	for _, u := range units {
		if u.longer() > 0 && len(longer) < maxCompared {
			longer = append(longer, u)
		}
	}
	if len(longer) > 0 {
		fmt.Fprintf(&out, "\nCommands that took longer in build %d, by most\n", b.ID)
		out.Write(indent(table(func(w io.Writer) {
			fmt.Fprintf(w, "COMMAND\tLONGER BY\tBUILD %d\tBUILD %d\n", a.ID, b.ID)
			for i := range longer {
				u := &longer[i]
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(u.name), figure.Digits(u.longer()), u.in(0), u.in(1))
			}
		})))
	}
	return out.Bytes()
}

// in says what became of a command in one of the builds.
func (u *compared) in(i int) string {
	if !u.ran[i] {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", figure.Digits(u.took[i]), plain(u.where[i]))
}

// compareReasons says which reasons for running here have come, gone, or changed in how often they apply, those of most commands first.
func compareReasons(a, b *builds.Build) []byte {
	type change struct {
		reason string
		n      [2]int
	}
	byName := make(map[string]*change)
	for i, x := range [...]*builds.Build{a, b} {
		for _, r := range x.Gain.Reasons {
			if byName[r.Reason] == nil {
				byName[r.Reason] = &change{reason: r.Reason}
			}
			byName[r.Reason].n[i] = r.Jobs
		}
	}
	var list []*change
	for _, x := range byName {
		if x.n[0] != x.n[1] {
			list = append(list, x)
		}
	}
	if len(list) == 0 {
		return nil
	}
	by := func(x *change) int { return max(x.n[1]-x.n[0], x.n[0]-x.n[1]) }
	slices.SortFunc(list, func(x, y *change) int { return cmp.Or(cmp.Compare(by(y), by(x)), cmp.Compare(x.reason, y.reason)) })
	return table(func(w io.Writer) {
		fmt.Fprintf(w, "REASON\tBUILD %d\tBUILD %d\tMEANS\n", a.ID, b.ID)
		for _, x := range list[:min(len(list), maxCompared)] {
			fmt.Fprintf(w, "%s\t%d\t%d\t%s\n", plain(x.reason), x.n[0], x.n[1], plain(reason.Explain(x.reason)))
		}
	})
}

// plus formats by how much a time has changed.
func plus(d time.Duration) string {
	if d < 0 {
		return signed(d)
	}
	return "+" + signed(d)
}
