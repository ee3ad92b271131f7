package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

func TestLostHostIsTriedAgainWithGrowingPauses(t *testing.T) {
	s := fixed(0.5) // pauses without spread
	s.Ensure(t0, hosts("a", "b"))
	if addrs, next := s.Due(t0); !slices.Equal(addrs, []string{"a", "b"}) || !next.IsZero() {
		t.Errorf("due are %q, next %v, want both now", addrs, next)
	}
	up(s, t0, "b", 2)
	now := t0
	for _, want := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000, 5000} {
		s.Connecting(now, "a")
		if addrs, _ := s.Due(now); len(addrs) != 0 {
			t.Fatalf("%q are due while they are being connected", addrs)
		}
		retry := s.Lost(now, "a", "refused", false)
		if got := retry.Sub(now); got != want*time.Millisecond {
			t.Errorf("pause is %v, want %v", got, want*time.Millisecond)
		}
		if addrs, next := s.Due(retry.Add(-1)); len(addrs) != 0 || !next.Equal(retry) {
			t.Errorf("due are %q, next %v, want none before %v", addrs, next, retry)
		}
		now = retry
		if addrs, _ := s.Due(now); !slices.Equal(addrs, []string{"a"}) {
			t.Errorf("due are %q, want a", addrs)
		}
	}
	// It is back at once for all: nothing was lost with it.
	up(s, now, "a", 2)
	wantRun(t, s.Pick(now, job(hosts("a")...)), "a")
	wantRun(t, s.Pick(now, job(hosts("a")...)), "a")
	s.Done(now, "a", OK, Report{})
	if retry := s.Lost(now, "a", "reset", false); retry.Sub(now) != 100*time.Millisecond {
		t.Errorf("pause after a job went well is %v, want the first one", retry.Sub(now))
	}
}

// TestLostFarmIsLookedForOften: while no host is up an attempt costs nothing.
func TestLostFarmIsLookedForOften(t *testing.T) {
	s := fixed(0.5)
	s.Ensure(t0, hosts("a", "b"))
	now := t0
	for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000, 1000} {
		s.Connecting(now, "a")
		retry := s.Lost(now, "a", "refused", false)
		if got := retry.Sub(now); got != want*time.Millisecond {
			t.Errorf("pause is %v, want %v", got, want*time.Millisecond)
		}
		now = retry
	}
	up(s, now, "b", 2)
	s.Connecting(now, "a")
	if got := s.Lost(now, "a", "refused", false).Sub(now); got != 5*time.Second {
		t.Errorf("pause beside a host that is up is %v, want %v", got, 5*time.Second)
	}
	s = New(Config{Backoff: time.Minute, BackoffMax: time.Minute, Rand: func() float64 { return 0.5 }})
	s.Ensure(t0, hosts("a"))
	s.Connecting(t0, "a")
	if got := s.Lost(t0, "a", "refused", false).Sub(t0); got != time.Minute {
		t.Errorf("pause is %v, want the minute that was asked for", got)
	}
}

// TestHostThatGrantsAndTakesNothing is left alone for longer and longer; a job that
// it does ends that, and now and then a full host is just full.
func TestHostThatGrantsAndTakesNothing(t *testing.T) {
	s := fixed(0.5)
	up(s, t0, "a", 8)
	up(s, t0, "b", 8)
	s.Credits(t0, "b", 0)
	j := job(hosts("a")...)
	refuse := func(now time.Time, n int) {
		t.Helper()
		for range n {
			s.Credits(now, "a", 8)
			wantRun(t, s.Pick(now, j), "a")
			s.Done(now, "a", Full, Report{})
		}
	}
	refuse(t0, 2)
	s.Credits(t0, "a", 8)
	wantRun(t, s.Pick(t0, j), "a")
	s.Done(t0, "a", OK, Report{})
	now := t0
	for _, pause := range []time.Duration{100, 200, 400} {
		refuse(now, 3)
		s.Credits(now, "a", 8)
		wantLocal(t, s.Pick(now, j), reason.HostLost, "takes no job")
		now = now.Add(pause*time.Millisecond - 1)
		wantLocal(t, s.Pick(now, j), reason.HostLost, "takes no job")
		now = now.Add(1)
	}
	wantRun(t, s.Pick(now, j), "a")
}

