package scheduler

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

const ms = time.Millisecond

// fast connects addr with n places of a speed that it tells itself.
func fast(s *Scheduler, addr string, n int, speed float64) {
	s.Ensure(t0, hosts(addr))
	s.Connecting(t0, addr)
	s.Up(t0, addr, Capacity{Jobs: n, Toolchains: 1, Speed: map[[16]byte]float64{tool: speed}})
	s.Toolchains(addr, tool)
	s.Credits(t0, addr, n)
}

// known is a job that is known to take so long on a core of speed 1.
func known(took time.Duration, list ...Host) *Job {
	j := job(list...)
	j.Cost = Cost{Time: took, P95: took * 3 / 2, Known: true}
	return j
}

// launch picks and starts j, which has to go to a host.
func launch(t *testing.T, s *Scheduler, now time.Time, id uint64, j *Job) string {
	t.Helper()
	d := s.Pick(now, j)
	if d.Verdict != Run {
		t.Fatalf("job %d: decision is %+v, want Run", id, d)
	}
	s.Started(now, id, d.Host, j)
	return d.Host
}

// TestEarliestFinish: each case is one rule of what makes a host finish early.
func TestEarliestFinish(t *testing.T) {
	type hostSpec struct {
		cores int
		speed float64
		link  Link
		load  *Load
		ours  []time.Duration // jobs of ours that run there
		held  uint64          // bytes to be sent that it has already
	}
	for _, c := range []struct {
		what string
		a, b hostSpec
		job  Cost
		size uint64
		want string // a, b, or wait
	}{
		{"equal: the first of the list", hostSpec{}, hostSpec{}, Cost{Time: time.Second}, 0, "a"},
		{"the faster one", hostSpec{}, hostSpec{speed: 2}, Cost{Time: time.Second}, 0, "b"},
		{"hardly faster: the first", hostSpec{}, hostSpec{speed: 1.02}, Cost{Time: time.Second}, 0, "a"},
		{"a little faster, but half taken: still faster", hostSpec{}, hostSpec{speed: 1.5, ours: []time.Duration{time.Hour, time.Hour}}, Cost{Time: time.Second}, 0, "b"},
		{"as good, and less taken", hostSpec{ours: []time.Duration{time.Hour}}, hostSpec{}, Cost{Time: time.Second}, 0, "b"},
		{"far: the near one", hostSpec{link: Link{RTT: 300 * ms}}, hostSpec{}, Cost{Time: time.Second}, 0, "b"},
		{"far and fast, a long job", hostSpec{link: Link{RTT: 300 * ms}, speed: 2}, hostSpec{}, Cost{Time: time.Second}, 0, "a"},
		{"far and fast, a short job", hostSpec{link: Link{RTT: 300 * ms}, speed: 2}, hostSpec{}, Cost{Time: 100 * ms}, 0, "b"},
		{"a slow line, much to send", hostSpec{link: Link{Rate: 1e6}, speed: 2}, hostSpec{}, Cost{Time: time.Second}, 1e6, "b"},
		{"a slow line, little to send", hostSpec{link: Link{Rate: 1e6}, speed: 2}, hostSpec{}, Cost{Time: time.Second}, 1e4, "a"},
		{"a slow line, much to send, nearly all of which it holds", hostSpec{link: Link{Rate: 1e6}, speed: 2, held: 99e4}, hostSpec{}, Cost{Time: time.Second}, 1e6, "a"},
		{"slow lines: the one that holds most of it", hostSpec{link: Link{Rate: 1e6}}, hostSpec{link: Link{Rate: 1e6}, held: 9e5}, Cost{Time: time.Second}, 1e6, "b"},
		{"full of others' jobs", hostSpec{load: &Load{Running: 4, Queued: 4}, speed: 1.2}, hostSpec{}, Cost{Time: time.Second}, 0, "b"},
		{"others' jobs, and cores left", hostSpec{load: &Load{Running: 3}, speed: 1.2}, hostSpec{}, Cost{Time: time.Second}, 0, "a"},
		{"processes that are no compiles", hostSpec{load: &Load{Average: 8}, speed: 2}, hostSpec{}, Cost{Time: time.Second}, 0, "b"},
		{"a load average below the cores", hostSpec{load: &Load{Average: 2}, speed: 1.2}, hostSpec{}, Cost{Time: time.Second}, 0, "a"},
		{"much faster and soon free: it waits", hostSpec{cores: 1, speed: 10, ours: []time.Duration{5 * time.Second}}, hostSpec{}, Cost{Time: 10 * time.Second}, 0, "wait"},
		{"much faster, not soon free", hostSpec{cores: 1, speed: 10, ours: []time.Duration{500 * time.Second}}, hostSpec{}, Cost{Time: 10 * time.Second}, 0, "b"},
		{"soon free, hardly faster", hostSpec{cores: 1, speed: 1.05, ours: []time.Duration{ms}}, hostSpec{}, Cost{Time: 10 * time.Second}, 0, "b"},
		{"it has not as much memory", hostSpec{load: &Load{MemoryFree: 1 << 30}, speed: 2}, hostSpec{}, Cost{Time: time.Second, Memory: 2 << 30}, 0, "b"},
		{"it has the memory", hostSpec{load: &Load{MemoryFree: 2 << 30}, speed: 2}, hostSpec{}, Cost{Time: time.Second, Memory: 2 << 30}, 0, "a"},
	} {
		s := fixed(0)
		list := hosts("a", "b")
		id := uint64(1)
		for addr, h := range map[string]hostSpec{"a": c.a, "b": c.b} {
			if h.cores == 0 {
				h.cores = 4
			}
			if h.speed == 0 {
				h.speed = 1
			}
			fast(s, addr, h.cores, h.speed)
			for _, took := range h.ours {
				launch(t, s, t0, id, known(took, hosts(addr)...))
				id++
			}
			s.Link(t0, addr, h.link)
			if h.load != nil {
				h.load.Running += len(h.ours)
				s.Load(t0, addr, *h.load)
			}
		}
		j := known(0, list...)
		j.Cost, j.Bytes, j.Held = c.job, c.size, map[string]uint64{"a": c.a.held, "b": c.b.held}
		j.Cost.Known = true
		d := s.Pick(t0, j)
		got := d.Host
		if d.Verdict == Wait {
			got = "wait"
			if !d.Until.After(t0) {
				t.Errorf("%s: it waits for ever", c.what)
			}
		}
		if got != c.want {
			t.Errorf("%s: %+v, want %s", c.what, d, c.want)
		}
	}
}

