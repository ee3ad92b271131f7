package scheduler

import (
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// lost is a host that was connected, and is lost at now.
func lost(s *Scheduler, now time.Time, addr string) {
	up(s, now.Add(-time.Hour), addr, 1)
	s.Lost(now, addr, "reset", false)
}

// at is a job that came then.
func at(now time.Time, list ...Host) *Job {
	j := job(list...)
	j.Since = now
	return j
}

// wantRedial checks which hosts must be connected for a job that waits for them.
func wantRedial(t *testing.T, s *Scheduler, now time.Time, d Decision, want ...string) {
	t.Helper()
	addrs, _ := s.Due(now)
	if d.Verdict != Wait || !d.Gone || d.Redial != (len(want) > 0) || !slices.Equal(addrs, want) {
		t.Errorf("%v after the start: %+v, %q are due; want to wait, %q due", now.Sub(t0), d, addrs, want)
	}
}

// A job that has no other host has a lost one tried again at once, and waits for what
// comes of that, but not for more.
func TestLostHostIsTriedAgainForAJob(t *testing.T) {
	s := fixed(0)
	lost(s, t0, "a")
	s.Connecting(t0, "a")
	s.Lost(t0, "a", "refused", false)
	list := hosts("a")
	wantLocal(t, s.Pick(t0, at(t0, list...)), reason.HostLost, "refused") // this moment
	now := t0.Add(s.c.Backoff)
	d := s.Pick(now, at(now, list...))
	wantRedial(t, s, now, d, "a")
	s.Connecting(now, "a")
	d = s.Pick(now, at(now, list...))
	wantWait(t, d, now.Add(recheckTime))
	wantRedial(t, s, now, d)
	s.Lost(now.Add(ms), "a", "refused again", false)
	wantLocal(t, s.Pick(now.Add(ms), at(now, list...)), reason.HostLost, "refused again")
	// Others that come now know as much: a build is no storm of attempts.
	wantLocal(t, s.Pick(now.Add(2*ms), at(now.Add(2*ms), list...)), reason.HostLost, "refused again")
	// But not one without back-off.
	j := at(now.Add(2*ms), list...)
	j.NoBackoff = true
	wantRedial(t, s, now.Add(2*ms), s.Pick(now.Add(2*ms), j), "a")

	// A machine that is off does not answer.
	now = now.Add(time.Hour)
	s.Connecting(now, "a")
	wantLocal(t, s.Pick(now.Add(recheckTime), at(now.Add(recheckTime), list...)), reason.HostLost, "refused again")

	// One that is busy is better than one that is lost.
	s.Lost(now, "a", "timeout", false)
	up(s, now, "b", 1)
	now = now.Add(time.Second)
	both := hosts("a", "b")
	wantRun(t, s.Pick(now, at(now, both...)), "b")
	if d := s.Pick(now, at(now, both...)); d.Verdict != Wait || d.Gone || d.Redial {
		t.Errorf("%+v, want to wait for the busy host", d)
	}
}

// A job may go once more to a host that was lost under it: where there is no other way.
func TestLostHostMayHaveTheJobAgain(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	up(s, t0, "b", 1)
	j := at(t0, hosts("a", "b")...)
	wantRun(t, s.Pick(t0, j), "a")
	s.Lost(t0, "a", "reset", false)
	s.Done(t0, "a", Gone, Report{})
	j.Tried, j.Again, j.Lost = map[string]bool{"a": true}, map[string]bool{"a": true}, t0
	s.Up(t0, "a", Capacity{Jobs: 1, Toolchains: 1})
	s.Toolchains("a", tool)
	s.Credits(t0, "a", 1)
	wantRun(t, s.Pick(t0, j), "b")
	if d := s.Pick(t0, j); d.Verdict != Wait || d.Gone {
		t.Errorf("%+v, want to wait for the other host, where one of our jobs ends", d)
	}
	s.Lost(t0, "b", "reset", false)
	s.Done(t0, "b", Gone, Report{})
	j.Tried["b"] = true
	wantRun(t, s.Pick(t0, j), "a")
	s.Credits(t0, "a", 1)
	j.Again["a"] = false
	wantLocal(t, s.Pick(t0, j), reason.HostLost, "every host was tried")

	// While it is away it is tried again, as any other.
	j.Again["b"] = true
	s.Connecting(t0, "b")
	s.Lost(t0.Add(ms), "b", "refused", false)
	now := t0.Add(s.c.Backoff)
	j.Lost = now
	wantRedial(t, s, now, s.Pick(now, j), "b")
	s.Connecting(now, "b")
	wantWait(t, s.Pick(now, j), now.Add(recheckTime))
	s.Lost(now.Add(ms), "b", "refused again", false)
	wantLocal(t, s.Pick(now.Add(ms), j), reason.HostLost, "b lost (refused again)")
}

// A long list of lost hosts is tried at the pace of a short one.
func TestAttemptsForJobsAreSpread(t *testing.T) {
	s := fixed(0)
	var list []Host
	for i := range 50 {
		addr := string(rune('A' + i))
		list = append(list, hosts(addr)...)
		lost(s, t0, addr)
		s.Connecting(t0, addr)
		s.Lost(t0, addr, "refused", false)
	}
	pause := 50 * redialEach
	now := t0.Add(pause - 1)
	wantLocal(t, s.Pick(now, at(now, list...)), reason.HostLost, "refused")
	now = t0.Add(pause)
	if d := s.Pick(now, at(now, list...)); !d.Redial {
		t.Errorf("%+v, want attempts", d)
	}
}

// TestStrictJobWaitsForAReturn: a job that may not be done here waits for a host that can come up, and
// makes the scheduler try it repeatedly.
func TestStrictJobWaitsForAReturn(t *testing.T) {
	s := fixed(0)
	lost(s, t0, "a")
	j := at(t0, hosts("a")...)
	j.Strict = true
	end := t0.Add(s.c.Strict)
	d := s.Pick(t0, j)
	wantWait(t, d, end)
	wantRedial(t, s, t0, d, "a")
	s.Connecting(t0, "a")
	wantWait(t, s.Pick(t0, j), end)
	retry := s.Lost(t0, "a", "refused", false)
	for range 10 { // which makes pauses long
		s.Connecting(t0, "a")
		retry = s.Lost(t0, "a", "refused", false)
	}
	d = s.Pick(t0, j)
	wantWait(t, d, t0.Add(strictPace))
	if !retry.After(d.Until) {
		t.Fatalf("by itself it is tried at %v", retry)
	}
	wantRedial(t, s, d.Until, s.Pick(d.Until, j), "a")
	j.Asked = t0.Add(-time.Second) // its command came earlier
	wantWait(t, s.Pick(end.Add(-1500*ms), j), end.Add(-time.Second))
	wantLocal(t, s.Pick(end.Add(-time.Second), j), reason.HostLost, "a lost (refused); waited 1m0s for it")
	// What waits as long for each is counted for each.
	young, old := at(t0.Add(2*time.Second), j.Hosts...), at(t0, j.Hosts...)
	young.Strict, old.Strict = true, true
	s.Connecting(end.Add(-ms), "a")
	wantWait(t, s.Pick(end.Add(-ms), young), end.Add(2*time.Second))
	wantWait(t, s.Pick(end.Add(-ms), old), end)
	// Its own host went later.
	j.Lost = end
	wantWait(t, s.Pick(end, j), end.Add(s.c.Strict))
}

// A job that may not be done here fails at once where no host can come up for it.
func TestStrictJobDoesNotWaitInVain(t *testing.T) {
	s := fixed(0)
	strict := func(now time.Time, list ...Host) *Job {
		j := at(now, list...)
		j.Strict = true
		return j
	}
	up(s, t0, "other", 1)
	j := strict(t0, hosts("other")...)
	j.Toolchain = [16]byte{9}
	wantLocal(t, s.Pick(t0, j), reason.Toolchain, "other does not have this compiler")
	wantLocal(t, s.Pick(t0, strict(t0)), reason.NoHosts, "no hosts")
	lost(s, t0, "drained")
	s.Drain("drained", true)
	wantLocal(t, s.Pick(t0, strict(t0, hosts("drained")...)), reason.Draining, "by hand")

	// One that refuses is asked again, in case that was fixed, and believed.
	s.Ensure(t0, hosts("no"))
	s.Connecting(t0, "no")
	s.Lost(t0, "no", "not allowed", true)
	wantLocal(t, s.Pick(t0, strict(t0, hosts("no")...)), reason.Denied, "not allowed")
	now := t0.Add(deniedPace)
	wantLocal(t, s.Pick(now, at(now, hosts("no")...)), reason.Denied, "not allowed")
	j = strict(now, hosts("no")...)
	wantRedial(t, s, now, s.Pick(now, j), "drained", "no") // the former is only due
	s.Connecting(now, "no")
	wantWait(t, s.Pick(now, j), now.Add(recheckTime))
	s.Lost(now, "no", "not allowed", true)
	wantLocal(t, s.Pick(now, j), reason.Denied, "not allowed")
}

// A host that took the connection and says nothing is starting: it is waited for as one
// that was never connected, though it was lost before.
func TestStartingHost(t *testing.T) {
	s := fixed(0)
	lost(s, t0, "a")
	s.Connecting(t0, "a")
	now := t0.Add(time.Second)
	s.Starting(now, "a")
	j := at(now, hosts("a")...)
	wantWait(t, s.Pick(now, j), now.Add(s.c.Grace))
	s.Connecting(now.Add(s.c.Grace/2), "a") // a repetition starts no new period
	s.Starting(now.Add(s.c.Grace/2), "a")
	late := now.Add(s.c.Grace)
	wantLocal(t, s.Pick(late, j), reason.HostLost, "a is starting")
	j.Strict = true
	wantWait(t, s.Pick(late, j), now.Add(s.c.Strict))

	s.Ensure(t0, hosts("new"))
	s.Connecting(t0, "new")
	s.Starting(t0, "new")
	wantLocal(t, s.Pick(late, at(late, hosts("new")...)), reason.HostLost, "new is starting")
}

// A host that looks at its compilers still may have one yet.
func TestIdentifyingHost(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	s.Identifying("a", true)
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
	s.Done(t0, "a", Unused, Report{})
	s.Credits(t0, "a", 1)
	j := job(hosts("a")...)
	j.Toolchain = [16]byte{9}
	wantWait(t, s.Pick(t0, j), t0.Add(s.c.Grace))
	late := t0.Add(s.c.Grace)
	wantLocal(t, s.Pick(late, j), reason.Toolchain, "a is starting")
	j.Strict = true
	wantWait(t, s.Pick(late, j), t0.Add(s.c.Strict))
	s.Toolchains("a", j.Toolchain)
	wantRun(t, s.Pick(late, j), "a")
	j.Toolchain = [16]byte{8}
	wantWait(t, s.Pick(late, j), t0.Add(s.c.Strict))
	s.Identifying("a", false)
	wantLocal(t, s.Pick(late, j), reason.Toolchain, "does not have")
}

// TestEquipping: a job that may not run here waits for a host that is being sent its compiler, for as long as that makes progress. Another
// job does not.
func TestEquipping(t *testing.T) {
	s := New(Config{Rand: func() float64 { return 0 }, Strict: time.Minute})
	at := func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }
	s.Ensure(t0, hosts("a"))
	s.Connecting(t0, "a")
	s.Up(t0, "a", Capacity{Jobs: 1, Tree: true, Equipped: true})
	s.Credits(t0, "a", 1)
	strict := func() *Job { j := job(hosts("a")...); j.Strict = true; return j }
	waits := func(n int) {
		t.Helper()
		if d := s.Pick(at(n), strict()); d.Verdict != Wait || !d.Gone || d.Until.IsZero() {
			t.Errorf("after %d s: %+v", n, d)
		}
	}
	wantLocal(t, s.Pick(t0, job(hosts("a")...)), "refused:toolchain", "does not have this compiler")
	waits(0)
	waits(59)
	wantLocal(t, s.Pick(at(60), strict()), "refused:toolchain", "does not have this compiler") // nobody says anything of it
	s.Coming(at(60), "a", tool, 0)
	waits(60)
	waits(119)
	s.Coming(at(110), "a", tool, 1)
	waits(169)
	wantLocal(t, s.Pick(at(170), strict()), "refused:toolchain", "does not have this compiler; no more of it has arrived there for 1m0s")
	s.Coming(at(171), "a", tool, 2)
	waits(171)
	s.Unsendable("a", tool)
	d := s.Pick(at(172), strict())
	wantLocal(t, d, "refused:toolchain", "does not have this compiler")
	if d.Stalled != 0 {
		t.Errorf("%+v", d)
	}
	s.Coming(at(173), "a", tool, 2)
	waits(173)
	s.Toolchains("a", tool)
	wantRun(t, s.Pick(at(174), strict()), "a")
	s.Done(at(175), "a", OK, Report{})

	// One that is not sent toolchains is not waited for.
	s.Up(at(200), "a", Capacity{Jobs: 1})
	wantLocal(t, s.Pick(at(200), strict()), "refused:toolchain", "does not have this compiler")
}

