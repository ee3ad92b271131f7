// Package buildpage writes what became of a build as one HTML file, which needs nothing else to be looked at, kept or printed.
//
//	page      the file, and what its tables say
//	compare   in what it differs from another build
//	timeline  what ran where, and when
//	treemap   what headers cost, as areas
package buildpage

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/builds"
	"github.com/rdistcc/rdistcc/internal/comparison"
	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/figure"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// maxRows bounds each table, so that a browser can show the file: the costliest rows are in it, and a line says how many are not.
const maxRows = 1000

var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed page.js
	pageJS string

	// Style and Script are what a page that a manager serves fetches from it.
	Style, Script = []byte(pageCSS), []byte(pageJS)

	page = template.Must(template.New("page").Funcs(template.FuncMap{
		"digits": figure.Digits, "signed": comparison.Signed, "bytes": figure.Bytes, "count": figure.Count, "remedy": reason.Remedy, "fit": fitText,
	}).Parse(pageHTML))
)

// view is what the template shows.
type view struct {
	CSS template.CSS
	JS  template.JS
	// Served means that it is one of the pages of a manager, which have a policy of their own and are shown to others than the build's user.
	Served  bool
	Command string
	Build   *builds.Build
	Title   string
	Facts   []fact
	Time    *timeline
	Units   []unit
	More    int // units that are not among Units
	Costs   *costs.Report
	Tree    *treemap
	Heads   []header
	Path    []step
	Saved   string // what the cache saved; empty: nothing
	// Missed are why the cache had no result, from the costs, which tell each file, or else as the manager said it.
	Missed   []missed
	Compared *compared // with an earlier build; nil: with none
	Others   []other   // that it can be compared with
	Last     int       // the number of the most obvious of them; 0: none is
}

// missed is a row of the table of misses.
type missed struct {
	Why      string
	Compiles int
	CPU      time.Duration // 0: not known
}

type fact struct{ Name, Text string }

// unit is a row of the table of commands.
type unit struct {
	Name, Place, Kind, Why string
	Began, Took, CPU       time.Duration
	Memory                 uint64
}

// header is a row of the table of headers.
type header struct {
	Name       string
	More       int // others that are always read with it
	CPU, Touch time.Duration
	Error      time.Duration // of CPU; negative: not known
	Units      int
	Changes    int
}

// step is a command that the end of the build waited for, and how long nothing of the build ran before it.
type step struct {
	Name, Place string
	Gap, Took   time.Duration
}

// Where a manager serves Style and Script, and its list of builds, from the address of a page.
const (
	StyleName  = "build.css"
	ScriptName = "build.js"
)

// Page is a build and what its page shows.
type Page struct {
	Build *builds.Build
	Jobs  []report.JobRecord // its commands, which are sorted
	Costs *costs.Report      // nil: nothing of headers
	// Compared compares it with an earlier build, if it is not nil.
	Compared *comparison.Comparison
	// Others are builds, the newest first. A page that is served has links to comparisons with those that were before.
	Others []builds.Build
}

// Write writes the page as a file of its own.
func Write(w io.Writer, p *Page) error { return p.write(w, false) }

// WriteServed writes the page for a manager, which serves it below a directory of builds. Other users of the machine may read
// that, so it has no words of the command but the first: they may contain anything.
func WriteServed(w io.Writer, p *Page) error { return p.write(w, true) }

func (p *Page) write(w io.Writer, served bool) error {
	b, jobs, c := p.Build, p.Jobs, p.Costs
	slices.SortFunc(jobs, func(x, y report.JobRecord) int { return cmp.Or(x.Began.Compare(y.Began), cmp.Compare(x.ID, y.ID)) })
	v := &view{CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Served: served, Command: CommandOf(b, served), Build: b, Title: fmt.Sprintf("Build %d", b.ID), Costs: c}
	v.missed(b, c)
	v.Facts = v.facts(b)
	v.Time = timelineOf(b, jobs)
	if v.Compared = comparedOf(p.Compared); served {
		v.others(p.Others)
	}
	for i := range jobs {
		v.Units = append(v.Units, unitOf(b, &jobs[i]))
	}
	v.Path = pathOf(b, jobs)
	slices.SortStableFunc(v.Units, func(x, y unit) int { return cmp.Compare(y.Took, x.Took) })
	v.More = max(len(v.Units)-maxRows, 0)
	v.Units = v.Units[:len(v.Units)-v.More]
	if c != nil {
		for i := range c.Headers[:min(len(c.Headers), maxRows)] {
			h := &c.Headers[i]
			v.Heads = append(v.Heads, header{Name: figure.Near(b.Dir, h.Name()), More: len(h.Files) - 1, CPU: h.CPU, Error: h.Error, Touch: h.Touch, Units: h.Units, Changes: h.Changes})
		}
		v.Tree = treemapOf(b.Dir, c)
	}
	return page.Execute(w, v)
}

// CommandOf returns a build's command as one line, or, in brief, its program.
func CommandOf(b *builds.Build, brief bool) string {
	words := b.Command
	if brief && len(words) > 1 {
		words = []string{filepath.Base(words[0]), "..."}
	}
	return figure.Printable(strings.Join(words, " "))
}