// TestFinishIsTold: the time that a decision names is made of way, queue and length.
func TestFinishIsTold(t *testing.T) {
	s := fixed(0)
	fast(s, "a", 1, 2)
	s.Credits(t0, "a", 2)
	s.Link(t0, "a", Link{RTT: 100 * ms, Rate: 1e6})
	j := known(2*time.Second, hosts("a")...)
	j.Bytes = 200e3
	if d := s.Pick(t0, j); d.Finish != 50*ms+200*ms+time.Second+50*ms {
		t.Errorf("finish is %v, want 50 ms there, 200 ms of bytes, 1 s, and 50 ms back", d.Finish)
	}
	// The next one's bytes queue behind the first one's, and wait there for the core.
	s.hosts["a"].bytes.add(1e9, 1, 1) // as many on the way as cores
	if d := s.Pick(t0, j); d.Finish != 250*ms+time.Second+time.Second+50*ms {
		t.Errorf("finish behind another is %v", d.Finish)
	}
}

// TestWaitingJobsHoldTheirPlace: a host that is worth waiting for is so for as many
// as it will have places, not for all that wait.
func TestWaitingJobsHoldTheirPlace(t *testing.T) {
	s := fixed(0)
	fast(s, "quick", 1, 4)
	fast(s, "slow", 8, 1)
	list := hosts("slow", "quick")
	launch(t, s, t0, 1, known(4*time.Second, hosts("quick")...)) // for a second
	var got []string
	now := t0.Add(ms)
	for range 4 {
		d := s.Pick(now, known(4*time.Second, list...))
		got = append(got, map[Verdict]string{Run: d.Host, Wait: "wait"}[d.Verdict])
	}
	if want := "[wait wait slow slow]"; fmt.Sprint(got) != want {
		t.Errorf("decisions are %v, want %s: 2 s, 3 s, then 4 s either way", got, want)
	}
	// The next time that all are asked it begins anew.
	s.Order(now, nil)
	if d := s.Pick(now, known(4*time.Second, list...)); d.Verdict != Wait {
		t.Errorf("in the next round: %+v, want Wait", d)
	}
	// And at another moment.
	if d := s.Pick(now.Add(ms), known(4*time.Second, list...)); d.Verdict != Wait {
		t.Errorf("a moment later: %+v, want Wait", d)
	}
}

