package costs

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// The model: a unit takes
//
//	start + rate × its own text + the sum of what its headers take
//
// where a header takes the same in each unit that reads it. Units are many and differ in what they read, so this can be solved for
// what headers take; but not for all of them, as some are read together nearly always. So the model begins with a belief, that a header takes
// as long as its text is long, which it leaves only as far as the times of units say otherwise (a ridge regression, or the
// most likely values with normal priors). Nothing takes less than no time.
//
// How far a unit's time is from that is taken for chance, of two kinds, which are estimated from the units: one in proportion to its own text,
// as code of the same length can be little work or much, and one in proportion to its time, from how it was measured. So units
// with little text of their own tell most of headers.

// Fit says how well the model describes the units.
type Fit struct {
	Start time.Duration `json:"start_ns"` // what each compile takes before it has read anything
	// PerMB is what a MB (10^6 bytes) of a unit's own text takes, and HeaderPerMB what one of a header takes where nothing else is known.
	PerMB       time.Duration `json:"per_mb_ns"`
	HeaderPerMB time.Duration `json:"header_per_mb_ns"`
	// Error is the median of how far the model is off for a unit that it was not fitted to, as a share of what that takes;
	// negative: there are too few units to say.
	Error float64 `json:"error"`
}

const (
	startMean, startScatter = 0.01, 0.01 // seconds: gcc and clang take 5 to 20 ms for an empty file
	scatterOfHeaders        = 3          // by how much a header may take longer than its text says, in parts of that
	scatterOfUnits          = 0.05       // or at least, in parts of what a unit takes on average: little text can bring about much work
	scatterOfRate           = 3
	folds                   = 5   // parts of units, each of which is left out once
	leastUnits              = 20  // for a word on the error
	mostSteps               = 200 // of solve
	mostHeld                = 8   // times that values below zero are held, before what is left of them is cut
	rounds                  = 3   // of estimates of the noise
	leastTouch              = 5e-4
	closely, roughly        = 1e-12, 1e-6 // when solve ends, as a share of the square of the first distance
	workForErrors           = 3e8         // multiplications for the errors of headers, at most about
	mostErrors              = 100         // headers whose error is worked out, at most
)

// model is what is fitted. Its values are in seconds. The columns are the headers, then the rate, then the start.
type model struct {
	took    []float64 // by unit
	own     []float64 // text of its own, by unit
	rows    [][]int32 // headers of a unit
	size    []float64 // of a header: mean over units
	count   []float64 // units of a header
	mean    []float64 // what is believed of a column at first
	spread  []float64 // how far it may be from that
	weight  []float64 // by unit: one over the variance of its time
	settled []float64 // by unit: what headers take that are no longer in its row
}

func newModel(units, headers int) *model {
	return &model{took: make([]float64, units), own: make([]float64, units), rows: make([][]int32, units), weight: make([]float64, units), settled: make([]float64, units),
		size: make([]float64, headers), count: make([]float64, headers), mean: make([]float64, headers+2), spread: make([]float64, headers+2)}
}

// add says that unit reads so many bytes of a header.
func (m *model) add(unit, header int, size float64) {
	m.rows[unit] = append(m.rows[unit], int32(header))
	m.count[header]++
	m.size[header] += (size - m.size[header]) / m.count[header]
}

// unit says what a unit took, and how much text it has itself.
func (m *model) unit(i int, took, own float64) { m.took[i], m.own[i] = took, own }

// fit sets what headers cost, and returns the rest.
func (m *model) fit(headers []Header) Fit {
	f := Fit{Error: -1}
	units := len(m.took)
	if units == 0 {
		return f
	}
	for _, row := range m.rows {
		slices.Sort(row) // so that equal units give equal sums
	}
	m.believe()
	m.settle()
	all := make([]bool, units)
	var values []float64
	for range rounds {
		values = m.solve(all, values)
		m.weigh(values)
	}
	n := len(headers)
	f.Start, f.PerMB = seconds(values[n+1]), seconds(values[n]*1e6)
	f.HeaderPerMB = seconds(m.rate() * 1e6)
	order := make([]int, n)
	for i := range headers {
		order[i] = i
		headers[i].CPU = seconds(values[i] * m.count[i])
	}
	if units >= leastUnits {
		f.Error = m.foreign(values)
		slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(headers[b].CPU, headers[a].CPU), cmp.Compare(a, b)) })
		work := 0
		for _, row := range m.rows {
			work += 2 * len(row)
		}
		for _, i := range order[:min(n, mostErrors, max(10, int(workForErrors)/(1+work*mostSteps/3)))] {
			headers[i].Error = seconds(2 * m.doubt(i) * m.count[i])
		}
	}
	return f
}

func seconds(s float64) time.Duration {
	return time.Duration(min(max(s, 0), math.MaxInt64/1e10) * float64(time.Second))
}

