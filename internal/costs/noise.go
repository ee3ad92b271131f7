package costs

import "math"

// Kinds of chance in a unit's time.
const (
	byOwn     = iota // in proportion to its own text: code of the same length can be little work or much
	byTime           // in proportion to its time: how it was measured
	byHeaders        // in proportion to what each of its headers takes: one unit uses its templates, another one does not
	kinds
)

// chance returns, by unit, the square of what each kind of chance is in proportion to. A unit's time is the one that values predict: one
// that took longer than that by chance must not count for less than one that took as much shorter.
func (m *model) chance(values []float64) [][kinds]float64 {
	n := len(m.header)
	squares := make([]float64, len(values))
	for c, v := range values[:n] {
		squares[c] = v * v
	}
	base, predicted := m.base(squares), m.predict(values)
	parts := make([][kinds]float64, len(m.took))
	for i, own := range m.own {
		t := max(predicted[i], startMean/2)
		parts[i] = [kinds]float64{byOwn: own * own, byTime: t * t, byHeaders: max(m.headers(i, squares, base), 0)}
	}
	return parts
}

// normal are the normal equations of a weighted least-squares problem.
type normal struct {
	a [kinds][kinds]float64
	b [kinds]float64
}

// add adds an equation: parts, each times its share, are value.
func (n *normal) add(parts [kinds]float64, value, weight float64) {
	for j, p := range parts {
		for k, q := range parts {
			n.a[j][k] += weight * p * q
		}
		n.b[j] += weight * p * value
	}
}

// solve returns the shares, none of which is negative, by coordinate descent.
func (n *normal) solve() (share [kinds]float64) {
	const most = 1000
	for range most {
		moved := 0.0
		for j := range share {
			if n.a[j][j] == 0 {
				continue
			}
			rest := n.b[j]
			for k, v := range share {
				rest -= n.a[j][k] * v
			}
			to := max(share[j]+rest/n.a[j][j], 0)
			moved = max(moved, math.Abs(to-share[j])/max(to, share[j], math.SmallestNonzeroFloat64))
			share[j] = to
		}
		if moved < 1e-6 {
			break
		}
	}
	return share
}