// TestWaitingForABetterHostEnds even if others take that host again and again.
func TestWaitingForABetterHostEnds(t *testing.T) {
	s := fixed(0)
	fast(s, "quick", 1, 10)
	fast(s, "slow", 1, 1)
	list := hosts("slow", "quick")
	j := known(10*time.Second, list...)
	for id := uint64(1); ; id++ {
		now := t0.Add(time.Duration(id) * time.Second)
		s.Credits(now, "quick", 1)
		launch(t, s, now, id, known(10*time.Second, hosts("quick")...))
		if d := s.Pick(now, j); d.Verdict == Run {
			if waited := now.Sub(t0); d.Host != "slow" || waited < 40*time.Second || waited > 42*time.Second {
				t.Errorf("%s after %v, want slow after four times the 10 s that it takes there", d.Host, waited)
			}
			return
		}
		if id > 100 {
			t.Fatal("it waits for ever")
		}
		s.Done(now.Add(999*ms), "quick", OK, Report{ID: id})
	}
}

// TestHostIsFilledToItsDepth and not further, though it grants more.
func TestHostIsFilledToItsDepth(t *testing.T) {
	for rtt, want := range map[time.Duration]int{0: 4, 250 * ms: 5, time.Second: 8} {
		s := fixed(0)
		up(s, t0, "a", 4)
		s.Credits(t0, "a", 100)
		s.Link(t0, "a", Link{RTT: rtt})
		n := 0
		for s.Pick(t0, known(time.Second, hosts("a")...)).Verdict == Run {
			n++
		}
		if n != want {
			t.Errorf("at an RTT of %v %d jobs, want %d", rtt, n, want)
		}
		if live := s.Live(hosts("a")); live != want {
			t.Errorf("at an RTT of %v Live says %d, want %d", rtt, live, want)
		}
	}
}

func TestOldViews(t *testing.T) {
	s := fixed(0)
	fast(s, "a", 4, 1.5)
	fast(s, "b", 4, 1)
	list := hosts("a", "b")
	at := func(d time.Duration) string {
		d0 := s.Pick(t0.Add(d), known(2*time.Second, list...)) // too long for a probe
		s.Done(t0.Add(d), d0.Host, Unused, Report{})
		return d0.Host
	}
	s.Load(t0, "a", Load{Running: 16})
	if got := at(0); got != "b" {
		t.Errorf("busy by a fresh view: %s", got)
	}
	if got := at(5 * time.Second); got != "b" {
		t.Errorf("busy by a view of 5 s: half of it counts, which is full still: %s", got)
	}
	if got := at(viewOld); got != "a" {
		t.Errorf("an old view keeps jobs away: %s", got)
	}
	// But one that was always busy is taken for that.
	for i := range 300 {
		s.Load(t0.Add(time.Duration(i)*time.Second), "a", Load{Running: 8})
	}
	if got := at(300*time.Second + viewOld); got != "b" {
		t.Errorf("usually busy: %s", got)
	}
}

