package exp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
)

// Results are the samples of one run.
type Results struct {
	Header Header
	of     *Experiment
	order  []string // keys of cells as they came
	cells  map[string]*measured
}

// measured is what is known of one cell.
type measured struct {
	cell   Cell
	values map[string][]at // by metric
	untold string
}

// at is a value and the round that it is from.
type at struct {
	round int
	v     float64
}

// Interval is a median and the 95 % interval of it.
type Interval struct {
	Median float64 `json:"median"`
	Lo     float64 `json:"lo"`
	Hi     float64 `json:"hi"`
	N      int     `json:"n"` // samples; 0: nothing was measured
}

// NewResults returns empty results.
func NewResults(e *Experiment, h Header) *Results {
	return &Results{Header: h, of: e, cells: make(map[string]*measured)}
}

// Read reads what Run wrote as Raw. find returns the experiment with an ID, or nil.
func Read(in io.Reader, find func(id string) *Experiment) (*Results, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	var r *Results
	for n := 1; lines.Scan(); n++ {
		if r == nil {
			var h Header
			if err := json.Unmarshal(lines.Bytes(), &h); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			e := find(h.Experiment)
			if e == nil {
				return nil, fmt.Errorf("line %d: no experiment %q", n, h.Experiment)
			}
			r = NewResults(e, h)
			continue
		}
		var s Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		r.Add(s)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if r == nil {
		return nil, io.ErrUnexpectedEOF
	}
	return r, nil
}

// Add adds a sample.
func (r *Results) Add(s Sample) {
	key := s.Cell.Key()
	m := r.cells[key]
	if m == nil {
		m = &measured{cell: s.Cell, values: make(map[string][]at)}
		r.cells[key] = m
		r.order = append(r.order, key)
	}
	if s.Untold != "" {
		m.untold = s.Untold
	}
	for name, v := range s.Values {
		m.values[name] = append(m.values[name], at{s.Round, v})
	}
}

// Of returns a metric of a cell.
func (r *Results) Of(c Cell, metric string) Interval {
	m := r.cells[c.Key()]
	if m == nil {
		return Interval{}
	}
	var v []float64
	for _, a := range m.values[metric] {
		v = append(v, a.v)
	}
	return summarise(v)
}

// Ratio returns a's metric over b's, round by round: what slowed a whole round is in both.
func (r *Results) Ratio(a, b Cell, metric string) Interval {
	ma, mb := r.cells[a.Key()], r.cells[b.Key()]
	if ma == nil || mb == nil {
		return Interval{}
	}
	other := make(map[int]float64)
	for _, y := range mb.values[metric] {
		other[y.round] = y.v
	}
	var v []float64
	for _, x := range ma.values[metric] {
		if y, ok := other[x.round]; ok && y > 0 {
			v = append(v, x.v/y)
		}
	}
	return summarise(v)
}

// untold returns why a cell has no values.
func (r *Results) untold(c Cell) string {
	switch m := r.cells[c.Key()]; {
	case m == nil:
		return c.Key() + " is not measured at this size"
	default:
		return m.untold
	}
}

// resamples is how often the bootstrap draws: with some ten samples the interval's ends are samples, or lie between two,
// and more draws find the same ones.
const resamples = 400

// summarise returns the median of v and the 95 % interval of it by bootstrap: the same for the same values.
func summarise(v []float64) Interval {
	if len(v) == 0 {
		return Interval{}
	}
	i := Interval{Median: Quantile(v, 0.5), N: len(v)}
	rng := rand.New(rand.NewPCG(1, uint64(len(v))))
	medians, draw := make([]float64, resamples), make([]float64, len(v))
	for k := range medians {
		for j := range draw {
			draw[j] = v[rng.IntN(len(v))]
		}
		medians[k] = Quantile(draw, 0.5)
	}
	i.Lo, i.Hi = Quantile(medians, 0.025), Quantile(medians, 0.975)
	return i
}

// Quantile returns the value below which the part q of v lies, between two of them if need be. v is
// not changed.
func Quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 >= len(s) {
		return s[len(s)-1]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
