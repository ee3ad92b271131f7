package simfarm

import (
	"testing"
)

// bounds of the scheduler in each case of the small size, means over the seeds 1 to 3:
// its makespan to the oracle's, and to that of the best simple rule. What is aimed at
// is 1.05 of the oracle in the mixed case, and 1.02 of the best simple rule in all.
var bounds = map[string]struct{ oracle, simple float64 }{
	"identical":    {1.03, 1.02},
	"mixed":        {1.30, 1.15},
	"mixed, cold":  {1.20, 1.02},
	"shared":       {1.20, 1.02},
	"foreign load": {1.25, 1.12},
	"high RTT":     {1.25, 1.02},
	"slow links":   {1.50, 1.10},
	"hosts lost":   {1.05, 1.02},
	"stragglers":   {4, 1.02},
	"long tail":    {1.20, 1.02},
	"dead hosts":   {1.30, 1.10},
	"recorded":     {1.90, 1.02},
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