// rate returns what a byte of a header is believed to take.
func (m *model) rate() float64 {
	for i, size := range m.size {
		if size > 0 {
			return m.mean[i] / size
		}
	}
	return 0
}

// believe sets what is believed before the units are looked at one by one: what a byte takes, by all units together.
func (m *model) believe() {
	mean := 0.0
	for _, t := range m.took {
		mean += t / float64(len(m.took))
	}
	for i, t := range m.took {
		m.weight[i] = 1 / max(t*t, mean*mean/100)
	}
	var oo, oh, hh, ot, ht, text, took float64 // sums of products: o own text, h that of headers, t time
	for i, t := range m.took {
		h := 0.0
		for _, g := range m.rows[i] {
			h += m.size[g]
		}
		o, t, w := m.own[i], max(t-startMean, 0), m.weight[i]
		oo, oh, hh, ot, ht = oo+w*o*o, oh+w*o*h, hh+w*h*h, ot+w*o*t, ht+w*h*t
		text, took = text+o+h, took+t
	}
	even := took / max(text, 1) // if all text took the same
	own, header := even, even
	if det := oo*hh - oh*oh; det > 1e-9*oo*hh {
		own, header = (ot*hh-ht*oh)/det, (ht*oo-ot*oh)/det
	}
	if own <= 0 || header <= 0 {
		own, header = even, even
	}
	n := len(m.size)
	for i, size := range m.size {
		m.mean[i] = header * size
		m.spread[i] = max(scatterOfHeaders*m.mean[i], scatterOfUnits*mean)
		if m.count[i] == 1 { // what is particular to a unit is as likely its own
			m.spread[i] = m.mean[i]/10 + 1e-9
		}
	}
	m.mean[n], m.spread[n] = own, scatterOfRate*own
	m.mean[n+1], m.spread[n+1] = startMean, startScatter
	m.weigh(m.mean)
}

// settle takes headers as they are believed to be if all units that read them take less than leastTouch of all time together: they cannot
// matter much, and there may be tens of thousands of them.
func (m *model) settle() {
	touch := make([]float64, len(m.size))
	total := 0.0
	for i, row := range m.rows {
		total += m.took[i]
		for _, g := range row {
			touch[g] += m.took[i]
		}
	}
	for i, row := range m.rows {
		m.rows[i] = slices.DeleteFunc(row, func(g int32) bool {
			small := touch[g] < leastTouch*total
			if small {
				m.settled[i] += m.mean[g]
			}
			return small
		})
	}
}

// predict returns what a unit takes by values.
func (m *model) predict(i int, values []float64) float64 {
	n := len(m.size)
	t := m.settled[i] + values[n]*m.own[i] + values[n+1]
	for _, g := range m.rows[i] {
		t += values[g]
	}
	return t
}

// leastNoise is the least scatter of a unit's time, as a share of it.
const leastNoise = 0.002

// weigh sets the weights of units by how far they are from values.
func (m *model) weigh(values []float64) {
	// Each value that the units have settled has taken a part of the chance away.
	settled := 0.0
	precision := make([]float64, len(m.size))
	for i, row := range m.rows {
		for _, g := range row {
			precision[g] += m.weight[i]
		}
	}
	for g, p := range precision {
		s := p * m.spread[g] * m.spread[g]
		settled += s / (1 + s)
	}
	units := float64(len(m.took))
	lost := units / max(units-settled, units/4)
	// The squares of the distances are sums of two parts, own text and time squared. A square is off by as much as it is expected to be, so
	// this takes the weights of before.
	var oo, ot, tt, od, td float64
	for i, t := range m.took {
		d := t - m.predict(i, values)
		o, t, w := m.own[i]*m.own[i], t*t, m.weight[i]*m.weight[i]
		d *= d * lost
		oo, ot, tt, od, td = oo+w*o*o, ot+w*o*t, tt+w*t*t, od+w*o*d, td+w*t*d
	}
	own, time := 0.0, td/tt
	if det := oo*tt - ot*ot; det > 1e-9*oo*tt {
		own, time = (od*tt-td*ot)/det, (td*oo-od*ot)/det
	}
	switch {
	case own < 0:
		own, time = 0, td/tt
	case time < 0:
		own, time = od/oo, 0
	}
	time = max(time, leastNoise*leastNoise)
	for i, t := range m.took {
		m.weight[i] = 1 / (own*m.own[i]*m.own[i] + time*t*t)
	}
}

// foreign returns the median of how far the model is off for units that it was not fitted to.
func (m *model) foreign(values []float64) float64 {
	var off []float64
	for fold := range folds {
		left := make([]bool, len(m.took))
		for i := range left {
			left[i] = scatter(uint64(i))%folds == uint64(fold)
		}
		v := m.solve(left, values)
		for i, is := range left {
			if is {
				off = append(off, math.Abs(m.predict(i, v)/m.took[i]-1))
			}
		}
	}
	slices.Sort(off)
	return off[len(off)/2]
}