func TestPausesAreSpread(t *testing.T) {
	for r, want := range map[float64]time.Duration{0: 75, 0.5: 100, 0.999999: 124} {
		s := fixed(r)
		s.Ensure(t0, hosts("a"))
		s.Connecting(t0, "a")
		if got := s.Lost(t0, "a", "x", false).Sub(t0).Truncate(time.Millisecond); got != want*time.Millisecond {
			t.Errorf("random number %v: pause is %v, want %v ms", r, got, want)
		}
	}
}

func TestHostThatTakesJobsWithItComesBackHalfOpen(t *testing.T) {
	s := fixed(0)
	j := job(hosts("a")...)
	for range 2 {
		up(s, t0, "a", 4)
		wantRun(t, s.Pick(t0, j), "a")
		s.Lost(t0, "a", "reset", false)
		s.Done(t0, "a", Gone, Report{})
	}
	up(s, t0, "a", 4)
	wantRun(t, s.Pick(t0, j), "a")
	wantWait(t, s.Pick(t0, j), time.Time{}) // one at a time
	s.Done(t0, "a", Refused, Report{})      // proves nothing
	s.Credits(t0, "a", 4)
	wantRun(t, s.Pick(t0, j), "a")
	wantWait(t, s.Pick(t0, j), time.Time{})
	s.Done(t0, "a", OK, Report{})
	wantRun(t, s.Pick(t0, j), "a")
	wantRun(t, s.Pick(t0, j), "a")
}

func TestLongConnectionClearsTheRecord(t *testing.T) {
	s := fixed(0.5)
	now := t0
	for range 10 {
		up(s, now, "a", 1)
		now = now.Add(time.Hour)
		if got := s.Lost(now, "a", "reset", false).Sub(now); got != 100*time.Millisecond {
			t.Fatalf("pause after an hour's connection is %v, want the first one", got)
		}
	}
}

func TestOneSourceThatKillsCompilersMovesNothing(t *testing.T) {
	s := fixed(0.5)
	up(s, t0, "a", 8)
	j := job(hosts("a")...)
	for range 20 {
		s.Credits(t0, "a", 8)
		wantRun(t, s.Pick(t0, j), "a")
		s.Done(t0, "a", Killed, Report{Source: "poison.c"})
	}
	s.Credits(t0, "a", 8)
	wantRun(t, s.Pick(t0, j), "a")
	s.Done(t0, "a", Killed, Report{Source: "other.c"})
	wantRun(t, s.Pick(t0, j), "a")
	s.Done(t0, "a", Killed, Report{Source: "third.c"}) // three different ones
	wantLocal(t, s.Pick(t0, j), reason.HostLost, "compilers were killed")
	now := t0.Add(100 * time.Millisecond)
	wantRun(t, s.Pick(now, j), "a")
	wantWait(t, s.Pick(now, j), time.Time{})
	s.Done(now, "a", Killed, Report{Source: "fourth.c"}) // half open: one is enough
	wantLocal(t, s.Pick(now, j), reason.HostLost, "compilers were killed")
	now = now.Add(time.Second)
	wantRun(t, s.Pick(now, j), "a")
	s.Done(now, "a", OK, Report{})
	wantRun(t, s.Pick(now, j), "a")
	wantRun(t, s.Pick(now, j), "a")
}

func TestWhatDoesNotMoveHealth(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 8)
	j := job(hosts("a")...)
	for i := range 50 {
		s.Credits(t0, "a", 8)
		wantRun(t, s.Pick(t0, j), "a")
		s.Done(t0, "a", []Outcome{Refused, Unused}[i%2], Report{Source: fmt.Sprint(i, ".c")})
	}
	for range 2 { // below the limit, then a good one
		wantRun(t, s.Pick(t0, j), "a")
		s.Done(t0, "a", Fault, Report{})
	}
	wantRun(t, s.Pick(t0, j), "a")
	s.Done(t0, "a", OK, Report{})
	s.Credits(t0, "a", 8)
	for range 3 {
		wantRun(t, s.Pick(t0, j), "a")
	}
}

