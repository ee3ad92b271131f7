package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// farm simulates hosts and a manager around a Scheduler, in simulated time.
type farm struct {
	t       *testing.T
	s       *Scheduler
	now     time.Time
	rng     *rand.Rand
	hosts   map[string]*simHost
	list    []Host
	queue   []*simJob // waiting, in order of arrival
	running []*simJob
	ended   []*simJob
	share   int
}

type simHost struct {
	places int
	alive  bool
	up     bool // connected
	drain  bool
	ran    int
	tried  int // attempts to connect
}

type simJob struct {
	id      int
	arrived time.Time
	length  time.Duration
	tried   map[string]bool
	host    string // empty: here
	reason  string // of running here
	share   bool
	start   time.Time
	end     time.Time
}

func newFarm(t *testing.T, seed uint64, list ...Host) *farm {
	rng := rand.New(rand.NewPCG(seed, 1))
	f := &farm{t: t, s: New(Config{Rand: rng.Float64}), now: t0, rng: rng, hosts: make(map[string]*simHost), list: list}
	for _, h := range list {
		f.hosts[h.Addr] = &simHost{places: 4, alive: true}
	}
	f.s.Ensure(f.now, list)
	return f
}

func (f *farm) credits(addr string) int {
	n := f.hosts[addr].places
	for _, j := range f.running {
		if j.host == addr {
			n--
		}
	}
	return n
}

// settle does everything that happens without time passing.
func (f *farm) settle() {
	due, _ := f.s.Due(f.now)
	for _, a := range due {
		h := f.hosts[a]
		h.tried++
		f.s.Connecting(f.now, a)
		if !h.alive {
			f.s.Lost(f.now, a, "refused", false)
			continue
		}
		h.up = true
		f.s.Up(f.now, a, Capacity{Jobs: h.places, Toolchains: 1})
		f.s.Toolchains(a, tool)
		f.s.Credits(f.now, a, f.credits(a))
	}
	var wait []*simJob
	for _, j := range f.queue {
		d := f.s.Pick(f.now, &Job{Hosts: f.list, Tried: j.tried, Toolchain: tool, Since: j.arrived, Share: f.share})
		switch d.Verdict {
		case Wait:
			wait = append(wait, j)
			continue
		case Run:
			j.host = d.Host
			h := f.hosts[d.Host]
			if !h.up || h.drain {
				f.t.Fatalf("job %d was put on %s, which is not up", j.id, d.Host)
			}
			if f.credits(d.Host) < 1 {
				f.t.Fatalf("job %d was put on %s without a credit", j.id, d.Host)
			}
			n := 1
			for _, o := range f.running {
				if o.host == d.Host {
					n++
				}
			}
			if i := slices.IndexFunc(f.list, func(e Host) bool { return e.Addr == d.Host }); f.list[i].Slots > 0 && n > f.list[i].Slots {
				f.t.Fatalf("%d jobs on %s, the list allows %d", n, d.Host, f.list[i].Slots)
			}
			h.ran++
		case Local:
			j.host, j.reason, j.share = "", d.Reason, d.Share
		}
		j.start, j.end = f.now, f.now.Add(j.length)
		f.running = append(f.running, j)
	}
	f.queue = wait
}

// step goes to the next event, at most to limit.
func (f *farm) step(limit time.Time) {
	next := limit
	for _, j := range f.running {
		if j.end.Before(next) {
			next = j.end
		}
	}
	if _, due := f.s.Due(f.now); !due.IsZero() && due.Before(next) {
		next = due
	}
	for _, j := range f.queue {
		if grace := j.arrived.Add(time.Second); grace.After(f.now) && grace.Before(next) {
			next = grace
		}
	}
	f.now = next
	var still []*simJob
	for _, j := range f.running {
		if j.end.After(f.now) {
			still = append(still, j)
			continue
		}
		f.ended = append(f.ended, j)
		switch {
		case j.host != "":
			f.s.Done(f.now, j.host, OK, Report{})
		case j.share:
			f.s.ShareDone()
		}
	}
	f.running = still
	used := make(map[string]int)
	for _, j := range f.running {
		used[j.host]++
	}
	for a, h := range f.hosts {
		if h.up {
			f.s.Credits(f.now, a, h.places-used[a])
		}
	}
	f.settle()
}

func (f *farm) submit(n int, length time.Duration) {
	for range n {
		f.queue = append(f.queue, &simJob{id: len(f.queue) + len(f.running) + len(f.ended), arrived: f.now, length: length, tried: make(map[string]bool)})
	}
	f.settle()
}