func TestMemory(t *testing.T) {
	const gib = 1 << 30
	need := func(n uint64) *Job {
		j := known(10*time.Second, hosts("a")...)
		j.Cost.Memory = n
		return j
	}
	s := fixed(0)
	up(s, t0, "a", 4)
	s.Load(t0, "a", Load{MemoryFree: 4 * gib})
	launch(t, s, t0.Add(ms), 1, need(3*gib)) // after that view
	if d := s.Pick(t0.Add(ms), need(2*gib)); d.Verdict != Wait {
		t.Errorf("what was sent there since does not count: %+v", d)
	}
	if d := s.Pick(t0.Add(ms), need(gib)); d.Verdict != Run {
		t.Errorf("what is left: %+v", d)
	}
	if d := s.Pick(t0.Add(ms), need(0)); d.Verdict != Run {
		t.Errorf("unknown: %+v", d)
	}
	wantLocal(t, s.Pick(t0.Add(6*time.Second), need(2*gib)), reason.Memory, "a has not as much memory free")
	if d := s.Pick(t0.Add(viewOld), need(2*gib)); d.Verdict != Run {
		t.Errorf("an old view keeps it away: %+v", d)
	}
	s = fixed(0)
	up(s, t0, "a", 4)
	s.Load(t0, "a", Load{MemoryFree: gib})
	wantLocal(t, s.Pick(t0, need(2*gib)), reason.Memory, "") // and nothing runs there that would end
	s.Up(t0, "a", Capacity{Jobs: 4, Toolchains: 1, Memory: gib})
	s.Toolchains("a", tool)
	s.Credits(t0, "a", 4)
	wantLocal(t, s.Pick(t0.Add(time.Hour), need(2*gib)), reason.Memory, "")
}

// TestLocalCores are a host among others, which costs more than it takes.
func TestLocalCores(t *testing.T) {
	local := func(list ...Host) *Job {
		j := known(time.Second, list...)
		j.Local = true
		return j
	}
	s := fixed(0)
	up(s, t0, "a", 1)
	list := hosts("a")
	wantRun(t, s.Pick(t0, local(list...)), "a")
	wantWait(t, s.Pick(t0, local(list...)), time.Time{}) // nobody said what is here
	s.Up(t0, LocalHost, Capacity{Jobs: 2})
	if addrs, _ := s.Due(t0); len(addrs) != 0 {
		t.Errorf("%q are to be connected", addrs)
	}
	for range 2 { // 1.25 s here, 2 s behind the other
		d := s.Pick(t0, local(list...))
		wantLocal(t, d, reason.LocalShare, "")
		if !d.Share {
			t.Error("it holds no place here")
		}
	}
	if d := s.Pick(t0, local(list...)); d.Verdict != Wait {
		t.Errorf("%+v with both cores in use, want Wait", d)
	}
	s.ShareDone()
	wantWait(t, s.Pick(t0, known(time.Second, list...)), time.Time{}) // not asked for
	j := local(list...)
	j.NoLocal = true
	wantWait(t, s.Pick(t0, j), time.Time{})
	j = local(list...)
	j.Tried = map[string]bool{"b": true} // first another host
	wantWait(t, s.Pick(t0, j), time.Time{})
	wantLocal(t, s.Pick(t0, local(list...)), reason.LocalShare, "")
	s.Done(t0, LocalHost, OK, Report{}) // the other way to say so
	wantLocal(t, s.Pick(t0, local(list...)), reason.LocalShare, "")

	// This machine may be worth waiting for.
	s = fixed(0)
	s.Up(t0, LocalHost, Capacity{Jobs: 1})
	fast(s, "a", 1, 0.1)
	wantLocal(t, s.Pick(t0, local(list...)), reason.LocalShare, "")
	if d := s.Pick(t0.Add(ms), local(list...)); d.Verdict != Wait {
		t.Errorf("%+v, want to wait a second for this machine, not 10 s for that host", d)
	}
	s.ShareDone()
	wantLocal(t, s.Pick(t0.Add(2*ms), local(list...)), reason.LocalShare, "")
	s.ShareDone()

	// A host that is not faster is used before this machine, by the weight of it.
	s = fixed(0)
	s.Up(t0, LocalHost, Capacity{Jobs: 2})
	fast(s, "a", 1, 0.85)
	wantRun(t, s.Pick(t0, local(list...)), "a")
	s.Done(t0, "a", Unused, Report{})
	fast(s, "a", 1, 0.75)
	wantLocal(t, s.Pick(t0, local(list...)), reason.LocalShare, "")
	s.ShareDone()
	// Where all hosts are lost, that is the reason.
	s.Lost(t0, "a", "reset", false)
	wantLocal(t, s.Pick(t0, local(list...)), reason.HostLost, "reset")
}

