package scheduler

import (
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

var (
	t0   = time.Unix(1e9, 0)
	tool = [16]byte{1}
)

// fixed returns a Scheduler whose random numbers are all r.
func fixed(r float64) *Scheduler {
	return New(Config{Rand: func() float64 { return r }})
}

func hosts(words ...string) []Host {
	var out []Host
	for _, w := range words {
		out = append(out, Host{Addr: w})
	}
	return out
}

// up connects addr with n places, n credits and the tests' toolchain.
func up(s *Scheduler, now time.Time, addr string, n int) {
	s.Ensure(now, hosts(addr))
	s.Connecting(now, addr)
	s.Up(now, addr, Capacity{Jobs: n, Toolchains: 1})
	s.Toolchains(addr, tool)
	s.Credits(now, addr, n)
}

func job(list ...Host) *Job { return &Job{Hosts: list, Toolchain: tool, Since: t0} }

func wantRun(t *testing.T, d Decision, host string) {
	t.Helper()
	if d.Verdict != Run || d.Host != host {
		t.Errorf("decision is %+v, want Run on %s", d, host)
	}
}

func wantWait(t *testing.T, d Decision, until time.Time) {
	t.Helper()
	if d.Verdict != Wait || !d.Until.Equal(until) {
		t.Errorf("decision is %+v, want Wait until %v", d, until)
	}
}

func wantLocal(t *testing.T, d Decision, reason, detail string) {
	t.Helper()
	if d.Verdict != Local || d.Reason != reason || !strings.Contains(d.Detail, detail) {
		t.Errorf("decision is %+v, want Local for %s that says %q", d, reason, detail)
	}
}

// TestOthersJobs: between hosts with the same part of our own jobs, those of other
// managers decide, as long as that view is worth something.
func TestOthersJobs(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 4)
	up(s, t0, "b", 8)
	s.Load(t0, "a", Load{Running: 2})
	s.Load(t0, "b", Load{Running: 3, Queued: 2})
	list := hosts("b", "a")
	wantRun(t, s.Pick(t0, job(list...)), "a") // 2 of 4 against 5 of 8
	s.Done(t0, "a", Unused, Report{})
	s.Load(t0, "a", Load{Running: 3})
	wantRun(t, s.Pick(t0, job(list...)), "b")
	s.Done(t0, "b", Unused, Report{})
	// What we have there ourselves is not others'.
	wantRun(t, s.Pick(t0, job(hosts("a")...)), "a")
	wantRun(t, s.Pick(t0, job(hosts("b")...)), "b")
	wantRun(t, s.Pick(t0, job(hosts("b")...)), "b")
	s.Load(t0, "a", Load{Running: 1})
	s.Load(t0, "b", Load{Running: 5})
	wantRun(t, s.Pick(t0, job(list...)), "a")
	for _, h := range []string{"a", "a", "b", "b"} {
		s.Done(t0, h, Unused, Report{})
	}
	// Old views count for nothing: then the list's order does.
	later := t0.Add(viewOld)
	wantRun(t, s.Pick(later, job(list...)), "b")
}

func TestLeastTakenHostFirst(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 2)
	up(s, t0, "b", 4)
	list := hosts("a", "b")
	var got []string
	for range 6 {
		got = append(got, s.Pick(t0, job(list...)).Host)
	}
	// By running/places: a 0/2, b 0/4, then b 1/4 before a 1/2, then a list tie at 1/2, ...
	if want := "a b b a b b"; strings.Join(got, " ") != want {
		t.Errorf("hosts are %q, want %q", got, want)
	}
	wantWait(t, s.Pick(t0, job(list...)), time.Time{})
}

func TestListCapsTheHost(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 8)
	j := job(Host{Addr: "a", Slots: 2})
	wantRun(t, s.Pick(t0, j), "a")
	wantRun(t, s.Pick(t0, j), "a")
	wantWait(t, s.Pick(t0, j), time.Time{})
	// Another list has other slots for the same host.
	wantRun(t, s.Pick(t0, job(Host{Addr: "a", Slots: 3})), "a")
	s.Done(t0, "a", OK, Report{})
	s.Done(t0, "a", OK, Report{})
	wantRun(t, s.Pick(t0, j), "a")
}