// until runs to a time.
func (f *farm) until(d time.Duration) {
	for limit := t0.Add(d); f.now.Before(limit); {
		f.step(limit)
	}
}

// kill ends a host; its jobs are queued again, in front, and avoid it.
func (f *farm) kill(addr string) {
	h := f.hosts[addr]
	h.alive, h.drain = false, false
	if !h.up {
		return
	}
	h.up = false
	f.s.Lost(f.now, addr, "reset", false)
	var again, still []*simJob
	for _, j := range f.running {
		if j.host != addr {
			still = append(still, j)
			continue
		}
		f.s.Done(f.now, addr, Gone, Report{})
		j.tried[addr] = true
		again = append(again, j)
	}
	f.running = still
	f.queue = append(again, f.queue...)
	f.settle()
}

func (f *farm) locals() (n int) {
	for _, j := range f.ended {
		if j.host == "" {
			n++
		}
	}
	return n
}

func TestFarmOfUnequalHostsIsUsedByItsPlaces(t *testing.T) {
	f := newFarm(t, 1, Host{Addr: "small"}, Host{Addr: "big"}, Host{Addr: "capped", Slots: 2})
	f.hosts["small"].places, f.hosts["big"].places, f.hosts["capped"].places = 2, 12, 12
	f.submit(320, time.Second)
	if got := len(f.running); got != 16 {
		t.Fatalf("%d jobs run at once, want all 16 places taken", got)
	}
	f.until(20 * time.Second)
	if len(f.ended) != 320 || f.locals() != 0 {
		t.Fatalf("%d jobs ended, %d of them here, after 20 s; want all 320 on the hosts", len(f.ended), f.locals())
	}
	for a, want := range map[string]int{"small": 40, "big": 240, "capped": 40} {
		if got := f.hosts[a].ran; got != want {
			t.Errorf("%s ran %d jobs, want %d", a, got, want)
		}
	}
}

func TestFarmStartsInTheOrderOfArrival(t *testing.T) {
	f := newFarm(t, 2, hosts("a", "b")...)
	for range 200 {
		f.submit(1, 500*time.Millisecond)
	}
	f.until(time.Minute)
	if len(f.ended) != 200 {
		t.Fatalf("%d jobs ended, want 200: somebody starves", len(f.ended))
	}
	slices.SortFunc(f.ended, func(a, b *simJob) int { return a.id - b.id })
	for i := 1; i < len(f.ended); i++ {
		if f.ended[i].start.Before(f.ended[i-1].start) {
			t.Fatalf("job %d started before job %d", i, i-1)
		}
	}
}

func TestFarmLosesAndRegainsAHost(t *testing.T) {
	f := newFarm(t, 3, hosts("a", "b")...)
	f.submit(400, time.Second)
	f.until(5 * time.Second)
	ran := f.hosts["a"].ran
	f.kill("a")
	f.until(25 * time.Second)
	if got := f.hosts["a"].ran; got != ran {
		t.Errorf("%d jobs went to a host that is gone", got-ran)
	}
	// 20 s of pauses from 100 ms to 5 s.
	if got := f.hosts["a"].tried; got < 6 || got > 14 {
		t.Errorf("the lost host was tried %d times in 20 s, want about 10", got)
	}
	f.hosts["a"].alive = true
	f.until(40 * time.Second)
	if got := f.hosts["a"].ran - ran; got < 20 {
		t.Errorf("the host that is back ran %d jobs in 15 s, want at least 20", got)
	}
	f.until(5 * time.Minute)
	if len(f.ended) != 400 || f.locals() != 0 {
		t.Errorf("%d jobs ended, %d of them here; want 400, none here", len(f.ended), f.locals())
	}
}

func TestFarmWithADrainingHost(t *testing.T) {
	f := newFarm(t, 4, hosts("a", "b")...)
	f.submit(80, time.Second)
	f.hosts["a"].drain = true
	f.s.Draining(f.now, "a")
	ran := f.hosts["a"].ran
	f.until(time.Minute)
	if len(f.ended) != 80 || f.locals() != 0 || f.hosts["a"].ran != ran {
		t.Errorf("%d jobs ended, %d here, %d new on the draining host; want 80, 0, 0", len(f.ended), f.locals(), f.hosts["a"].ran-ran)
	}
}