func TestDrainedHostIsNoFailure(t *testing.T) {
	s := fixed(0.5)
	up(s, t0, "a", 2)
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
	s.Draining(t0, "a")
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.Draining, "a")
	s.Done(t0, "a", OK, Report{})
	s.Lost(t0, "a", "closed by the host", false)
	up(s, t0, "a", 2)
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
}

func TestForgottenHost(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
	s.Forget("a")
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.HostLost, "not known")
	s.Done(t0, "a", OK, Report{})
	s.Credits(t0, "a", 3)
	s.Draining(t0, "a")
	s.Load(t0, "a", Load{})
	if got := s.Snapshot(t0); len(got) != 0 {
		t.Errorf("snapshot is %+v, want nothing", got)
	}
}

func TestSnapshot(t *testing.T) {
	s := fixed(0.5)
	up(s, t0, "b", 4)
	s.Ensure(t0, hosts("a"))
	s.Connecting(t0, "a")
	s.Lost(t0, "a", "refused", false)
	wantRun(t, s.Pick(t0, job(hosts("b")...)), "b")
	s.Load(t0, "b", Load{Running: 3, Average: 1.5})
	got := s.Snapshot(t0.Add(10 * time.Millisecond))
	want := []Status{
		{Addr: "a", State: Lost, Since: 10 * time.Millisecond, Why: "refused", Retry: 90 * time.Millisecond},
		{Addr: "b", State: Up, Since: 10 * time.Millisecond, Jobs: 4, Credits: 3, Running: 1, Toolchains: 1,
			Load: Load{Running: 3, Average: 1.5}, LoadAge: 10 * time.Millisecond},
	}
	if !slices.Equal(got, want) {
		t.Errorf("snapshot is\n%+v, want\n%+v", got, want)
	}
	if n := s.Live([]Host{{Addr: "a"}, {Addr: "b"}}); n != 4 {
		t.Errorf("Live is %d, want b's 4", n)
	}
	if n := s.Live([]Host{{Addr: "b", Slots: 3}, {Addr: "none"}}); n != 3 {
		t.Errorf("Live is %d, want the list's 3", n)
	}
	if Lost.String() != "lost" || Unknown.String() != "unknown" {
		t.Error("states have other names")
	}
}

func TestRefusalIsForgotten(t *testing.T) {
	s := fixed(0.5)
	s.Ensure(t0, hosts("a"))
	s.Lost(t0, "a", "not in its allow list", true)
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.Denied, "")
	s.Connecting(t0, "a")
	s.Lost(t0, "a", "reset", false)
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), reason.HostLost, "reset")
}

// TestIdleConnectionIsNoDoubt: nothing was lost with it.
func TestIdleConnectionIsNoDoubt(t *testing.T) {
	s := fixed(0.5)
	for range 3 {
		up(s, t0, "a", 2)
		s.Lost(t0, "a", "reset", false)
	}
	up(s, t0, "a", 2)
	if s.hosts["a"].halfOpen() {
		t.Error("half open by connections that took no job with them")
	}
}

// TestPausesOfABadHostGrow, and its jobs are counted.
func TestPausesOfABadHostGrow(t *testing.T) {
	s := fixed(0.5)
	up(s, t0, "a", 8)
	now := t0
	fault := func() {
		s.Credits(now, "a", 8)
		wantRun(t, s.Pick(now, job(hosts("a")...)), "a")
		s.Done(now, "a", Fault, Report{})
	}
	for range 2 {
		fault()
	}
	for _, want := range []time.Duration{100, 200, 400, 800} {
		fault()
		if got := s.hosts["a"].open.Sub(now); got != want*ms {
			t.Errorf("pause is %v, want %v ms", got, want)
		}
		now = s.hosts["a"].open
	}
	s.Credits(now, "a", 8)
	wantRun(t, s.Pick(now, job(hosts("a")...)), "a")
	s.Done(now, "a", OK, Report{})
	if st := s.Snapshot(now)[0]; st.OK != 1 || st.Failed != 6 {
		t.Errorf("%d jobs went well and %d failed, want 1 and 6", st.OK, st.Failed)
	}
}
