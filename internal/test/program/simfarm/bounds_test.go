package simfarm

import (
	"testing"
)

// bounds of the scheduler in each case of the small size, means over the seeds 1 to 3:
// its makespan beside the oracle's. 1.05 in the mixed case is the aim, the others are
// what is reached with some room.
var bounds = map[string]float64{
	"identical":    1.02,
	"mixed":        1.05,
	"mixed, cold":  1.12,
	"shared":       1.05,
	"foreign load": 1.06,
	"high RTT":     1.05,
	"slow links":   1.07,
	"hosts lost":   1.04,
	"stragglers":   1.08,
	"long tail":    1.05,
	"dead hosts":   1.05,
	"local cores":  1.05,
	"recorded":     1.06,
	"cold store":   1.05,
	"warm store":   1.03,
	"small store":  1.06,
}

// simpleBound is the most that its makespan may be beside that of the best simple
// rule, in any case.
const simpleBound = 1.02

func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates hundreds of builds")
	}
	rows, err := Compare(Small, 3, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]*Row{}
	seen, untold := 0, 0
	for i := range rows {
		r := &rows[i]
		if r.Stuck > 0 {
			t.Errorf("%s, %s: %d jobs did not end", r.Case, r.Rule, r.Stuck)
		}
		if r.Rule == Untold {
			untold++
			of, most := told[r.Case], r.Sent
			if r.Case == "warm store" { // only duplicates cost bytes there, and a rule that knows more finds more places for them
				most *= 1.01
			}
			if of.Makespan > r.Makespan || of.Sent > most {
				t.Errorf("%s: %.2f s and %.0f MB, but %.2f s and %.0f MB when it is not told what hosts hold",
					r.Case, of.Makespan.Seconds(), of.Sent/1e6, r.Makespan.Seconds(), r.Sent/1e6)
			}
		}
		if r.Rule != Scheduler {
			continue
		}
		told[r.Case] = r
		b, ok := bounds[r.Case]
		if !ok {
			t.Errorf("%s has no bound", r.Case)
			continue
		}
		seen++
		rule, best := BestSimple(rows, r.Case)
		t.Logf("%-12s %6.2f s, %.3f of the oracle's, %.3f of the best simple rule's (%s)", r.Case, r.Makespan.Seconds(), r.Ratio, r.Ratio/best, rule)
		if r.Ratio > b {
			t.Errorf("%s: makespan is %.3f of the oracle's, want at most %.2f", r.Case, r.Ratio, b)
		}
		if r.Ratio > simpleBound*best {
			t.Errorf("%s: makespan is %.3f of that of %q, want at most %.2f", r.Case, r.Ratio/best, rule, simpleBound)
		}
	}
	if untold != 3 {
		t.Errorf("%d cases with stores, want 3", untold)
	}
	if seen != len(bounds) {
		t.Errorf("%d cases with bounds, want %d", seen, len(bounds))
	}
}
