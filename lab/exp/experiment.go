package exp

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Size is how much is measured.
type Size string

// Sizes.
const (
	Tiny Size = "tiny" // of the tests: everything once, in a second or so
	CI   Size = "ci"   // all experiments within 20 minutes on 2 cores
	Full Size = "full" // more levels and more rounds
)

// ParseSize returns the size of that name.
func ParseSize(s string) (Size, error) {
	switch z := Size(s); z {
	case Tiny, CI, Full:
		return z, nil
	}
	return "", fmt.Errorf("no size %q: ci or full", s)
}

// Pick returns the value for the size.
func Pick[T any](z Size, tiny, ci, full T) T {
	switch z {
	case Tiny:
		return tiny
	case Full:
		return full
	}
	return ci
}

// Axis is something that is varied.
type Axis struct {
	Name   string
	Levels []string
	Bytes  bool // the levels are numbers of bytes, shown as such
}

// Numbers returns an axis's levels from numbers.
func Numbers(n ...int) (levels []string) {
	for _, v := range n {
		levels = append(levels, strconv.Itoa(v))
	}
	return levels
}

// Cell is one combination: a level for each axis.
type Cell map[string]string

// Key names the cell: its axes, in alphabetical order, with their levels.
func (c Cell) Key() string {
	var b strings.Builder
	for i, axis := range slices.Sorted(maps.Keys(c)) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(axis + "=" + c[axis])
	}
	return b.String()
}

// With returns the cell with some levels replaced or added: pairs of axis and level.
func (c Cell) With(pairs ...string) Cell {
	d := maps.Clone(c)
	if d == nil {
		d = make(Cell)
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		d[pairs[i]] = pairs[i+1]
	}
	return d
}

// Number returns the level of an axis of numbers; 0 if it is none.
func (c Cell) Number(axis string) int {
	n, _ := strconv.Atoi(c[axis])
	return n
}

// has reports whether the cell has all levels of part.
func (c Cell) has(part Cell) bool {
	for axis, level := range part {
		if c[axis] != level {
			return false
		}
	}
	return true
}

// Values are what one measurement has found: metrics by name.
type Values map[string]float64

// Metric describes one of an experiment's values.
type Metric struct{ Name, Unit, What string }

// Bench measures cells. Measure is called for one cell at a time.
type Bench interface {
	// Measure returns the values of one measurement. An *Untold error means that this cell cannot be
	// measured on this machine; it is then not tried again. Any other error ends the experiment.
	Measure(ctx context.Context, c Cell) (Values, error)
	Close() error
}

// Untold is why something cannot be measured on this machine.
type Untold struct{ Reason string }

func (u *Untold) Error() string { return u.Reason }

// asUntold returns the reason in an error, if it is an Untold.
func asUntold(err error) (string, bool) {
	var u *Untold
	if errors.As(err, &u) {
		return u.Reason, true
	}
	return "", false
}

// Setting is what an experiment gets to prepare itself.
type Setting struct {
	Size Size
	Seed uint64
	Dir  string       // an empty directory, removed at the end
	CPU  func(string) // called with how CPU time is measured, if it is
}

// Default is a value that the product uses by itself and that an experiment speaks about.
type Default struct {
	What  string // "payload of an FPDU: 32 KiB"
	Where string // file of the repository, or key of a configuration file
}

// Experiment is a question and how it is put.
type Experiment struct {
	ID       string // "E3"
	Name     string // "registration": short words, as on the command line
	Question string
	Axes     func(Size) []Axis
	Keep     func(Cell) bool // nil: all combinations are measured
	Rounds   func(Size) int
	Metrics  []Metric
	Prepare  func(context.Context, *Setting) (Bench, error)
	Views    []View
	Claims   []Predicate
	Defaults []Default
}

// Cells returns the cells of a size, in the order of the axes.
func (e *Experiment) Cells(z Size) []Cell {
	cells := []Cell{{}}
	for _, a := range e.Axes(z) {
		var next []Cell
		for _, c := range cells {
			for _, level := range a.Levels {
				next = append(next, c.With(a.Name, level))
			}
		}
		cells = next
	}
	if e.Keep != nil {
		cells = slices.DeleteFunc(cells, func(c Cell) bool { return !e.Keep(c) })
	}
	return cells
}

// metric returns the description of a metric.
func (e *Experiment) metric(name string) Metric {
	for _, m := range e.Metrics {
		if m.Name == name {
			return m
		}
	}
	return Metric{Name: name}
}
