package costs

import (
	"math"
	"slices"
)

// solve returns the values that describe units best, without those that are left out; nil: none is. It begins at from, if that is not nil, and
// ends when the square of the distance is enough of what it would be from what was believed.
func (m *model) solve(left []bool, from []float64, enough float64) []float64 {
	n := len(m.mean)
	x := make([]float64, n) // how far a value is from what was believed, in parts of its spread
	for i := range from {
		x[i] = (from[i] - m.mean[i]) / m.spread[i]
	}
	s := m.system(left)
	far := m.predict(m.mean) // how far units are from what was believed
	for i, t := range m.took {
		far[i] = t - far[i]
	}
	atFirst := make([]float64, n)
	s.residual(make([]float64, n), far, atFirst)
	enough *= s.distance(atFirst)
	b := make([]float64, n)
	for round := 0; ; round++ {
		s.residual(x, far, b)
		d := s.solve(b, enough)
		more := false
		for j := range x {
			if x[j] += d[j]; !s.held[j] && m.mean[j]+x[j]*m.spread[j] < 0 {
				x[j], s.held[j], more = -m.mean[j]/m.spread[j], true, true
			}
		}
		if !more || round == mostHeld {
			break
		}
	}
	for j := range x {
		x[j] = max(m.mean[j]+x[j]*m.spread[j], 0)
	}
	return x
}

// doubt returns the standard deviation of a column's value, given the units, of which s leaves out none, and what was believed.
func (m *model) doubt(s *system, column int) float64 {
	b := make([]float64, len(m.mean))
	b[column] = 1
	return math.Sqrt(max(s.solve(b, roughly*s.distance(b))[column], 0)) * m.spread[column]
}

// system is the system of linear equations (AᵀWA + 1) x = b, where A has a row for each unit that is not left out, in
// parts of the spreads. Columns that are held at zero, as they would be less otherwise, have no part in it.
type system struct {
	m      *model
	weight []float64 // by unit; 0: it is left out
	held   []bool
	near   *near     // to its inverse
	scaled []float64 // scratch, by column
}

// system returns the system of the units that are not left out; nil: of all. One with all has to be the first one after the weights have changed.
func (m *model) system(left []bool) *system {
	n := len(m.mean)
	s := &system{m: m, weight: m.weight, held: make([]bool, n), scaled: make([]float64, n)}
	if left == nil {
		m.near = newNear(m)
	} else {
		s.weight = slices.Clone(m.weight)
		for i, is := range left {
			if is {
				s.weight[i] = 0
			}
		}
	}
	s.near = m.near // with a few units more or less, it is near enough
	return s
}

// residual sets b to what is left of the right side at x: Aᵀ W (far - A x) - x.
func (s *system) residual(x, far, b []float64) {
	s.apply(x, far, b)
	for j := range b {
		if b[j] = -b[j] - x[j]; s.held[j] {
			b[j] = 0
		}
	}
}

// apply sets q to Aᵀ W (A x - far), where far is 0 if it is nil. Each row is in the processor's cache once.
func (s *system) apply(x, far, q []float64) {
	m, n := s.m, len(s.m.header)
	for j := range x {
		s.scaled[j] = x[j] * m.spread[j]
	}
	scaled := s.scaled
	base, sum := m.base(scaled), 0.0
	clear(q)
	for i, w := range s.weight {
		if w == 0 {
			continue
		}
		t := scaled[n]*m.own[i] + scaled[n+1] + m.headers(i, scaled, base)
		if far != nil {
			t -= far[i]
		}
		t *= w
		sum += t
		for _, c := range m.rows[i] {
			q[c] += t
		}
		for _, c := range m.lacks[i] {
			q[c] -= t
		}
		q[n] += t * m.own[i]
		q[n+1] += t
	}
	for _, c := range m.common {
		q[c] += sum
	}
	for j := range q {
		if q[j] *= m.spread[j]; s.held[j] {
			q[j] = 0
		}
	}
}

// distance returns the square of how long b is, as solve measures it.
func (s *system) distance(b []float64) (d float64) {
	z := make([]float64, len(b))
	s.near.solve(b, s.held, z)
	for j, v := range b {
		d += v * z[j]
	}
	return d
}

// solve solves the system by preconditioned conjugate gradients, until the square of the distance is enough.
func (s *system) solve(b []float64, enough float64) []float64 {
	n := len(b)
	x, r, z, q := make([]float64, n), slices.Clone(b), make([]float64, n), make([]float64, n)
	condition := func() (rz float64) {
		s.near.solve(r, s.held, z)
		for j, v := range r {
			rz += v * z[j]
		}
		return rz
	}
	rz := condition()
	p := slices.Clone(z)
	for step := 0; step < mostSteps && rz > enough; step++ {
		s.apply(p, nil, q)
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
