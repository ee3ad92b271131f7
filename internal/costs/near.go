package costs

import (
	"math"
	"slices"
)

// mostDense bounds the columns that near solves exactly: what that takes grows with their cube.
const mostDense = 300

// near solves a system nearly as that of all units, as a preconditioner: without what columns have to do with each other, but for
// those of which that is most, of the headers that most units read, and the last two.
type near struct {
	diagonal []float64
	dense    []int32     // columns
	factor   [][]float64 // of their part of the system, the lower triangle: factor × factorᵀ is that
	scratch  []float64
}

func newNear(m *model) *near {
	n := len(m.mean)
	x := &near{diagonal: make([]float64, n)}
	weighted := make([]float64, len(m.took)) // own text
	var all, own, squares float64
	for i, w := range m.weight {
		weighted[i] = w * m.own[i]
		all, own, squares = all+w, own+weighted[i], squares+weighted[i]*m.own[i]
	}
	with := make([]float64, n) // by column: weighted text of the units that have it
	m.spreadTo(x.diagonal, m.weight)
	m.spreadTo(with, weighted)
	x.diagonal[n-2], x.diagonal[n-1] = squares, all

	common := slices.Clone(m.common)
	slices.SortStableFunc(common, func(a, b int32) int { return int(m.count[m.header[b]] - m.count[m.header[a]]) })
	common = common[:min(len(common), mostDense)]
	k := len(common)
	x.dense = append(common, int32(n-2), int32(n-1))
	x.factor, x.scratch = make([][]float64, k+2), make([]float64, k+2)
	for a := range x.factor {
		x.factor[a] = make([]float64, a+1)
	}
	// Units that have two columns are all, without those that lack one, and those that lack both have been taken away twice.
	m.lackBoth(common, x.factor)
	for a, c := range common {
		for b, d := range common[:a+1] {
			x.factor[a][b] += x.diagonal[c] + x.diagonal[d] - all
		}
		x.factor[k][a], x.factor[k+1][a] = with[c], x.diagonal[c]
	}
	x.factor[k][k], x.factor[k+1][k], x.factor[k+1][k+1] = squares, own, all
	for a, c := range x.dense {
		for b, d := range x.dense[:a+1] {
			x.factor[a][b] *= m.spread[c] * m.spread[d]
		}
		x.factor[a][a]++
	}
	for j, spread := range m.spread {
		x.diagonal[j] = 1 + x.diagonal[j]*spread*spread
	}
	cholesky(x.factor)
	return x
}

// lackBoth adds to the lower triangle of sums the weights of the units that lack two of the columns.
func (m *model) lackBoth(columns []int32, sums [][]float64) {
	at := make([]int32, len(m.header))
	for i := range at {
		at[i] = -1
	}
	for i, c := range columns {
		at[c] = int32(i)
	}
	var lacks []int32
	for i, list := range m.lacks {
		lacks = lacks[:0]
		for _, c := range list {
			if at[c] >= 0 {
				lacks = append(lacks, at[c])
			}
		}
		slices.Sort(lacks)
		for a, x := range lacks {
			row := sums[x]
			for _, y := range lacks[:a+1] {
				row[y] += m.weight[i]
			}
		}
	}
}

// cholesky replaces the lower triangle of a matrix, whose values on the diagonal are 1 and more larger than those of one without negative
// eigenvalues, by its factor.
func cholesky(a [][]float64) {
	for i, row := range a {
		for j := range i + 1 {
			sum := row[j]
			for k, v := range a[j][:j] {
				sum -= row[k] * v
			}
			if i == j {
				row[i] = math.Sqrt(max(sum, 0.5)) // less than 1 comes from rounding alone
			} else {
				row[j] = sum / a[j][j]
			}
		}
	}
}

// solve sets z to what nearly solves the system for r. Columns that are held are 0.
func (x *near) solve(r []float64, held []bool, z []float64) {
	for j, v := range r {
		z[j] = v / x.diagonal[j]
	}
	y := x.scratch
	for a, c := range x.dense {
		sum, row := r[c], x.factor[a]
		for b, v := range y[:a] {
			sum -= row[b] * v
		}
		y[a] = sum / row[a]
	}
	for a := len(y) - 1; a >= 0; a-- {
		row := x.factor[a]
		y[a] /= row[a]
		for b := range row[:a] {
			y[b] -= row[b] * y[a]
		}
		z[x.dense[a]] = y[a]
	}
	for j, is := range held {
		if is {
			z[j] = 0
		}
	}
}
