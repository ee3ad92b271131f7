package ctl

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
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
	units, waited, err := c.unitsOf(a, b)
	if err != nil {
		return err
	}
	return c.print(compareText(a, b, units, waited))
}

// compared is what a command took in two builds.
type compared struct {
	name  string
	where [2]string
	took  [2]time.Duration
	ran   [2]bool
}

func (u *compared) longer() time.Duration { return u.took[1] - u.took[0] }

// unitsOf returns the commands of two builds by what they make, those first that took longer in the second by most, and how long those of
// each build waited for a place on a host and their turn there.
func (c *ctl) unitsOf(a, b *builds.Build) (_ []compared, waited [2]time.Duration, _ error) {
	byName := make(map[string]*compared)
	for i, x := range [...]*builds.Build{a, b} {
		err := c.buildStore().Jobs(x.ID, func(r *report.JobRecord) error {
			if r.Place() == report.PlaceRemote {
				waited[i] += time.Duration(r.CreditUS+r.QueueUS) * time.Microsecond
			}
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
			return nil, waited, failf(reason.ExitIO, "%v", err)
		}
	}
	list := make([]compared, 0, len(byName))
	for _, u := range byName {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(x, y compared) int {
		return cmp.Or(cmp.Compare(y.longer(), x.longer()), cmp.Compare(x.name, y.name))
	})
	return list, waited, nil
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
func compareText(a, b *builds.Build, units []compared, waited [2]time.Duration) []byte {
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
		numbers("not in the cache", ga.Asked-ga.Hits, gb.Asked-gb.Hits)
		numbers("failed", ga.Failed, gb.Failed)
		fmt.Fprintf(w, "sent\t%s\t%s\t\n", figure.Bytes(ga.BytesOut), figure.Bytes(gb.BytesOut))
		numbers("hosts", len(hostsOf(a)), len(hostsOf(b)))
		times("waited for hosts, all commands", waited[0], waited[1])
	}))
	for i, x := range [...]*builds.Build{a, b} {
		other := hostsOf([...]*builds.Build{b, a}[i])
		if names := slices.DeleteFunc(hostsOf(x), func(name string) bool { return slices.Contains(other, name) }); len(names) > 0 {
			more := ""
			if n := len(names) - maxCompared; n > 0 {
				names, more = names[:maxCompared], fmt.Sprintf(" and %d more", n)
			}
			fmt.Fprintf(&out, "\nOnly in build %d: %s%s\n", x.ID, plain(strings.Join(names, ", ")), more)
		}
	}
	if text := compareReasons(a, b); len(text) > 0 {
		fmt.Fprint(&out, "\nWhy commands ran here, where that has changed\n")
		out.Write(indent(text))
	}
	if text := compareMissed(a, b); len(text) > 0 {
		fmt.Fprint(&out, "\nWhy the cache had no result, where that has changed\n")
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

// hostsOf returns the hosts that commands of a build ran on.
func hostsOf(b *builds.Build) (names []string) {
	for _, p := range b.Gain.Places {
		if p.Place == report.PlaceRemote {
			names = append(names, p.Name)
		}
	}
	return names
}

// counts are how many commands of two builds something applies to, by what that is.
type counts map[string]*[2]int

func (c counts) add(what string, build, n int) {
	if c[what] == nil {
		c[what] = new([2]int)
	}
	c[what][build] += n
}

// changed formats what has come, gone, or changed in how often it applies, that of most commands first. What it means, if means is not nil, is
// in the last column.
func (c counts) changed(head string, a, b *builds.Build, means func(string) string) []byte {
	type change struct {
		what string
		n    [2]int
	}
	var list []change
	for what, n := range c {
		if n[0] != n[1] {
			list = append(list, change{what, *n})
		}
	}
	if len(list) == 0 {
		return nil
	}
	by := func(x change) int { return max(x.n[1]-x.n[0], x.n[0]-x.n[1]) }
	slices.SortFunc(list, func(x, y change) int { return cmp.Or(cmp.Compare(by(y), by(x)), cmp.Compare(x.what, y.what)) })
	return table(func(w io.Writer) {
		last := ""
		if means != nil {
			last = "\tMEANS"
		}
		fmt.Fprintf(w, "%s\tBUILD %d\tBUILD %d%s\n", head, a.ID, b.ID, last)
		for _, x := range list[:min(len(list), maxCompared)] {
			if means != nil {
				last = "\t" + plain(means(x.what))
			}
			fmt.Fprintf(w, "%s\t%d\t%d%s\n", plain(x.what), x.n[0], x.n[1], last)
		}
	})
}

// compareReasons says in which reasons for running here two builds differ.
func compareReasons(a, b *builds.Build) []byte {
	c := make(counts)
	for i, x := range [...]*builds.Build{a, b} {
		for _, r := range x.Gain.Reasons {
			c.add(r.Reason, i, r.Jobs)
		}
	}
	return c.changed("REASON", a, b, reason.Explain)
}

// compareMissed says in why the cache missed two builds differ.
func compareMissed(a, b *builds.Build) []byte {
	c := make(counts)
	for i, x := range [...]*builds.Build{a, b} {
		for _, m := range x.Gain.Missed {
			c.add(m.Why, i, m.Jobs)
		}
	}
	return c.changed("WHY", a, b, nil)
}

// plus formats by how much a time has changed.
func plus(d time.Duration) string {
	if d < 0 {
		return signed(d)
	}
	return "+" + signed(d)
}