// TestProbe: a host that was not heard of for long gets a short job, now and then.
func TestProbe(t *testing.T) {
	s := fixed(0)
	fast(s, "a", 8, 1)
	fast(s, "b", 8, 0.5)
	fast(s, "c", 8, 0.5)
	fast(s, "snail", 8, 0.1)
	list := hosts("a", "b", "c", "snail")
	s.typical.time.add(1, 100, 100)
	ask := func(d time.Duration, took time.Duration) string {
		t.Helper()
		dec := s.Pick(t0.Add(d), known(took, list...))
		s.Done(t0.Add(d), dec.Host, OK, Report{})
		return dec.Host
	}
	var got []string
	for _, x := range []struct{ at, took time.Duration }{
		{probeAfter - 1, time.Second}, // not yet
		{probeAfter, 2 * time.Second}, // not with a long one
		{probeAfter, time.Second},     // b
		{probeAfter, time.Second},     // one at a time
		{probeAfter + probePause - 1, time.Second},
		{probeAfter + probePause, time.Second}, // c
		{probeAfter + 2*probePause, time.Second},
		{2*probeAfter + 2*probePause, time.Second}, // b again
	} {
		got = append(got, ask(x.at, x.took))
	}
	if want := "[a a b a a c a b]"; fmt.Sprint(got) != want {
		t.Errorf("hosts are %v, want %s", got, want)
	}
}

// TestEmptyHistory: without a prediction, the size and the jobs so far give the estimate.
func TestEmptyHistory(t *testing.T) {
	s := fixed(0)
	j := &Job{Size: 1000}
	if got := s.time(j); got != aJob {
		t.Errorf("time of the first job is %v", got)
	}
	up(s, t0, "a", 4)
	for id := range uint64(50) {
		x := job(hosts("a")...)
		x.Size = 1000
		s.Credits(t0, "a", 4)
		launch(t, s, t0, id+1, x)
		s.Done(t0, "a", OK, Report{ID: id + 1, CPU: 3 * time.Second})
	}
	per := s.time(j)
	if math.Abs(per.Seconds()*s.Speed("a", tool)-3) > 2 && per == aJob {
		t.Errorf("a job of the same size takes %v, and the speed is %v", per, s.Speed("a", tool))
	}
	if got := s.time(&Job{Size: 4000}); math.Abs(float64(got)/float64(per)-4) > 0.01 {
		t.Errorf("four times the size takes %v beside %v", got, per)
	}
	if got := s.time(&Job{}); got <= 0 || got == aJob {
		t.Errorf("of unknown size: %v", got)
	}
	if got := s.time(&Job{Size: 1000, Cost: Cost{Time: 7}}); got != 7 {
		t.Errorf("what is predicted is not used: %v", got)
	}
}

