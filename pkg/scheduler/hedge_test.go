package scheduler

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// hedgesAt asks twice, as an owner does, and starts what comes.
func hedgesAt(s *Scheduler, now time.Time, jobs map[uint64]*Job) (list []Hedge) {
	list, _ = s.Hedges(now)
	for _, h := range list {
		s.Started(now, h.ID, h.Host, jobs[h.ID])
	}
	return list
}

// stuck has n jobs on a host that does not answer, and another one that is idle.
func stuck(t *testing.T, n int, cost Cost) (*Scheduler, map[uint64]*Job) {
	s := fixed(0.5)
	up(s, t0, "bad", 64)
	up(s, t0, "good", 64)
	jobs := make(map[uint64]*Job)
	list := hosts("bad", "good")
	for id := uint64(1); id <= uint64(n); id++ {
		j := &Job{Hosts: list, Toolchain: tool, Cost: cost, Tried: map[string]bool{"good": true}}
		jobs[id] = j
		if h := launch(t, s, t0, id, j); h != "bad" {
			t.Fatalf("job %d is on %s", id, h)
		}
		j.Tried = nil
	}
	return s, jobs
}

var second = Cost{Time: time.Second, P95: 1500 * ms, Known: true}

// TestBudgetOfDuplicates: some, and one for twenty that run.
func TestBudgetOfDuplicates(t *testing.T) {
	for n, want := range map[int]int{1: 1, 2: 2, 3: 2, 19: 2, 20: 3, 60: 5} {
		s, jobs := stuck(t, n, second)
		now := t0.Add(10 * time.Second)
		if got := hedgesAt(s, now, jobs); len(got) != want || !slices.IsSortedFunc(got, func(a, b Hedge) int { return int(a.ID) - int(b.ID) }) {
			t.Errorf("of %d late jobs %v are duplicated, want the first %d", n, got, want)
		}
		if got := hedgesAt(s, now, jobs); n < 18 && len(got) != 0 {
			t.Errorf("of %d late jobs %v more are duplicated", n, got)
		}
		// One ends: the next one has its turn.
		s.Done(now, "good", OK, Report{ID: 1})
		s.Done(now, "bad", Unused, Report{ID: 1})
		if got := hedgesAt(s, now, jobs); n > want && len(got) == 0 {
			t.Errorf("of %d late jobs none is duplicated after the first one's end", n)
		}
	}
}

// TestAnsweredJobIsNotDuplicated: the one that was slower is cancelled, and needs no other host.
func TestAnsweredJobIsNotDuplicated(t *testing.T) {
	for name, o := range map[string]Outcome{"answered": OK, "lost": Gone} {
		s, jobs := stuck(t, 1, second)
		now := t0.Add(10 * time.Second)
		if got := hedgesAt(s, now, jobs); len(got) != 1 || got[0].Host != "good" {
			t.Fatalf("duplicates %v, want one on good", got)
		}
		up(s, now, "third", 64)
		jobs[1].Hosts = hosts("bad", "good", "third")
		s.Done(now, "good", o, Report{ID: 1})
		got := hedgesAt(s, now.Add(time.Second), jobs)
		if want := o != OK; (len(got) > 0) != want {
			t.Errorf("%s: duplicates %v of a job whose first duplicate ended", name, got)
		}
	}
}

// TestDuplicatesOfDifferentLength: of two that one call names for a host, each is known as what it is.
func TestDuplicatesOfDifferentLength(t *testing.T) {
	s, jobs := stuck(t, 2, second)
	jobs[2].Cost.Time, jobs[2].Cost.P95 = 5*time.Second, 6*time.Second
	s.runs[runKey{2, "bad"}].one = jobs[2].Cost.Time
	if got := hedgesAt(s, t0.Add(20*time.Second), jobs); len(got) != 2 {
		t.Fatalf("duplicates %v, want two", got)
	}
	one, five := s.runs[runKey{1, "good"}].one, s.runs[runKey{2, "good"}].one
	if one >= five {
		t.Errorf("the job of a second is known with %v, that of five with %v", one, five)
	}
}