func TestEqualHostsByLoadThenOrder(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 4)
	up(s, t0, "b", 4)
	wantRun(t, s.Pick(t0, job(hosts("b", "a")...)), "b")
	s.Done(t0, "b", OK, Report{})
	s.Load(t0, "b", Load{Average: 9})
	wantRun(t, s.Pick(t0, job(hosts("b", "a")...)), "a")
}

func TestRandomizeStartsAnywhere(t *testing.T) {
	s := fixed(0.5)
	for _, a := range []string{"a", "b", "c", "d"} {
		up(s, t0, a, 1)
	}
	j := job(hosts("a", "b", "c", "d")...)
	j.Random = true
	wantRun(t, s.Pick(t0, j), "c")
	wantRun(t, s.Pick(t0, j), "d")
	wantRun(t, s.Pick(t0, j), "a")
}

func TestTriedHostIsLeftOut(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	up(s, t0, "b", 1)
	j := job(hosts("a", "b")...)
	j.Tried = map[string]bool{"a": true}
	wantRun(t, s.Pick(t0, j), "b")
	j.Tried["b"] = true
	wantLocal(t, s.Pick(t0, j), reason.HostLost, "every host was tried")
}

func TestReasonsWhyNoHostWillDo(t *testing.T) {
	s := fixed(0)
	list := hosts("a", "b")
	wantLocal(t, s.Pick(t0, job()), reason.NoHosts, "no hosts configured")
	s.Ensure(t0, list)
	for _, a := range []string{"a", "b"} {
		s.Connecting(t0, a)
	}
	s.Lost(t0, "a", "connection refused", false)
	s.Lost(t0, "b", "no route", false)
	wantLocal(t, s.Pick(t0, job(list...)), reason.HostLost, "a lost (connection refused)")

	s.Connecting(t0, "b") // another attempt is no reason to wait for long
	wantLocal(t, s.Pick(t0.Add(recheckTime), job(hosts("b")...)), reason.HostLost, "b lost (no route)")
	s.Lost(t0, "b", "not in its allow list", true)
	wantLocal(t, s.Pick(t0, job(hosts("b")...)), reason.Denied, "b refuses this machine (not in its allow list)")

	up(s, t0, "b", 1)
	j := job(list...)
	j.Toolchain = [16]byte{9}
	wantLocal(t, s.Pick(t0, j), reason.Toolchain, "b does not have this compiler")

	s.Up(t0, "b", Capacity{Jobs: 1, MaxBody: 1000, Toolchains: 1})
	s.Toolchains("b", tool)
	s.Credits(t0, "b", 1)
	j = job(list...)
	j.Size = 1001
	wantLocal(t, s.Pick(t0, j), reason.TooBig, "slot of b")
	j.Size = 1000
	wantRun(t, s.Pick(t0, j), "b")

	j.Tree = true
	wantLocal(t, s.Pick(t0, j), reason.Paths, "b cannot show private trees")

	s.Draining(t0, "b")
	wantLocal(t, s.Pick(t0, job(list...)), reason.Draining, "b is draining")
}

// TestTrees: a job is made for a private tree while some host of its own that has
// the compiler shows them, or none is known; then only such a host gets it.
func TestTrees(t *testing.T) {
	s := fixed(0)
	list := hosts("a", "b")
	s.Ensure(t0, list)
	want := func(what string, now time.Time, yes bool, wait time.Time) {
		t.Helper()
		if got, until := s.Trees(now, list, tool); got != yes || !until.Equal(wait) {
			t.Errorf("%s: trees %v, worth waiting until %v; want %v, %v", what, got, until, yes, wait)
		}
	}
	never, grace := time.Time{}, t0.Add(time.Second)
	want("nothing known", t0, true, grace)
	want("nothing known after a while", grace, true, never)
	up(s, t0, "a", 4)
	want("one that shows none, the other one is still being connected", t0, false, grace)
	s.Up(t0, "b", Capacity{Jobs: 1, Toolchains: 1, Tree: true})
	want("one that shows trees and has not said what it can run", t0, false, never)
	s.Toolchains("b", tool)
	s.Credits(t0, "b", 1)
	want("one of each", t0, true, never)
	j := job(list...)
	j.Tree = true
	wantRun(t, s.Pick(t0, j), "b")
	s.Lost(t0, "b", "gone", false)
	want("the one that shows trees is lost", t0, false, never)
	s.Connecting(t0, "b")
	want("it is being connected again", t0, false, never)
}

