package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// start picks and starts a job that is known to take so long.
func start(t *testing.T, s *Scheduler, now time.Time, id uint64, took time.Duration, list ...Host) string {
	t.Helper()
	j := job(list...)
	j.Cost = Cost{Time: took, P95: 2 * took, Known: true}
	d := s.Pick(now, j)
	if d.Verdict != Run {
		t.Fatalf("job %d: %+v, want Run", id, d)
	}
	s.Started(now, id, d.Host, j)
	return d.Host
}

func wantHedges(t *testing.T, s *Scheduler, now time.Time, next time.Time, want ...Hedge) {
	t.Helper()
	got, at := s.Hedges(now)
	if !slices.Equal(got, want) || !at.Equal(next) {
		t.Errorf("hedges are %v, next at %v; want %v, %v", got, at.Sub(t0), want, next.Sub(t0))
	}
}

// TestLateJobIsDuplicated: on another host, once, when its 95th percentile is over.
func TestLateJobIsDuplicated(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 4)
	up(s, t0, "b", 4)
	wantHedges(t, s, t0, time.Time{})
	host := start(t, s, t0, 7, 10*time.Second, hosts("a", "b")...)
	late := t0.Add(20 * time.Second)
	wantHedges(t, s, t0, late)
	wantHedges(t, s, late.Add(-1), late)
	other := map[string]string{"a": "b", "b": "a"}[host]
	j := job(hosts("a", "b")...)
	wantHedges(t, s, late, time.Time{}, Hedge{7, other})
	s.Started(late, 7, other, j)
	wantHedges(t, s, late.Add(time.Hour), time.Time{})
	s.Done(late, other, OK, Report{ID: 7})
	s.Done(late, host, Unused, Report{ID: 7})
	for _, st := range s.Snapshot(late) {
		if st.Running != 0 || st.Failed != 0 {
			t.Errorf("%s has %d jobs, %d failed", st.Addr, st.Running, st.Failed)
		}
	}
	if len(s.runs)+s.copies+len(s.builds) != 0 {
		t.Errorf("%d runs, %d duplicates, %d builds are left", len(s.runs), s.copies, len(s.builds))
	}
}

func TestDrainByHand(t *testing.T) {
	s := fixed(0)
	s.Drain("a", true) // before it is listed
	up(s, t0, "a", 1)
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.Draining, "rdistcc undrain a")
	if n := s.Live(hosts("a")); n != 0 {
		t.Errorf("Live counts %d of a drained host", n)
	}
	s.Lost(t0, "a", "reset", false)
	up(s, t0, "a", 1)
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.Draining, "drained by hand")
	s.Forget("a")
	up(s, t0, "a", 1)
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.Draining, "drained by hand")
	s.Drain("a", false)
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
}

func TestQuarantine(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 2)
	j := job(hosts("a")...)
	s.Quarantine(t0, "a", "another object than b's")
	wantLocal(t, s.Pick(t0, j), reason.Quarantine, "a is in quarantine (another object than b's)")
	s.Lost(t0, "a", "reset", false)
	up(s, t0, "a", 2)
	wantLocal(t, s.Pick(t0.Add(time.Hour-1), j), reason.Quarantine, "")
	wantRun(t, s.Pick(t0.Add(time.Hour), j), "a")
	wantWait(t, s.Pick(t0.Add(time.Hour), j), time.Time{}) // half open
	s.Quarantine(t0, "a", "x")
	s.Drain("a", false) // a person says that it is well
	s.Done(t0, "a", OK, Report{})
	wantRun(t, s.Pick(t0, j), "a")
}