// TestSpareDuplicates: one for twenty jobs that went well is kept for a bad moment.
func TestSpareDuplicates(t *testing.T) {
	for before, want := range map[int]int{0: 2, 20: 2, 101: 5, 201: 10, 2000: 10} {
		s, jobs := stuck(t, 10, second)
		s.spare = 0
		for range before {
			launch(t, s, t0, 99, known(time.Second, hosts("good")...))
			s.Done(t0, "good", OK, Report{ID: 99})
			s.Credits(t0, "good", 64)
		}
		now := t0.Add(10 * time.Second)
		got := hedgesAt(s, now, jobs)
		if len(got) != want {
			t.Errorf("after %d jobs %d of 10 late ones are duplicated, want %d", before, len(got), want)
		}
		if s.spare > mostSpare {
			t.Errorf("%v duplicates are kept", s.spare)
		}
	}
}

func TestNoDuplicate(t *testing.T) {
	now := t0.Add(10 * time.Second)
	for what, change := range map[string]func(s *Scheduler, j *Job){
		"the only other host is full":         func(s *Scheduler, _ *Job) { s.Credits(t0, "good", 0) },
		"it was tried":                        func(_ *Scheduler, j *Job) { j.Tried = map[string]bool{"good": true} },
		"it is drained":                       func(s *Scheduler, _ *Job) { s.Drain("good", true) },
		"it would not be done sooner":         func(s *Scheduler, _ *Job) { s.Link(t0, "good", Link{RTT: 10 * time.Second}) },
		"its list has one host":               func(_ *Scheduler, j *Job) { j.Hosts = j.Hosts[:1] },
		"the other one is not connected":      func(s *Scheduler, _ *Job) { s.Lost(t0, "good", "x", false) },
		"the other one has not this compiler": func(s *Scheduler, j *Job) { j.Toolchain = [16]byte{9} },
	} {
		s, jobs := stuck(t, 1, second)
		change(s, jobs[1])
		list, next := s.Hedges(now)
		if len(list) != 0 {
			t.Errorf("%s: %v", what, list)
		}
		if what != "its list has one host" && !next.Equal(now.Add(hedgeAgain)) {
			t.Errorf("%s: asked again at %v", what, next.Sub(now))
		}
	}
}

// TestFirstPlaceIsForTheLate: a place that comes free between two questions.
func TestFirstPlaceIsForTheLate(t *testing.T) {
	s, jobs := stuck(t, 1, second)
	s.Credits(t0, "good", 0)
	now := t0.Add(10 * time.Second)
	if got := hedgesAt(s, now, jobs); len(got) != 0 {
		t.Fatal(got)
	}
	s.Credits(now, "good", 1)
	if got := hedgesAt(s, now.Add(ms), jobs); len(got) != 1 {
		t.Errorf("duplicates are %v, want one as soon as there is a place", got)
	}
}

// TestLongJobIsNoStraggler: if a job's length was not known, and its host answers others, the job is long.
func TestLongJobIsNoStraggler(t *testing.T) {
	now := t0.Add(10 * time.Second)
	s, jobs := stuck(t, 2, Cost{})
	s.Done(t0.Add(5*time.Second), "bad", OK, Report{ID: 2})
	if got := hedgesAt(s, now, jobs); len(got) != 0 {
		t.Errorf("%v", got)
	}
	// A host on which even a long one would be done before.
	s.hosts["good"].capacity.Speed = map[[16]byte]float64{tool: 4}
	if got := hedgesAt(s, now.Add(hedgeAgain), jobs); len(got) != 1 {
		t.Errorf("%v, want one on the fast host", got)
	}
	// By what is known now, not when it was sent.
	s, jobs = stuck(t, 2, Cost{})
	s.Done(t0.Add(5*time.Second), "bad", OK, Report{ID: 2})
	s.typical.time.add(20, 1000, 1000)
	s.hosts["bad"].capacity.Speed = map[[16]byte]float64{tool: 4}
	s.hosts["good"].capacity.Speed = map[[16]byte]float64{tool: 10}
	if got := hedgesAt(s, now, jobs); len(got) != 1 {
		t.Errorf("%v, want one: what it has had there takes 4 s elsewhere", got)
	}
	s, jobs = stuck(t, 2, Cost{})
	if got := hedgesAt(s, now, jobs); len(got) != 2 {
		t.Errorf("%v, want both: the host has not answered anything", got)
	}
	s, jobs = stuck(t, 2, second)
	s.Done(t0.Add(5*time.Second), "bad", OK, Report{ID: 2})
	if got := hedgesAt(s, now, jobs); len(got) != 1 {
		t.Errorf("%v, want one: it is known that it should be done", got)
	}
}