// TestEquippingWithoutProgress: a job that may not run here gives up a host which has got no more of its compiler for long, whatever else
// happens to it. A job of which the host gets more and more goes on waiting, also while the host is away.
func TestEquippingWithoutProgress(t *testing.T) {
	type farm struct {
		*Scheduler
		at func(n int) time.Time
	}
	connect := func(f farm, n int) {
		f.Connecting(f.at(n), "a")
		f.Up(f.at(n), "a", Capacity{Jobs: 1, Tree: true, Equipped: true})
	}
	away := func(f farm, n int) { // a host that is up for 49 seconds, and away for one
		switch n % 50 {
		case 0:
			connect(f, n)
		case 49:
			f.Lost(f.at(n), "a", "reset", false)
		}
	}
	for name, c := range map[string]struct {
		each func(f farm, n int)
		last int // when it gives up; 0: not within the hour
	}{
		"it has come, and is never listed": {func(f farm, n int) { f.Coming(f.at(n), "a", tool, uint64(min(n, 10))) }, 70},
		"it is sent again and again":       {func(f farm, n int) { f.Coming(f.at(n), "a", tool, uint64(n%10)) }, 69},
		"nothing is known of it":           {func(f farm, n int) {}, 60},
		"the host comes and goes":          {away, 60},
		"and gets it anew each time":       {func(f farm, n int) { away(f, n); f.Coming(f.at(n), "a", tool, uint64(n%50)) }, 108},
		"and gets more of it each time":    {func(f farm, n int) { away(f, n); f.Coming(f.at(n), "a", tool, uint64(n)) }, 0},
		"others get on":                    {func(f farm, n int) { f.Queued(f.at(n), "a", tool) }, 0},
		"others got on for a while": {func(f farm, n int) {
			f.Coming(f.at(n), "a", tool, 0)
			if n < 90 {
				f.Queued(f.at(n), "a", tool)
			}
		}, 149},
	} {
		f := farm{New(Config{Rand: func() float64 { return 0 }, Strict: time.Minute}), func(n int) time.Time { return t0.Add(time.Duration(n) * time.Second) }}
		f.Ensure(t0, hosts("a"))
		connect(f, 0)
		j := job(hosts("a")...)
		j.Strict, j.Asked = true, t0
		n := 0
		var d Decision
		for ; n < 3600; n++ {
			c.each(f, n)
			if d = f.Pick(f.at(n), j); d.Verdict != Wait {
				break
			}
		}
		if n < 3600 && c.last == 0 || c.last > 0 && n != c.last {
			t.Errorf("%s: after %d s, want %d: %+v", name, n, c.last, d)
		}
	}
}
