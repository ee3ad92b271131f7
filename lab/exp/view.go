package exp

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/lab/plot"
)

// View is one metric over one axis: a table, and a picture if the axis has numbers.
type View struct {
	Title  string
	Metric string
	X      string   // axis along which it goes
	Lines  []string // axes whose combinations are a line each
	Where  Cell     // levels of the others
	Table  bool     // no picture
	Aside  bool     // printed, but not in the document
	Linear bool     // the picture's axes are linear
}

// Name is the picture's file name, for the i-th view.
func (v *View) Name(e *Experiment, i int) string {
	return fmt.Sprintf("exp-%s-%d.svg", e.Name, i+1)
}

// line is a row of a view's table, or a line of its picture.
type line struct {
	name string
	at   []Interval // by level of X
}

// lines returns a view's levels of X and its lines; those without any value are left out.
func (r *Results) lines(v *View) (x []string, all []line) {
	x = r.levels(v.X)
	seen := make(map[string]int)
	for _, key := range r.order {
		c := r.cells[key].cell
		if !c.has(v.Where) {
			continue
		}
		name := r.name(v, c)
		i, ok := seen[name]
		if !ok {
			i = len(all)
			seen[name] = i
			all = append(all, line{name, make([]Interval, len(x))})
		}
		if k := slices.Index(x, c[v.X]); k >= 0 {
			all[i].at[k] = r.Of(c, v.Metric)
		}
	}
	all = slices.DeleteFunc(all, func(l line) bool {
		return !slices.ContainsFunc(l.at, func(i Interval) bool { return i.N > 0 })
	})
	// In the order of the axes, not of the first round.
	slices.SortStableFunc(all, func(a, b line) int { return r.rank(v, a.name) - r.rank(v, b.name) })
	return narrow(x, all)
}

// narrow leaves out the levels at which no line has a value.
func narrow(x []string, all []line) ([]string, []line) {
	var kept []string
	of := make([][]Interval, len(all))
	for k := range x {
		if !slices.ContainsFunc(all, func(l line) bool { return l.at[k].N > 0 }) {
			continue
		}
		kept = append(kept, x[k])
		for i, l := range all {
			of[i] = append(of[i], l.at[k])
		}
	}
	for i := range all {
		all[i].at = of[i]
	}
	return kept, all
}

// None is the level of an axis that does not apply to a cell.
const None = "none"

// name returns the name of a cell's line.
func (r *Results) name(v *View, c Cell) string {
	var names []string
	for _, axis := range v.Lines {
		if c[axis] != None {
			names = append(names, r.label(axis, c[axis]))
		}
	}
	if len(names) == 0 {
		return None
	}
	return strings.Join(names, ", ")
}

// rank returns the place of a line's name among all combinations.
func (r *Results) rank(v *View, name string) int {
	for i, c := range r.of.Cells(r.Header.Size) {
		if r.name(v, c) == name {
			return i
		}
	}
	return 0
}

// label returns a level as people read it.
func (r *Results) label(axis, level string) string {
	for _, a := range r.of.Axes(r.Header.Size) {
		if a.Name == axis && a.Bytes {
			return Bytes((Cell{axis: level}).Number(axis))
		}
	}
	return level
}

// chart returns a view's picture.
func (r *Results) chart(v *View) *plot.Chart {
	m := r.of.metric(v.Metric)
	c := &plot.Chart{Title: v.Title, X: v.X, Y: m.What + ", " + m.Unit, LogX: !v.Linear, LogY: !v.Linear}
	x, all := r.lines(v)
	for _, a := range r.of.Axes(r.Header.Size) {
		if a.Name == v.X && a.Bytes {
			c.X += ", bytes"
		}
	}
	for _, l := range all {
		s := plot.Series{Name: l.name}
		for k, i := range l.at {
			if i.N > 0 {
				s.X = append(s.X, float64((Cell{v.X: x[k]}).Number(v.X)))
				s.Y, s.Lo, s.Hi = append(s.Y, i.Median), append(s.Lo, i.Lo), append(s.Hi, i.Hi)
			}
		}
		c.Series = append(c.Series, s)
	}
	return c
}

// WriteSVG draws the i-th view.
func (r *Results) WriteSVG(w io.Writer, i int) error { return r.chart(&r.of.Views[i]).WriteSVG(w) }

// table writes a view as a table of medians, with their intervals in brackets.
func (r *Results) table(b *strings.Builder, v *View) {
	x, all := r.lines(v)
	m := r.of.metric(v.Metric)
	fmt.Fprintf(b, "%s: %s, %s\n\n| %s |", v.Title, m.What, m.Unit, strings.Join(v.Lines, ", "))
	for _, level := range x {
		fmt.Fprintf(b, " %s |", r.label(v.X, level))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(x)) + "\n")
	for _, l := range all {
		fmt.Fprintf(b, "| %s |", l.name)
		for _, i := range l.at {
			if i.N == 0 {
				b.WriteString(" - |")
			} else {
				fmt.Fprintf(b, " %s (%s to %s) |", Short(i.Median), Short(i.Lo), Short(i.Hi))
			}
		}
		b.WriteByte('\n')
	}
	b.WriteByte('\n')
}