// TestWhatAJobWaitsForStands from one round to the next, until something is as good,
// it is gone, or it takes longer than thought.
func TestWhatAJobWaitsForStands(t *testing.T) {
	setUp := func() (*Scheduler, *Job) {
		s := fixed(0)
		fast(s, "quick", 1, 10)
		fast(s, "slow", 4, 1)
		fast(s, "other", 1, 9)
		launch(t, s, t0, 1, known(50*time.Second, hosts("quick")...)) // for 5 s
		launch(t, s, t0, 2, known(900*time.Second, hosts("other")...))
		j := known(100*time.Second, hosts("slow", "quick", "other")...)
		if d := s.Pick(t0, j); d.Verdict != Wait || d.Until.Sub(t0) != againLate {
			t.Fatalf("%+v, want Wait for 2 s", d)
		}
		if j.note.h.addr != "quick" || j.note.declined.addr != "slow" {
			t.Fatalf("it waits for %+v", j.note)
		}
		return s, j
	}
	at := func(s *Scheduler, j *Job, d time.Duration) Decision {
		s.Order(t0.Add(d), []*Job{j})
		return s.Pick(t0.Add(d), j)
	}
	s, j := setUp()
	for i := range 10 {
		if d := at(s, j, time.Duration(i)*100*ms); d.Verdict != Wait || !d.Until.Equal(t0.Add(againLate)) {
			t.Fatalf("%+v, want to wait as before", d)
		}
		if len(s.hosts["quick"].plan.held) != 1 {
			t.Fatalf("%d jobs hold a place there", len(s.hosts["quick"].plan.held))
		}
	}
	if d := at(s, j, againLate); d.Verdict != Wait || !d.Until.Equal(t0.Add(2*againLate)) {
		t.Errorf("%+v, want to wait for another time", d)
	}

	s, j = setUp()
	s.Done(t0.Add(time.Second), "quick", OK, Report{ID: 1})
	s.Credits(t0.Add(time.Second), "quick", 1)
	wantRun(t, at(s, j, time.Second), "quick")

	s, j = setUp()
	s.Done(t0.Add(time.Second), "other", OK, Report{ID: 2})
	s.Credits(t0.Add(time.Second), "other", 1)
	wantRun(t, at(s, j, time.Second), "other")

	s, j = setUp() // a place of which there is one already is no news
	launch(t, s, t0, 3, known(time.Second, hosts("slow")...))
	s.Done(t0.Add(time.Second), "slow", OK, Report{ID: 3})
	s.Credits(t0.Add(time.Second), "slow", 4)
	if d := at(s, j, time.Second); d.Verdict != Wait {
		t.Errorf("%+v", d)
	}

	s, j = setUp()
	s.Lost(t0, "quick", "reset", false)
	wantRun(t, at(s, j, ms), "slow")

	s, j = setUp() // rounds in which it was not asked for
	s.Order(t0, nil)
	s.Order(t0, nil)
	s.Done(t0, "other", OK, Report{ID: 2})
	s.Order(t0, nil)
	s.Order(t0, nil)
	s.Credits(t0, "other", 1)
	s.freed, s.freedBefore = nil, nil
	wantRun(t, at(s, j, ms), "other")

	s, j = setUp()
	s.hosts["quick"].runs[0].length = 2000 * time.Second
	s.hosts["quick"].plan.ok = false
	wantRun(t, at(s, j, 100*ms), "slow")
}

// TestFullHostIsAsFarAsItIs: for the place of a job that runs, its end has to come
// here, and the next one to go there.
func TestFullHostIsAsFarAsItIs(t *testing.T) {
	s := fixed(0)
	fast(s, "far", 1, 10)
	fast(s, "slow", 1, 1)
	launch(t, s, t0, 1, known(10*time.Second, hosts("far")...))
	s.Link(t0, "far", Link{RTT: 10 * ms, Rate: 1e6})
	j := known(100*time.Second, hosts("slow", "far")...)
	j.Bytes = 1e6
	if d := s.Pick(t0, j); d.Verdict != Wait {
		t.Fatalf("%+v", d)
	}
	if want := time.Second + 5*ms + time.Second + 5*ms + 10*time.Second + 5*ms; j.note.finish != want {
		t.Errorf("finish is %v, want %v: the end of the other, the news of it, the bytes, the way there, the job and the way back", j.note.finish, want)
	}
}

// TestOneAtATime: a host that takes one job of ours at a time is not free before that
// has ended, whatever cores it has.
func TestOneAtATime(t *testing.T) {
	for what, set := range map[string]func(h *host, e *Host){
		"half open": func(h *host, _ *Host) { h.doubts = 2 },
		"by list":   func(_ *host, e *Host) { e.Slots = 1 },
	} {
		s := fixed(0)
		fast(s, "quick", 8, 2)
		fast(s, "slow", 8, 1)
		list := hosts("slow", "quick")
		set(s.hosts["quick"], &list[1])
		launch(t, s, t0, 1, known(200*time.Second, hosts("quick")...))
		if d := s.Pick(t0, known(4*time.Second, list...)); d.Host != "slow" {
			t.Errorf("%s: %+v, want slow, as quick takes none for 100 s", what, d)
		}
	}
}

func TestListMayAllowMoreThanCores(t *testing.T) {
	s := fixed(0.5) // which moves nothing without Random
	up(s, t0, "a", 2)
	up(s, t0, "b", 2)
	s.Credits(t0, "a", 8)
	n := 0
	for ; s.Pick(t0, job(Host{Addr: "a", Slots: 5})).Verdict == Run; n++ {
	}
	if n != 5 {
		t.Errorf("%d jobs at a host of 2 cores, the list says 5", n)
	}
	s = fixed(0.5)
	up(s, t0, "a", 2)
	up(s, t0, "b", 2)
	wantRun(t, s.Pick(t0, job(hosts("a", "b")...)), "a")
}
