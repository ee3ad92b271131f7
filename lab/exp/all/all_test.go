package all

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/lab/exp"
)

const root = "../../.."

// TestDescribed: each experiment has what list, document and results need, and names files that are there.
func TestDescribed(t *testing.T) {
	ids, names := make(map[string]bool), make(map[string]bool)
	doc, err := os.ReadFile(filepath.Join(root, "lab/experiments.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Experiments {
		if ids[e.ID] || names[e.Name] || Find(e.ID) != e || Find(e.Name) != e {
			t.Errorf("%s %s: ID or name stands twice", e.ID, e.Name)
		}
		ids[e.ID], names[e.Name] = true, true
		if !exp.HasPart(doc, e.ID) || !strings.Contains(string(doc), "\n## "+e.ID+", ") {
			t.Errorf("lab/experiments.md has no section ## %s, NAME with the marks of make exp", e.ID)
		}
		for _, size := range []exp.Size{exp.Tiny, exp.CI, exp.Full} {
			for _, a := range e.Axes(size) {
				for _, l := range a.Levels {
					if strings.ContainsAny(l, " =|") || l == "" {
						t.Errorf("%s: level %q of %s", e.ID, l, a.Name)
					}
				}
			}
			if len(e.Cells(size)) < 2 || e.Rounds(size) < 1 || size != exp.Tiny && e.Rounds(size) < 5 {
				t.Errorf("%s, %s: %d cells, %d rounds", e.ID, size, len(e.Cells(size)), e.Rounds(size))
			}
		}
		for _, v := range e.Views {
			if !slices.ContainsFunc(e.Metrics, func(m exp.Metric) bool { return m.Name == v.Metric }) {
				t.Errorf("%s: view %q of no metric", e.ID, v.Title)
			}
			if axes := e.Axes(exp.CI); !slices.ContainsFunc(axes, func(a exp.Axis) bool { return a.Name == v.X }) {
				t.Errorf("%s: view %q over no axis", e.ID, v.Title)
			}
		}
		if len(e.Defaults) == 0 {
			t.Errorf("%s speaks about no default", e.ID)
		}
		for _, d := range e.Defaults {
			text, err := os.ReadFile(filepath.Join(root, d.Where))
			if err != nil {
				t.Errorf("%s: %v", e.ID, err)
			} else if !regexp.MustCompile(`\b` + e.ID + `\b`).Match(text) {
				t.Errorf("%s does not point at %s, which speaks about its default", d.Where, e.ID)
			}
		}
	}
}

// world makes up samples: a value for each cell from factors of its levels, and perhaps a slope along an axis of
// numbers that differs from level to level of another one, so that lines cross.
type world struct {
	factor map[string]float64 // "axis=level"
	noise  float64            // 0: each round has the same values

	slopeAxis, along string
	slope            map[string]float64
	pivot            float64
}

func newWorld(rng *rand.Rand, e *exp.Experiment) *world {
	w := &world{factor: make(map[string]float64), slope: make(map[string]float64)}
	w.noise = []float64{0, 0, 0, 1}[rng.IntN(4)]
	scale := math.Pow(10, rng.Float64()*8-4)
	axes := e.Axes(exp.CI)
	for _, a := range axes {
		base := []float64{1, 1, 1.03, 3, 30}[rng.IntN(5)]
		for i, k := range rng.Perm(len(a.Levels)) {
			w.factor[a.Name+"="+a.Levels[i]] = math.Pow(base, float64(k))
		}
	}
	for level := range w.factor {
		if strings.HasPrefix(level, axes[0].Name+"=") {
			w.factor[level] *= scale
		}
	}
	a, b := axes[rng.IntN(len(axes))], axes[rng.IntN(len(axes))]
	if a.Name != b.Name && rng.IntN(2) == 0 {
		w.slopeAxis, w.along, w.pivot = a.Name, b.Name, math.Pow(10, 1+rng.Float64()*7)
		for _, l := range a.Levels {
			w.slope[l] = float64(rng.IntN(2)) * 0.8
		}
	}
	return w
}

func (w *world) value(rng *rand.Rand, c exp.Cell) float64 {
	v := 1.0
	for axis, level := range c {
		v *= w.factor[axis+"="+level]
	}
	if n := c.Number(w.along); w.slopeAxis != "" && n > 0 {
		v *= math.Pow(float64(n)/w.pivot, w.slope[c[w.slopeAxis]])
	}
	return v * math.Exp(w.noise*rng.NormFloat64())
}

// results returns made-up results of a world. Each metric is the same: a claim is about one at a time.
func (w *world) results(rng *rand.Rand, e *exp.Experiment, cells []exp.Cell) *exp.Results {
	r := exp.NewResults(e, exp.Header{Size: exp.CI, Cores: 1024})
	for _, c := range cells {
		v := w.value(rng, c)
		for round := range 4 {
			if w.noise > 0 {
				v = w.value(rng, c)
			}
			values := make(exp.Values)
			for _, m := range e.Metrics {
				values[m.Name] = v
			}
			r.Add(exp.Sample{Cell: c, Round: round, Values: values})
		}
	}
	return r
}

// TestClaimsCanBeJudged: made-up samples make each claim hold, fail, and be undecided.
func TestClaimsCanBeJudged(t *testing.T) {
	const worlds = 6000
	for _, e := range Experiments {
		rng := rand.New(rand.NewPCG(7, 7))
		cells := e.Cells(exp.CI)
		missing := make(map[string]map[exp.Word]bool)
		for _, p := range e.Claims {
			missing[p.Claim] = map[exp.Word]bool{exp.Holds: true, exp.Fails: true, exp.NotHere: true}
		}
		for range worlds {
			if len(missing) == 0 {
				break
			}
			r := newWorld(rng, e).results(rng, e, cells)
			for _, p := range e.Claims {
				if left := missing[p.Claim]; left != nil {
					if delete(left, p.Verdict(r).Word); len(left) == 0 {
						delete(missing, p.Claim)
					}
				}
			}
		}
		for claim, words := range missing {
			t.Errorf("%s, %s: no samples of %d make it %v", e.ID, claim, worlds, slices.Collect(maps.Keys(words)))
		}
	}
}
