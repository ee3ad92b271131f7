package costs

import (
	"fmt"
	"math"
	"slices"
	"testing"
)

// TestNoneIsBetter: estimates are at least as near the truth as those of the best unbiased one can be, which is told what no report can
// know: how much each unit's time is off by chance, of which kind. So where few units scatter widely, no design is within 10 %.
func TestNoneIsBetter(t *testing.T) {
	for _, c := range []struct {
		units      int
		own, noise float64
		templates  bool
	}{{300, 0.1, 0.02, false}, {300, 0.5, 0.05, false}, {300, 0.5, 0.05, true}, {3000, 0.1, 0.02, true}} {
		name := fmt.Sprintf("%d units that scatter by %.0f %%", c.units, 100*c.own)
		if c.templates {
			name += ", and templates"
		}
		t.Run(name, func(t *testing.T) {
			x := grow(50, c.units, 5, c.own, c.noise)
			if c.templates {
				x.instantiate()
			}
			r := Of(&x.l, nil)
			best := x.best(r, c.own, c.noise, c.templates)
			var all, got, n, worst float64
			for g, h := range r.Headers {
				if truth := x.truth(&h); truth >= x.total/100 {
					off := (h.CPU.Seconds() - truth) / truth
					all, got, n = all+math.Pow(best[g]*float64(h.Units)/truth, 2), got+off*off, n+1
					worst = max(worst, math.Abs(off))
				}
			}
			all, got = math.Sqrt(all/n), math.Sqrt(got/n)
			t.Logf("%.0f headers cost more than 1 %%: off by %.1f %% (%.1f %% at most), the best unbiased estimate by %.1f %%, root mean square", n, 100*got, 100*worst, 100*all)
			if got > all {
				t.Errorf("off by %.1f %%, the best unbiased estimate by %.1f %%", 100*got, 100*all)
			}
		})
	}
}

// truth returns what a header costs over all units.
func (x *tree) truth(h *Header) (seconds float64) {
	for _, f := range h.Files {
		n := x.number(f.Name)
		seconds += x.seconds[n]*float64(h.Units) + x.used[n]
	}
	return seconds
}

// best returns by how many seconds in a unit the best unbiased estimate of each header is off (standard deviation): generalized least squares
// with the true variances.
func (x *tree) best(r *Report, own, noise float64, templates bool) []float64 {
	n := len(r.Headers) + 2
	a := make([][]float64, n) // what the units tell of the values, and beside it the unit matrix
	for i := range a {
		a[i] = make([]float64, 2*n)
		a[i][n+i] = 1
	}
	scatter := math.Exp(own * own)
	for u, list := range x.reads {
		c := &x.l.Compiles[u]
		text, took := float64(x.l.Files[c.Reads[len(c.Reads)-1]].Size)*3e-6, c.CPU.Seconds()
		variance := text*text*(scatter-1)*scatter + noise*noise*took*took
		for _, h := range list {
			if templates && h%10 == 3 { // three quarters of the units use them, for up to five times as long: see instantiate
				variance += 2.7 * x.seconds[h] * x.seconds[h]
			}
		}
		row := make([]float64, n)
		for g := range r.Headers {
			if _, reads := slices.BinarySearch(list, uint32(x.number(r.Headers[g].Name()))); reads {
				row[g] = 1
			}
		}
		row[n-2], row[n-1] = text, 1
		for i, v := range row {
			for j, w := range row {
				a[i][j] += v * w / variance
			}
		}
	}
	a[n-1][n-1] += 1 / (startScatter * startScatter) // as the report does
	for i := range n {
		p := i
		for k := i; k < n; k++ {
			if math.Abs(a[k][i]) > math.Abs(a[p][i]) {
				p = k
			}
		}
		a[i], a[p] = a[p], a[i]
		for k, f := range a {
			if by := f[i] / a[i][i]; k != i && by != 0 {
				for j, v := range a[i] {
					f[j] -= by * v
				}
			}
		}
	}
	off := make([]float64, len(r.Headers))
	for g := range off {
		off[g] = math.Sqrt(a[g][n+g] / a[g][g])
	}
	return off
}