// TestTreesOfIdentifyingHosts: what shows no trees takes the other form only, whichever
// compilers it turns out to have.
func TestTreesOfIdentifyingHosts(t *testing.T) {
	for _, tree := range []bool{false, true} {
		s := fixed(0)
		s.Ensure(t0, hosts("a"))
		s.Up(t0, "a", Capacity{Jobs: 1, Tree: tree})
		s.Identifying("a", true)
		if got, until := s.Trees(t0, hosts("a"), tool); got != tree || !until.IsZero() {
			t.Errorf("trees shown: %v; a job is made for trees: %v, until %v", tree, got, until)
		}
	}
}

func TestFirstConnectionIsWorthAMoment(t *testing.T) {
	s := fixed(0)
	list := hosts("a")
	s.Ensure(t0, list)
	wantWait(t, s.Pick(t0, job(list...)), t0.Add(time.Second))
	s.Connecting(t0, "a")
	wantWait(t, s.Pick(t0.Add(999*time.Millisecond), job(list...)), t0.Add(time.Second))
	wantLocal(t, s.Pick(t0.Add(time.Second), job(list...)), reason.HostLost, "a does not answer")

	// Toolchains arrive after Up.
	now := t0.Add(2 * time.Second)
	s.Up(now, "a", Capacity{Jobs: 1, Toolchains: 2})
	s.Credits(now, "a", 1)
	s.Toolchains("a", [16]byte{7})
	wantWait(t, s.Pick(now, job(list...)), now.Add(time.Second))
	s.Toolchains("a", tool)
	wantRun(t, s.Pick(now, job(list...)), "a")
}

// A daemon that gives no credits is found out; one where our own jobs run is not
// suspected.
func TestHostWithoutCredits(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	s.Credits(t0, "a", 0)
	j := job(hosts("a")...)
	wantWait(t, s.Pick(t0, j), t0.Add(5*time.Second))
	later := t0.Add(5 * time.Second)
	wantLocal(t, s.Pick(later, j), reason.Full, "a has no free place")
	j.Strict = true
	wantWait(t, s.Pick(later, j), t0.Add(time.Minute))
	wantLocal(t, s.Pick(t0.Add(time.Minute), j), reason.Full, "a has no free place")

	later = t0.Add(time.Minute)
	s.Credits(later, "a", 1)
	wantRun(t, s.Pick(later, j), "a")
	wantWait(t, s.Pick(later.Add(time.Hour), job(hosts("a")...)), time.Time{})
}

func TestLocalShareWhenHostsAreBusy(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	j := job(hosts("a")...)
	j.Share = 2
	wantRun(t, s.Pick(t0, j), "a")
	for range 2 {
		d := s.Pick(t0, j)
		wantLocal(t, d, reason.LocalShare, "")
		if !d.Share {
			t.Error("decision holds no place of the share")
		}
	}
	wantWait(t, s.Pick(t0, j), time.Time{})
	s.ShareDone()
	j.NoLocal = true
	wantWait(t, s.Pick(t0, j), time.Time{})
	j.NoLocal = false
	wantLocal(t, s.Pick(t0, j), reason.LocalShare, "")

	// Lost hosts are trouble, not a full farm: the user is told.
	s.Lost(t0, "a", "reset", false)
	s.ShareDone()
	wantLocal(t, s.Pick(t0, j), reason.HostLost, "reset")
	// A list of nothing but localhost asks for no host.
	wantLocal(t, s.Pick(t0, &Job{Share: 1, Toolchain: tool}), reason.LocalShare, "")
}