// solve returns the values that describe units best, without those that are left out. It begins at from, if that is not nil.
func (m *model) solve(left []bool, from []float64) []float64 {
	n := len(m.mean)
	x := make([]float64, n) // how far a value is from what was believed, in parts of its spread
	for i := range from {
		x[i] = (from[i] - m.mean[i]) / m.spread[i]
	}
	held := make([]bool, n) // at zero, as it would be less otherwise
	target := make([]float64, len(m.took))
	for round := 0; ; round++ {
		for i, t := range m.took {
			target[i] = t - m.predict(i, m.mean)
		}
		s := &system{m: m, left: left, held: held}
		b := make([]float64, n)
		rest := make([]float64, len(target))
		s.times(x, rest)
		for i := range rest {
			rest[i] = (target[i] - rest[i]) * m.weight[i]
		}
		s.back(rest, b)
		for j := range b {
			if b[j] -= x[j]; held[j] {
				b[j] = 0
			}
		}
		d := s.solve(b, closely)
		more := false
		for j := range x {
			if x[j] += d[j]; !held[j] && m.mean[j]+x[j]*m.spread[j] < 0 {
				x[j], held[j], more = -m.mean[j]/m.spread[j], true, true
			}
		}
		if !more || round == mostHeld {
			break
		}
	}
	for j := range x {
		x[j] = m.mean[j] + x[j]*m.spread[j]
	}
	return x
}

// doubt returns the standard deviation of a column's value, given the units and what was believed.
func (m *model) doubt(column int) float64 {
	s := &system{m: m, left: make([]bool, len(m.took)), held: make([]bool, len(m.mean))}
	b := make([]float64, len(m.mean))
	b[column] = 1
	return math.Sqrt(max(s.solve(b, roughly)[column], 0)) * m.spread[column]
}

// system is the system of linear equations (AᵀWA + 1) x = b, where A has a row for each unit that is not left out, in
// parts of the spreads. Columns that are held have no part in it.
type system struct {
	m          *model
	left, held []bool
}

// times sets y to A x.
func (s *system) times(x, y []float64) {
	m, n := s.m, len(s.m.size)
	for i, row := range m.rows {
		if s.left[i] {
			y[i] = 0
			continue
		}
		t := x[n]*m.spread[n]*m.own[i] + x[n+1]*m.spread[n+1]
		for _, g := range row {
			t += x[g] * m.spread[g]
		}
		y[i] = t
	}
}

// back sets x to Aᵀ y.
func (s *system) back(y, x []float64) {
	m, n := s.m, len(s.m.size)
	clear(x)
	for i, row := range m.rows {
		if s.left[i] {
			continue
		}
		for _, g := range row {
			x[g] += y[i]
		}
		x[n] += y[i] * m.own[i]
		x[n+1] += y[i]
	}
	for j := range x {
		if x[j] *= m.spread[j]; s.held[j] {
			x[j] = 0
		}
	}
}

// solve solves the system by conjugate gradients, with its diagonal as preconditioner, until the square of the distance is enough of what it
// was.
func (s *system) solve(b []float64, enough float64) []float64 {
	m, n := s.m, len(b)
	x, r := make([]float64, n), slices.Clone(b)
	diagonal := make([]float64, n)
	for i, row := range m.rows {
		if !s.left[i] {
			w := m.weight[i]
			for _, g := range row {
				diagonal[g] += w
			}
			diagonal[n-2] += w * m.own[i] * m.own[i]
			diagonal[n-1] += w
		}
	}
	z := make([]float64, n)
	condition := func() (rz float64) {
		for j := range z {
			z[j] = r[j] / diagonal[j]
			rz += r[j] * z[j]
		}
		return rz
	}
	for j := range diagonal {
		diagonal[j] = 1 + diagonal[j]*m.spread[j]*m.spread[j]
	}
	rz := condition()
	enough *= rz
	p := slices.Clone(z)
	y, q := make([]float64, len(m.took)), make([]float64, n)
	for step := 0; step < mostSteps && rz > enough; step++ {
		s.times(p, y)
		for i := range y {
			y[i] *= m.weight[i]
		}
		s.back(y, q)
		pq := 0.0
		for j := range q {
			q[j] += p[j]
			pq += p[j] * q[j]
		}
		alpha := rz / pq
		for j := range x {
			x[j] += alpha * p[j]
			r[j] -= alpha * q[j]
		}
		was := rz
		rz = condition()
		for j := range p {
			p[j] = z[j] + rz/was*p[j]
		}
	}
	return x
}
