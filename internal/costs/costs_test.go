package costs

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/costs/journal"
)

// tree is a source tree of which is known what each header costs.
type tree struct {
	l       journal.Log
	seconds []float64  // that a header takes in each unit that reads it
	used    []float64  // what its templates take in all units that use them
	reads   [][]uint32 // by unit, without its source
	total   float64    // of all units, without noise
	random  *rand.Rand
}

// grow makes a tree. A header includes some of those before it; a unit includes some headers, popular ones more often, and reads all that
// these include. What a header takes has to do with its text, but not much: some take ten times as much as others of that length. A byte
// of a unit's own text takes a time that scatters by own, and times are off by noise, both as shares.
func grow(headers, units, includes int, own, noise float64) *tree {
	r := rand.New(rand.NewPCG(uint64(headers), uint64(units)))
	x := &tree{random: r, seconds: make([]float64, headers), used: make([]float64, headers), reads: make([][]uint32, units)}
	within := make([][]uint32, headers)
	popular := func(n int) int { return int(float64(n) * math.Pow(r.Float64(), 2)) }
	for h := range headers {
		size := 500 + r.ExpFloat64()*20_000
		x.l.Files = append(x.l.Files, journal.File{Name: fmt.Sprintf("/w/h%d.h", h), Size: uint64(size), Sum: 1})
		x.seconds[h] = size * 1e-6 * math.Exp(r.NormFloat64())
		list := []uint32{uint32(h)}
		for range min(h, r.IntN(3)) {
			list = append(list, within[popular(h)]...)
		}
		slices.Sort(list)
		within[h] = slices.Compact(list)
	}
	for u := range units {
		var list []uint32
		for range 1 + r.IntN(includes) {
			list = append(list, within[popular(headers)]...)
		}
		slices.Sort(list)
		list = slices.Compact(list)
		x.reads[u] = list
		text := 1000 + r.ExpFloat64()*30_000
		took := 0.012 + text*3e-6*math.Exp(own*r.NormFloat64())
		for _, h := range list {
			took += x.seconds[h]
		}
		x.total += took
		took *= 1 + noise*r.NormFloat64()
		x.l.Files = append(x.l.Files, journal.File{Name: fmt.Sprintf("/w/u%d.c", u), Size: uint64(text)})
		x.l.Compiles = append(x.l.Compiles, journal.Compile{Ended: time.Unix(int64(u), 0), OK: true, Exact: true,
			Source: fmt.Sprintf("/w/u%d.c", u), CPU: time.Duration(took * 1e9), Reads: append(slices.Clone(list), uint32(len(x.l.Files)-1))})
	}
	return x
}

// number returns a header's number.
func (x *tree) number(name string) (h int) {
	if _, err := fmt.Sscanf(name, "/w/h%d.h", &h); err != nil {
		panic(err)
	}
	return h
}

// instantiate makes a tenth of the headers ones of templates, which most units that read them use: that takes up to five times as long as
// reading them.
func (x *tree) instantiate() {
	used := make([]float64, len(x.seconds)) // the share of units that do
	for h := range x.seconds {
		if h%10 == 3 {
			used[h] = 0.5 + x.random.Float64()/2
		}
	}
	for u, list := range x.reads {
		for _, h := range list {
			if x.random.Float64() < used[h] {
				took := x.seconds[h] * (1 + 4*x.random.Float64())
				x.used[h] += took
				x.total += took
				x.l.Compiles[u].CPU += time.Duration(took * 1e9)
			}
		}
	}
}

