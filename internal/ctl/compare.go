package ctl

import (
	"bytes"
	"fmt"
	"io"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/costs/journal"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
)

// maxCompared is how many lines each table of a comparison has.
const maxCompared = 10

// comparison compares the two builds that the words name.
func (c *ctl) comparison(words []string) (*comparison.Comparison, error) {
	var pair [2]*builds.Build
	for i := range pair {
		b, err := c.findBuild(words[i])
		if err != nil {
			return nil, err
		}
		if b.Ended.IsZero() {
			return nil, failf(reason.ExitGeneral, "build %d has no figures to compare: it runs, or was killed", b.ID)
		}
		pair[i] = b
	}
	if pair[0].ID == pair[1].ID {
		return nil, failf(reason.ExitArguments, "build %d would be compared with itself; rdistcc builds lists others", pair[0].ID)
	}
	x := comparison.Of(c.buildStore(), pair[0], pair[1])
	if x.Partial {
		return x, nil
	}
	before, after, err := c.costsOfBoth(&x.Builds)
	if err != nil {
		x.Notes = append(x.Notes, "what headers cost is not compared: "+err.Error())
		return x, nil
	}
	x.AddHeaders(before, after)
	return x, nil
}

// costsOfBoth returns what the units cost in two builds that both have compiled.
func (c *ctl) costsOfBoth(pair *[2]builds.Build) (before, after *costs.Report, err error) {
	type unit struct{ source, output string }
	var of [2]func(*journal.Compile) bool
	for i := range pair {
		if of[i], err = c.ofBuild(&pair[i]); err != nil {
			return nil, nil, err
		}
	}
	l, err := journal.Read(c.journal(), pair[0].Began, func(x *journal.Compile) bool { return of[0](x) || of[1](x) })
	if err != nil {
		return nil, nil, err
	}
	unitOf := func(i int, x *journal.Compile) unit {
		return unit{figure.Near(pair[i].Dir, x.Source), figure.Near(pair[i].Dir, x.Output)}
	}
	in := [2]map[unit]bool{{}, {}}
	for i := range l.Compiles {
		for k := range pair {
			if x := &l.Compiles[i]; of[k](x) {
				in[k][unitOf(k, x)] = true
			}
		}
	}
	report := func(i int) *costs.Report {
		return costs.Of(l, func(x *journal.Compile) bool { return of[i](x) && in[1-i][unitOf(i, x)] })
	}
	return report(0), report(1), nil
}

// compareBuilds prints in what two builds differ, the earlier one first.
func (c *ctl) compareBuilds(words []string, asJSON bool) error {
	x, err := c.comparison(words)
	if err != nil {
		return err
	}
	if asJSON {
		return c.marshal(x)
	}
	for _, n := range x.Notes {
		fmt.Fprintf(c.err, "rdistcc: %s\n", plain(n))
	}
	return c.print(compareText(x))
}

// compareText formats a comparison for people.
func compareText(x *comparison.Comparison) []byte {
	var out bytes.Buffer
	a, b := x.Builds[0].ID, x.Builds[1].ID
	fmt.Fprintf(&out, "%s\n\n", x.Says())
	out.Write(table(func(w io.Writer) {
		fmt.Fprintf(w, "\tBUILD %d\tBUILD %d\tCHANGE\n", a, b)
		for _, r := range x.Figures() {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", r.Name, r.Before, r.After, r.Change)
		}
	}))
	section := func(title, head string, n int, row func(w io.Writer, i int)) {
		if n == 0 {
			return
		}
		fmt.Fprintf(&out, "\n%s\n", title)
		out.Write(indent(table(func(w io.Writer) {
			fmt.Fprintf(w, "%s\n", head)
			for i := range min(n, maxCompared) {
				row(w, i)
			}
		})))
		if n > maxCompared {
			fmt.Fprintf(&out, "  and %d more\n", n-maxCompared)
		}
	}
	both := fmt.Sprintf("BUILD %d\tBUILD %d", a, b)
	section("What made commands slower or faster, by most", "CAUSE\tCOMMANDS\tCHANGE", len(x.Causes), func(w io.Writer, i int) {
		fmt.Fprintf(w, "%s\t%d\t%s\n", x.Causes[i].Label(), x.Causes[i].Commands, comparison.Signed(x.Causes[i].Time))
	})
	changes := func(title, head string, list []comparison.Change, means func(string) string) {
		section(title, head, len(list), func(w io.Writer, i int) {
			last := ""
			if means != nil {
				last = "\t" + plain(means(list[i].What))
			}
			fmt.Fprintf(w, "%s\t%d\t%d%s\n", list[i].What, list[i].Commands[0], list[i].Commands[1], last)
		})
	}
	changes("Where commands ran, where that has changed", "PLACE\t"+both, x.Places, nil)
	changes("Why commands ran here, where that has changed", "REASON\t"+both+"\tMEANS", x.Reasons, reason.Explain)
	changes("Why the cache had no result, where that has changed", "WHY\t"+both, x.Missed, nil)
	n := 0
	for n < len(x.Commands) && x.Commands[n].Longer() > 0 == (x.Commands[0].Longer() > 0) {
		n++
	}
	if n > 0 {
		how := "longer"
		if x.Commands[0].Longer() < 0 {
			how = "less"
		}
		section(fmt.Sprintf("Commands that took %s in build %d, by most", how, b), "COMMAND\tCHANGE\t"+both+"\tWHAT HAS CHANGED", n, func(w io.Writer, i int) {
			u := &x.Commands[i]
			in := func(i int) string { return known(u.Place[i] != "", figure.Digits(u.Took[i])) }
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", u.Name, comparison.Signed(u.Longer()), in(0), in(1), u.Says())
		})
	}
	section("Headers whose cost has changed, over the units that both compiled", "HEADER\tCHANGE\t"+both+"\tUNITS", len(x.Headers), func(w io.Writer, i int) {
		h := &x.Headers[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\n", withMore(h.Name, h.More), comparison.Signed(h.Longer()), figure.Digits(h.CPU[0]), figure.Digits(h.CPU[1]), max(h.Units[0], h.Units[1]))
	})
	return out.Bytes()
}