// missed sets why the cache missed, and what it saved.
func (v *view) missed(b *builds.Build, c *costs.Report) {
	if c == nil || c.Cache.Asked == 0 {
		for _, m := range b.Gain.Missed {
			v.Missed = append(v.Missed, missed{Why: figure.Printable(m.Why), Compiles: m.Jobs})
		}
		return
	}
	if c.Cache.Hits > 0 {
		v.Saved = figure.Digits(c.Cache.Saved) + " of CPU time"
	}
	for i := range c.Cache.Missed[:min(len(c.Cache.Missed), maxRows)] {
		m := &c.Cache.Missed[i]
		v.Missed = append(v.Missed, missed{m.Says(b.Dir), m.Compiles, m.CPU})
	}
}

// facts returns the figures at the head of the page.
func (v *view) facts(b *builds.Build) []fact {
	g := &b.Gain
	switch {
	case b.Running:
		return []fact{{"it runs since", b.Began.Format(time.TimeOnly)}}
	case b.Ended.IsZero():
		return []fact{{"it was killed", "before its figures were written"}}
	}
	facts := []fact{{"took", figure.Digits(b.Wall())}, {"exit status", fmt.Sprint(b.Exit)},
		{"without the farm", fmt.Sprintf("about %s on %s", figure.Digits(g.Alone), figure.Count(b.Cores, "processor"))},
		{"commands", fmt.Sprint(g.Jobs)}, {"on hosts", fmt.Sprint(g.Of(report.PlaceRemote))}, {"from the cache", fmt.Sprint(g.Of(report.PlaceCached))},
		{"here", fmt.Sprint(g.Of(report.PlaceLocal))}}
	if g.Asked > 0 {
		facts = append(facts, fact{"cache hits", fmt.Sprintf("%d of %d", g.Of(report.PlaceCached), g.Asked)})
	}
	if v.Saved != "" {
		facts = append(facts, fact{"the cache saved", v.Saved})
	}
	if g.Failed > 0 {
		facts = append(facts, fact{"failed", fmt.Sprint(g.Failed)})
	}
	return append(facts, fact{"sent", figure.Bytes(g.BytesOut)}, fact{"received", figure.Bytes(g.BytesIn)})
}

// unitOf returns the row of a command.
func unitOf(b *builds.Build, r *report.JobRecord) unit {
	u := unit{Name: nameOf(b, r), Place: placeOf(r), Kind: kindOf(r), Began: max(r.Began.Sub(b.Began), 0), Took: max(r.Ended.Sub(r.Began), 0),
		CPU: time.Duration(r.CPUUS) * time.Microsecond, Memory: r.Memory}
	switch {
	case r.Local:
		u.Why = strings.TrimSuffix(r.Reason+": "+r.Detail, ": ")
	case r.Cached == "" && r.Missed != "":
		u.Why = "not in the cache: " + r.Missed
	}
	return u
}

// fitText says how far what headers cost may be off.
func fitText(c *costs.Report) string {
	if c.Fit.Error < 0 {
		return "What they cost is estimated by their text: there are too few units for more."
	}
	return fmt.Sprintf("What they cost is estimated, by a model that is off by less than %.0f%% for half of the units; in 19 of 20 cases a header is off by no more than it says.", math.Ceil(100*c.Fit.Error))
}

// nameOf names a command: by its source, else by what it makes.
func nameOf(b *builds.Build, r *report.JobRecord) string {
	name := cmp.Or(r.Source, r.Output)
	if name == "" {
		return "a command without a source"
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(r.Cwd, name)
	}
	return figure.Printable(figure.Near(b.Dir, name))
}

// placeOf says where a command ran.
func placeOf(r *report.JobRecord) string {
	switch r.Place() {
	case report.PlaceRemote:
		return r.Host
	case report.PlaceCached:
		return "cache: " + r.Cached
	}
	return "here"
}

// The kinds of commands, by which they are coloured.
const (
	kindCompile = "compile"
	kindCached  = "cached"
	kindHere    = "here"
	kindTrouble = "trouble"
	kindFailed  = "failed"
)

func kindOf(r *report.JobRecord) string {
	switch {
	case r.Exit != 0 || !r.Finished:
		return kindFailed
	case r.Trouble:
		return kindTrouble
	case r.Local:
		return kindHere
	case r.Cached != "":
		return kindCached
	}
	return kindCompile
}

// pathOf returns what the end of the build waited for: the command that ended last, the one that had ended last when that began, and so on,
// the first one first. make knows which had to wait for which; the order in which they ran shows only which can have.
func pathOf(b *builds.Build, jobs []report.JobRecord) []step {
	byEnd := make([]*report.JobRecord, 0, len(jobs))
	for i := range jobs {
		if !jobs[i].Ended.IsZero() {
			byEnd = append(byEnd, &jobs[i])
		}
	}
	slices.SortFunc(byEnd, func(x, y *report.JobRecord) int { return x.Ended.Compare(y.Ended) })
	var path []step
	for n := len(byEnd); n > 0 && len(path) < maxRows; {
		r := byEnd[n-1]
		n, _ = slices.BinarySearchFunc(byEnd[:n-1], r.Began, func(x *report.JobRecord, t time.Time) int { return cmp.Or(x.Ended.Compare(t), -1) })
		before := b.Began
		if n > 0 {
			before = byEnd[n-1].Ended
		}
		path = append(path, step{nameOf(b, r), placeOf(r), max(r.Began.Sub(before), 0), max(r.Ended.Sub(r.Began), 0)})
	}
	slices.Reverse(path)
	return path
}
