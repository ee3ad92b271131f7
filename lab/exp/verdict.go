package exp

import (
	"fmt"
	"math"
	"strings"
)

// Word is what a predicate's verdict begins with.
type Word string

// Verdicts.
const (
	Holds   Word = "holds"
	Fails   Word = "fails"
	NotHere Word = "not to be told here"
)

// Verdict is what the results say to a claim, with one line of reason.
type Verdict struct {
	Word   Word   `json:"verdict"`
	Reason string `json:"reason"`
}

// Predicate is a claim of shape.
type Predicate struct {
	Claim string
	Says  string // who claims it: a tag of provenance, or "ours"
	// Cores is how many processors the claim supposes. With fewer, a claim that fails is not refuted.
	Cores int
	Judge func(*Results) Verdict
}

// Verdict judges the claim.
func (p *Predicate) Verdict(r *Results) Verdict {
	v := p.Judge(r)
	if v.Word == Fails && r.Header.Cores < p.Cores {
		v = Verdict{NotHere, fmt.Sprintf("the claim supposes %d processors, and %d are here; %s", p.Cores, r.Header.Cores, v.Reason)}
	}
	return v
}

// minRounds is how many rounds a verdict needs: the interval of fewer samples says nothing.
const minRounds = 3

// Less judges that a's metric is less than factor times b's. It is undecided while the 95 % interval of their
// ratio, taken round by round, contains factor.
func (r *Results) Less(a, b Cell, metric string, factor float64) Verdict {
	for _, c := range []Cell{a, b} {
		if why := r.untold(c); why != "" {
			return Verdict{NotHere, why}
		}
	}
	q := r.Ratio(a, b, metric)
	if q.N < minRounds {
		return Verdict{NotHere, fmt.Sprintf("%d rounds, a verdict needs %d", q.N, minRounds)}
	}
	reason := fmt.Sprintf("%s: %s %s against %s, ratio %s (%s to %s)", differing(a, b), metric,
		Short(r.Of(a, metric).Median), Short(r.Of(b, metric).Median), Short(q.Median), Short(q.Lo), Short(q.Hi))
	switch {
	case q.Hi < factor:
		return Verdict{Holds, reason}
	case q.Lo > factor:
		return Verdict{Fails, reason}
	}
	return Verdict{NotHere, reason + fmt.Sprintf(" includes %s", Short(factor))}
}

// Beyond judges that a cell's metric is more than bound.
func (r *Results) Beyond(c Cell, metric string, bound float64) Verdict {
	if why := r.untold(c); why != "" {
		return Verdict{NotHere, why}
	}
	i := r.Of(c, metric)
	if i.N < minRounds {
		return Verdict{NotHere, fmt.Sprintf("%d rounds, a verdict needs %d", i.N, minRounds)}
	}
	reason := fmt.Sprintf("%s is %s (%s to %s)", metric, Short(i.Median), Short(i.Lo), Short(i.Hi))
	switch {
	case i.Lo > bound:
		return Verdict{Holds, reason}
	case i.Hi < bound:
		return Verdict{Fails, reason}
	}
	return Verdict{NotHere, reason + fmt.Sprintf(", which includes %s", Short(bound))}
}

// Not turns a verdict round.
func Not(v Verdict) Verdict {
	switch v.Word {
	case Holds:
		v.Word = Fails
	case Fails:
		v.Word = Holds
	}
	return v
}

// All judges a claim that has several parts. It fails with the first part that fails, else is undecided with the
// first that is; its reason when it holds is that of the part that comes last.
func All(parts ...Verdict) Verdict {
	if len(parts) == 0 {
		return Verdict{NotHere, "nothing was measured"}
	}
	for _, w := range []Word{Fails, NotHere} {
		for _, v := range parts {
			if v.Word == w {
				return v
			}
		}
	}
	return parts[len(parts)-1]
}

// Along judges each level of an axis that has been measured, from one number to another, and combines by All.
func (r *Results) Along(axis string, from, to int, judge func(level string) Verdict) Verdict {
	var parts []Verdict
	for _, level := range r.levels(axis) {
		if n := (Cell{axis: level}).Number(axis); n >= from && n <= to {
			parts = append(parts, judge(level))
		}
	}
	return All(parts...)
}

// levels returns an axis's levels.
func (r *Results) levels(axis string) []string {
	for _, a := range r.of.Axes(r.Header.Size) {
		if a.Name == axis {
			return a.Levels
		}
	}
	return nil
}

// Cross judges that a is less than b at the low end of an axis and more at its high end, and that the lines
// change sides once, between the numbers from and to. a and b lack the axis.
func (r *Results) Cross(axis string, a, b Cell, metric string, from, to float64) Verdict {
	var xs, qs []float64
	levels := r.levels(axis)
	for _, level := range levels {
		ca, cb := a.With(axis, level), b.With(axis, level)
		if why := r.untold(ca) + r.untold(cb); why != "" {
			continue
		}
		if q := r.Ratio(ca, cb, metric); q.N >= minRounds && q.Median > 0 {
			xs, qs = append(xs, float64(ca.Number(axis))), append(qs, q.Median)
		}
	}
	if len(xs) < 2 {
		return Verdict{NotHere, fmt.Sprintf("fewer than two levels of %s have %d rounds", axis, minRounds)}
	}
	ends := All(r.Less(a.With(axis, levels[0]), b.With(axis, levels[0]), metric, 1),
		r.Less(b.With(axis, levels[len(levels)-1]), a.With(axis, levels[len(levels)-1]), metric, 1))
	if ends.Word != Holds {
		ends.Reason = "at an end, " + ends.Reason
		return ends
	}
	var crossings []float64
	for i := 1; i < len(xs); i++ {
		if (qs[i-1] < 1) != (qs[i] < 1) { // on logarithmic axes, a straight line between the points
			f := math.Log(qs[i-1]) / (math.Log(qs[i-1]) - math.Log(qs[i]))
			crossings = append(crossings, math.Exp(math.Log(xs[i-1])+f*(math.Log(xs[i])-math.Log(xs[i-1]))))
		}
	}
	if len(crossings) != 1 {
		return Verdict{NotHere, fmt.Sprintf("the lines cross %d times", len(crossings))}
	}
	reason := fmt.Sprintf("they cross at %s", Short(crossings[0]))
	if crossings[0] < from || crossings[0] > to {
		return Verdict{Fails, reason}
	}
	return Verdict{Holds, reason}
}

// differing names two cells by where they differ, or by their key if they do nowhere.
func differing(a, b Cell) string {
	var same, in, on []string
	for _, pair := range strings.Fields(a.Key()) {
		axis, level, _ := strings.Cut(pair, "=")
		if b[axis] == level {
			same = append(same, pair)
			continue
		}
		in, on = append(in, level), append(on, b[axis])
	}
	if len(in) == 0 {
		return a.Key()
	}
	what := strings.Join(in, "+") + " against " + strings.Join(on, "+")
	if len(same) > 0 {
		what += " at " + strings.Join(same, " ")
	}
	return what
}
