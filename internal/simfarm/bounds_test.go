package simfarm

import (
	"testing"
)

// bounds of the scheduler in each case of the small size, means over the seeds 1 to 3:
// its makespan to the oracle's, and to that of the best simple rule. What is aimed at
// is 1.05 of the oracle in the mixed case, and 1.02 of the best simple rule in all.
var bounds = map[string]struct{ oracle, simple float64 }{
	"identical":    {1.03, 1.02},
	"mixed":        {1.4, 1.3},
	"mixed, cold":  {1.5, 1.3},
	"shared":       {1.25, 1.05},
	"foreign load": {1.4, 1.25},
	"high RTT":     {1.4, 1.05},
	"slow links":   {2.2, 1.6},
	"hosts lost":   {1.1, 1.05},
	"stragglers":   {11, 2.2},
	"long tail":    {1.2, 1.02},
	"dead hosts":   {1.35, 1.15},
	"local cores":  {1.95, 1.95},
	"recorded":     {3.2, 2.1},
}

func TestBounds(t *testing.T) {
	rows, err := Compare(Small, 3, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range rows {
		r := &rows[i]
		if r.Stuck > 0 {
			t.Errorf("%s, %s: %d jobs did not end", r.Case, r.Rule, r.Stuck)
		}
		if r.Rule != Scheduler {
			continue
		}
		b, ok := bounds[r.Case]
		if !ok {
			t.Errorf("%s has no bound", r.Case)
			continue
		}
		seen++
		rule, best := BestSimple(rows, r.Case)
		t.Logf("%-12s %6.2f s, %.3f of the oracle's, %.3f of the best simple rule's (%s)", r.Case, r.Makespan.Seconds(), r.Ratio, r.Ratio/best, rule)
		if r.Ratio > b.oracle {
			t.Errorf("%s: makespan is %.3f of the oracle's, want at most %.2f", r.Case, r.Ratio, b.oracle)
		}
		if r.Ratio > b.simple*best {
			t.Errorf("%s: makespan is %.3f of that of %q, want at most %.2f", r.Case, r.Ratio/best, rule, b.simple)
		}
	}
	if seen != len(bounds) {
		t.Errorf("%d cases with bounds, want %d", seen, len(bounds))
	}
}
