package comparison

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs"
	"github.com/rdistcc/rdistcc/internal/figure"
)

// Header is what headers cost that the later build's units read together, or those of the earlier one if they are gone.
type Header struct {
	Name  string           `json:"name"` // of the first of them
	More  int              `json:"more,omitempty"`
	CPU   [2]time.Duration `json:"cpu_ns"`
	Units [2]int           `json:"units"`
	Error time.Duration    `json:"error_ns"` // of the difference; negative: not known
}

// Longer returns by how much more it costs in the later build.
func (h *Header) Longer() time.Duration { return h.CPU[1] - h.CPU[0] }

// AddHeaders adds what headers cost in both builds. The reports should be of the same units: otherwise a header of which fewer are compiled
// seems to cost less.
func (c *Comparison) AddHeaders(before, after *costs.Report) {
	dirs := [2]string{c.Builds[0].Dir, c.Builds[1].Dir}
	// A header may stand in another group than before. What a group costs is divided by size, as the model divides what it cannot tell apart.
	type part struct {
		group *costs.Header
		cpu   time.Duration
	}
	was := make(map[string]part)
	for i := range before.Headers {
		h := &before.Headers[i]
		for _, f := range h.Files {
			was[figure.Near(dirs[0], f.Name)] = part{h, time.Duration(float64(h.CPU) * float64(f.Size) / float64(max(sizeOf(h), 1)))}
		}
	}
	add := func(x Header) {
		if x.Longer().Abs() > max(x.Error, 0) {
			c.Headers = append(c.Headers, x)
		}
	}
	for i := range after.Headers {
		h := &after.Headers[i]
		x := Header{Name: figure.Near(dirs[1], h.Name()), More: len(h.Files) - 1, CPU: [2]time.Duration{1: h.CPU}, Units: [2]int{1: h.Units}, Error: h.Error}
		groups := make(map[*costs.Header]bool)
		for _, f := range h.Files {
			name := figure.Near(dirs[1], f.Name)
			old, ok := was[name]
			if !ok {
				continue
			}
			delete(was, name)
			x.CPU[0] += old.cpu
			x.Units[0] = max(x.Units[0], old.group.Units)
			if groups[old.group] = true; old.group.Error < 0 {
				x.Error = -1
			}
		}
		for g := range groups {
			if x.Error >= 0 {
				x.Error += g.Error
			}
		}
		add(x)
	}
	for i := range before.Headers {
		h := &before.Headers[i]
		x := Header{More: -1, Units: [2]int{h.Units}, Error: h.Error}
		for _, f := range h.Files {
			name := figure.Near(dirs[0], f.Name)
			if old, gone := was[name]; gone {
				x.Name = cmp.Or(x.Name, name)
				x.More++
				x.CPU[0] += old.cpu
			}
		}
		if x.More >= 0 {
			add(x)
		}
	}
	slices.SortFunc(c.Headers, func(x, y Header) int {
		return cmp.Or(cmp.Compare(y.Longer().Abs(), x.Longer().Abs()), cmp.Compare(x.Name, y.Name))
	})
}

func sizeOf(h *costs.Header) (n uint64) {
	for _, f := range h.Files {
		n += f.Size
	}
	return n
}