// TestHostThatNeverAnswers: it is detected: its jobs are duplicated, it gets fewer, and then none for a
// while, and again none when its test job hangs too.
func TestHostThatNeverAnswers(t *testing.T) {
	s, jobs := stuck(t, 4, second)
	now := t0.Add(10 * time.Second)
	list := jobs[1].Hosts
	pick := func(now time.Time) Decision {
		d := s.Pick(now, known(time.Second, list...))
		if d.Verdict == Run {
			s.Done(now, d.Host, Unused, Report{})
		}
		return d
	}
	for range 3 {
		for _, h := range hedgesAt(s, now, jobs) {
			s.Done(now, h.Host, OK, Report{ID: h.ID})
			s.Done(now, "bad", Unused, Report{ID: h.ID})
		}
		wantRun(t, pick(now), "good") // though bad is the first of the list
	}
	if h := s.hosts["bad"]; !h.open.After(now) || h.why != "its jobs do not end" {
		t.Errorf("open at %v, why %q", h.open, h.why)
	}
	j := known(time.Second, hosts("bad")...)
	wantLocal(t, s.Pick(now, j), reason.HostLost, "its jobs do not end")
	// Half open: its one job is the test.
	now = now.Add(time.Second)
	j = known(time.Second, list...)
	j.Tried = map[string]bool{"good": true}
	launch(t, s, now, 9, j)
	wantWait(t, s.Pick(now, known(time.Second, hosts("bad")...)), time.Time{})
	j.Tried = nil
	jobs[9] = j
	now = now.Add(10 * time.Second)
	if got := hedgesAt(s, now, jobs); len(got) != 1 {
		t.Fatalf("%v", got)
	}
	s.Done(now, "good", OK, Report{ID: 9})
	s.Done(now, "bad", Unused, Report{ID: 9})
	wantLocal(t, s.Pick(now, known(time.Second, hosts("bad")...)), reason.HostLost, "its jobs do not end")
	// One that went well makes it whole.
	now = now.Add(10 * time.Second)
	for id := range uint64(2) {
		launch(t, s, now, id+10, known(time.Second, hosts("bad")...))
		s.Done(now, "bad", OK, Report{ID: id + 10, Wall: time.Second, CPU: time.Second})
	}
	if d := pick(now); d.Verdict != Run || s.hosts["bad"].halfOpen() {
		t.Errorf("%+v after it has answered", d)
	}
}

// TestOriginalWins: no host is blamed.
func TestOriginalWins(t *testing.T) {
	s, jobs := stuck(t, 1, second)
	now := t0.Add(10 * time.Second)
	if got := hedgesAt(s, now, jobs); len(got) != 1 {
		t.Fatal(got)
	}
	s.Done(now, "bad", OK, Report{ID: 1})
	s.Done(now, "good", Unused, Report{ID: 1})
	for _, h := range s.hosts {
		if h.stalls != 0 {
			t.Errorf("%s has %v stalls", h.addr, h.stalls)
		}
	}
}

// TestDuplicateIsLost: the job is late still, and gets another one.
func TestDuplicateIsLost(t *testing.T) {
	s, jobs := stuck(t, 1, second)
	up(s, t0, "third", 1)
	jobs[1].Hosts = hosts("bad", "good", "third")
	now := t0.Add(10 * time.Second)
	got := hedgesAt(s, now, jobs)
	s.Lost(now, "good", "reset", false)
	s.Done(now, "good", Gone, Report{ID: 1})
	got = append(got, hedgesAt(s, now, jobs)...)
	if want := []Hedge{{1, "good"}, {1, "third"}}; !slices.Equal(got, want) {
		t.Errorf("duplicates are %v, want %v", got, want)
	}
	// The original is lost: the duplicate stays, and is a job as any other.
	s.Lost(now, "bad", "reset", false)
	s.Done(now, "bad", Gone, Report{ID: 1})
	if s.copies != 0 || len(s.runs) != 1 {
		t.Errorf("%d duplicates of %d runs", s.copies, len(s.runs))
	}
}