// TestKnownCosts: what is reported of headers that cost more than 1 % is within 10 % of the truth, as long as units tell enough of
// them, also where much of it are templates that most units use. Where they do not, because code of the same length takes anything
// from half to twice as long or there are more headers than units, the errors that are named hold. Text and edits are as they are.
func TestKnownCosts(t *testing.T) {
	for _, x := range []struct {
		headers, units, includes int
		own, noise               float64
		templates                bool
		bound                    float64 // as a share
	}{{50, 300, 5, 0.1, 0.02, false, 0.1}, {300, 1500, 10, 0.1, 0.02, false, 0.1}, {50, 3000, 5, 0.1, 0.02, true, 0.1}, {300, 3000, 10, 0.1, 0.02, true, 0.1}, {50, 3000, 5, 0.5, 0.05, true, 0.1},
		{50, 300, 5, 0.5, 0.05, false, 1}, {1000, 500, 10, 0.3, 0.02, false, 1}, {50, 300, 5, 0.5, 0.05, true, 1}} {
		name := fmt.Sprintf("%d headers of %d units that scatter by %.0f %%", x.headers, x.units, 100*x.own)
		if x.templates {
			name += ", and templates"
		}
		t.Run(name, func(t *testing.T) {
			tree := grow(x.headers, x.units, x.includes, x.own, x.noise)
			if x.templates {
				tree.instantiate()
			}
			knownCosts(t, tree, x.bound)
		})
	}
}

func knownCosts(t *testing.T, x *tree, bound float64) {
	r := Of(&x.l, nil)
	if n := len(x.reads); len(r.Units) != n || r.Known != n {
		t.Fatalf("%d units, %d known", len(r.Units), r.Known)
	}
	checked, held, worst := 0, 0, 0.0
	for _, h := range r.Headers {
		truth, text, touch, units := x.truth(&h), uint64(0), time.Duration(0), 0
		for u, list := range x.reads {
			if _, reads := slices.BinarySearch(list, uint32(x.number(h.Name()))); reads {
				units++
				touch += x.l.Compiles[u].CPU
			}
		}
		for _, f := range h.Files {
			text += f.Size * uint64(units)
		}
		if h.Touch != touch || h.Text != text || h.Units != units {
			t.Errorf("%s: touch %v, want %v; text %d, want %d; %d units, want %d", h.Name(), h.Touch, touch, h.Text, text, h.Units, units)
		}
		if truth < x.total/100 {
			continue
		}
		checked++
		off := math.Abs(h.CPU.Seconds() - truth)
		worst = max(worst, off/truth)
		if off <= h.Error.Seconds() {
			held++
		}
		if off > bound*truth {
			t.Errorf("%s and %d more, read by %d: %.2f s ± %.2f, in truth %.2f", h.Name(), len(h.Files)-1, h.Units, h.CPU.Seconds(), h.Error.Seconds(), truth)
		}
	}
	// What one module, or a precompiled header of five, would save.
	once, saves := r.Once(5), 0.0
	for i, o := range once.Headers {
		h := &r.Headers[slices.IndexFunc(r.Headers, func(h Header) bool { return h.Name() == o.Name })]
		truth := x.truth(h) * (1 - 1/float64(h.Units))
		if saves += truth; i == 0 && math.Abs(o.Saves.Seconds()-truth) > bound*truth {
			t.Errorf("a module of %s is said to save %v, in truth %.2f s", o.Name, o.Saves, truth)
		}
	}
	if off := math.Abs(once.Saves.Seconds()/saves - 1); len(once.Headers) != 5 || off > bound {
		t.Errorf("a precompiled header of %d is said to save %v, in truth %.2f s", len(once.Headers), once.Saves, saves)
	}
	t.Logf("%d headers cost more than 1 %%: off by %.1f %% at most, %d within the error named; the model is off by %.1f %% for a unit", checked, 100*worst, held, 100*r.Fit.Error)
	if checked < 5 || held < checked*8/10 {
		t.Errorf("of %d headers that cost more than 1 %%, %d are within their errors", checked, held)
	}
	if bound < 1 && (r.Fit.Error < 0 || r.Fit.Error > bound) {
		t.Errorf("the model is off by %.1f %%", 100*r.Fit.Error)
	}
}