// A list of dead hosts costs a build the first second and no more.
func TestFarmOfDeadHosts(t *testing.T) {
	var list []Host
	for i := range 300 {
		list = append(list, Host{Addr: fmt.Sprint("h", i)})
	}
	f := newFarm(t, 5, list...)
	for i := range 270 {
		f.hosts[list[i].Addr].alive = false
	}
	f.submit(120, time.Second)
	f.until(3 * time.Second)
	if len(f.ended) != 120 || f.locals() != 0 {
		t.Errorf("%d jobs ended, %d here; want 120 on the 30 hosts that live", len(f.ended), f.locals())
	}
	for _, h := range f.hosts {
		h.alive = false
	}
	for a := range f.hosts {
		f.kill(a)
	}
	f.submit(100, time.Second)
	f.until(5 * time.Second)
	if got := f.locals(); got != 100 {
		t.Errorf("%d jobs ran here after all hosts died, want 100", got)
	}
}

// Any history of events leaves Pick within credits and slots (checked in settle),
// and every job ends.
func TestRandomHistories(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 2))
		var list []Host
		for i := range 1 + rng.IntN(6) {
			list = append(list, Host{Addr: fmt.Sprint("h", i), Slots: rng.IntN(5)})
		}
		f := newFarm(t, seed, list...)
		f.share = rng.IntN(3)
		for _, h := range f.hosts {
			h.places, h.alive = 1+rng.IntN(6), rng.IntN(4) > 0
		}
		jobs := 0
		var at time.Duration
		for range 100 {
			at += time.Duration(rng.IntN(1500)) * time.Millisecond
			f.until(at)
			addr := list[rng.IntN(len(list))].Addr
			switch h := f.hosts[addr]; rng.IntN(6) {
			case 0:
				f.kill(addr)
			case 1:
				h.alive = true
			case 2:
				if h.up && !h.drain && rng.IntN(3) == 0 {
					h.drain = true
					f.s.Draining(f.now, addr)
					f.settle()
				}
			default:
				n := rng.IntN(8)
				jobs += n
				f.submit(n, time.Duration(1+rng.IntN(3000))*time.Millisecond)
			}
		}
		f.until(at + time.Hour)
		if len(f.ended) != jobs || len(f.queue) != 0 {
			t.Fatalf("seed %d: %d of %d jobs ended, %d wait", seed, len(f.ended), jobs, len(f.queue))
		}
	}
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []struct{ hosts, dead int }{{2, 0}, {100, 0}, {1000, 900}, {1000, 0}} {
		b.Run(fmt.Sprintf("%dhosts,%ddead", n.hosts, n.dead), func(b *testing.B) {
			s := fixed(0)
			var list []Host
			for i := range n.hosts {
				list = append(list, Host{Addr: fmt.Sprint("h", i)})
			}
			s.Ensure(t0, list)
			for i := range list {
				if i < n.dead {
					s.Connecting(t0, list[i].Addr)
					s.Lost(t0, list[i].Addr, "refused", false)
				} else {
					up(s, t0, list[i].Addr, 8)
				}
			}
			j := known(time.Second, list...)
			id := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				id++
				d := s.Pick(t0, j)
				s.Started(t0, id, d.Host, j)
				s.Done(t0, d.Host, OK, Report{ID: id, CPU: time.Second, Wall: time.Second})
				s.Credits(t0, d.Host, 8)
			}
		})
	}
}

// BenchmarkQueue is a turn of the manager's with a full farm and many jobs that wait:
// one has ended, and one takes its place.
func BenchmarkQueue(b *testing.B) {
	s := fixed(0)
	var list []Host
	for i := range 32 {
		list = append(list, Host{Addr: fmt.Sprint("h", i)})
		up(s, t0, list[i].Addr, 16)
	}
	id := uint64(0)
	waiting := make([]*Job, 512)
	for i := range waiting {
		waiting[i] = known(time.Duration(i+1)*100*time.Millisecond, list...)
	}
	var first []string
	for range 512 {
		id++
		j := known(time.Second, list...)
		d := s.Pick(t0, j)
		s.Started(t0, id, d.Host, j)
		first = append(first, d.Host)
	}
	now := t0
	ends := uint64(1)
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Millisecond)
		addr := first[(ends-1)%512]
		s.Done(now, addr, OK, Report{ID: ends, CPU: time.Second})
		s.Credits(now, addr, 1)
		ends++
		s.Hedges(now)
		for _, i := range s.Order(now, waiting) {
			if d := s.Pick(now, waiting[i]); d.Verdict == Run {
				id++
				s.Started(now, id, d.Host, waiting[i])
				first[(id-1)%512] = d.Host
			}
		}
	}
}