// TestQueueIsNoDelay: a job that queues behind others on its host is not late for that.
func TestQueueIsNoDelay(t *testing.T) {
	s := fixed(0)
	up(s, t0, "a", 1)
	s.Credits(t0, "a", 2)
	s.Link(t0, "a", Link{RTT: time.Second})
	for id := range uint64(2) {
		launch(t, s, t0, id+1, known(10*time.Second, hosts("a")...))
	}
	// The first one: there at 0.5 s, 15 s later than most, back at 16 s. The second
	// one: as much behind, and the queue may be twice as long.
	first, next := s.runs[runKey{1, "a"}], s.runs[runKey{2, "a"}]
	if first.late != 16*time.Second || next.late != 36*time.Second {
		t.Errorf("late at %v and %v, want 16 s and 36 s", first.late, next.late)
	}
	// It begins when the first one has ended, and counts from then on.
	s.Done(t0.Add(13*time.Second), "a", OK, Report{ID: 1})
	s.freeAt(s.hosts["a"], 13*time.Second)
	if next.begin != 13*time.Second || next.late != 13*time.Second+15*time.Second+500*ms {
		t.Errorf("begins at %v, late at %v", next.begin, next.late)
	}
}

// TestHostThatLags: one late job is that job, most of them are the host, and it gets
// no new ones while another is as good.
func TestHostThatLags(t *testing.T) {
	for late, want := range map[int]string{0: "a", 1: "a", 2: "a", 3: "b", 4: "b"} {
		s := fixed(0)
		fast(s, "a", 8, 2)
		fast(s, "b", 8, 1)
		for id := range 4 {
			took := 100 * time.Second
			if id < late {
				took = time.Second
			}
			launch(t, s, t0, uint64(id+1), known(took, hosts("a")...))
		}
		d := s.Pick(t0.Add(5*time.Second), known(10*time.Second, hosts("a", "b")...))
		if d.Host != want {
			t.Errorf("%d of 4 jobs are late: %+v, want %s", late, d, want)
		}
	}
}

// TestContention: wall time beside CPU time tells of others on a host, for a while.
func TestContention(t *testing.T) {
	s := fixed(0)
	fast(s, "a", 8, 1.5)
	fast(s, "b", 8, 1)
	s.clock(t0)
	now := t0.Add(time.Second)
	for id := range uint64(5) {
		launch(t, s, now, id+1, known(1500*ms, hosts("a")...))
		s.Done(now, "a", OK, Report{ID: id + 1, CPU: time.Second, Wall: 4 * time.Second})
	}
	var got []string
	for _, d := range []time.Duration{0, 5 * time.Second, 29 * time.Second} {
		x := s.Pick(now.Add(d), known(2*time.Second, hosts("a", "b")...))
		s.Done(now.Add(d), x.Host, Unused, Report{})
		got = append(got, x.Host)
	}
	if fmt.Sprint(got) != "[b b a]" {
		t.Errorf("hosts are %v, want b until the contention is forgotten", got)
	}
}

// TestJobsOfAForgottenHost are their owner's to end.
func TestJobsOfAForgottenHost(t *testing.T) {
	s, jobs := stuck(t, 2, second)
	s.Forget("bad")
	if got := hedgesAt(s, t0.Add(10*time.Second), jobs); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for id := range jobs {
		s.Done(t0, "bad", Gone, Report{ID: id})
	}
	if len(s.runs)+len(s.builds) != 0 {
		t.Errorf("%d runs and %d builds are left", len(s.runs), len(s.builds))
	}
}

// TestJobsOfAHostThatStalls are late with those that were overtaken there.
func TestJobsOfAHostThatStalls(t *testing.T) {
	s, jobs := stuck(t, 3, second)
	long := known(60*time.Second, jobs[1].Hosts...)
	long.Tried = map[string]bool{"good": true}
	launch(t, s, t0, 4, long)
	long.Tried = nil
	jobs[4] = long
	now := t0.Add(10 * time.Second)
	for id := uint64(1); id <= 3; {
		for _, h := range hedgesAt(s, now, jobs) {
			if h.ID == 4 {
				t.Fatal("the long one is duplicated before its host is known to stall")
			}
			s.Done(now, h.Host, OK, Report{ID: h.ID})
			s.Done(now, "bad", Unused, Report{ID: h.ID})
			id++
		}
	}
	// Twice as slow by what is believed of it now: 110 s are left, 60 s elsewhere.
	if got := hedgesAt(s, now.Add(ms), jobs); len(got) != 1 || got[0].ID != 4 {
		t.Errorf("%v, want the long one too", got)
	}
}
