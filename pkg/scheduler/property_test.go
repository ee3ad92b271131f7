package scheduler

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// world is an owner that does everything by chance, and counts.
type world struct {
	t     *testing.T
	r     *rand.Rand
	s     *Scheduler
	now   time.Time
	list  []Host
	truth map[string]*truth
	jobs  map[uint64]*worldJob
	next  uint64
	ended int
	local int
}

// truth of a host.
type truth struct {
	places  int
	credits int // here and unspent
	runs    int
	up      bool
	mute    bool // never answers
}

type worldJob struct {
	j        *Job
	id       uint64
	on       []string      // hosts that have it
	took     time.Duration // on a core of speed 1
	since    time.Time     // it runs
	troubles int
	here     bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 7)), now: t0, truth: make(map[string]*truth), jobs: make(map[uint64]*worldJob)}
	w.s = New(Config{Rand: w.r.Float64})
	for i := range 2 + w.r.IntN(6) {
		h := Host{Addr: fmt.Sprint("h", i)}
		if w.r.IntN(4) == 0 {
			h.Slots = 1 + w.r.IntN(4)
		}
		w.list = append(w.list, h)
		w.truth[h.Addr] = &truth{places: 1 + w.r.IntN(6), mute: i > 0 && w.r.IntN(5) == 0}
	}
	w.s.Ensure(w.now, w.list)
	if w.r.IntN(2) == 0 {
		w.s.Up(w.now, LocalHost, Capacity{Jobs: 1 + w.r.IntN(3)})
	}
	return w
}

// connect does what is due.
func (w *world) connect() {
	due, _ := w.s.Due(w.now)
	for _, a := range due {
		h := w.truth[a]
		w.s.Connecting(w.now, a)
		if w.r.IntN(4) == 0 {
			w.s.Lost(w.now, a, "refused", false)
			continue
		}
		h.up, h.credits, h.runs = true, h.places+w.r.IntN(h.places+1), 0
		w.s.Up(w.now, a, Capacity{Jobs: h.places, Toolchains: 1})
		w.s.Toolchains(a, tool)
		w.s.Link(w.now, a, Link{RTT: time.Duration(w.r.IntN(100)) * ms, Rate: float64(w.r.IntN(2)) * 1e7})
		w.s.Credits(w.now, a, h.credits)
	}
}

// takeOn is a job that goes to a host by the Scheduler's word.
func (w *world) takeOn(x *worldJob, addr string) {
	h := w.truth[addr]
	if h == nil || !h.up || h.credits < 1 {
		w.t.Fatalf("job %d on %s: %+v", x.id, addr, h)
	}
	if slices.Contains(x.on, addr) || x.j.Tried[addr] {
		w.t.Fatalf("job %d on %s again", x.id, addr)
	}
	h.credits--
	h.runs++
	for _, e := range w.list {
		if e.Addr == addr && e.Slots > 0 && h.runs > e.Slots {
			w.t.Fatalf("%d jobs on %s, %d are allowed", h.runs, addr, e.Slots)
		}
	}
	x.on = append(x.on, addr)
	x.since = w.now
	w.s.Started(w.now, x.id, addr, x.j)
}

// dispatch asks for all that wait.
func (w *world) dispatch() {
	w.hedge()
	var waiting []*worldJob
	var jobs []*Job
	for id := uint64(1); id <= w.next; id++ {
		if x := w.jobs[id]; x != nil && len(x.on) == 0 && !x.here {
			waiting = append(waiting, x)
			jobs = append(jobs, x.j)
		}
	}
	seen := make([]bool, len(jobs))
	for _, i := range slices.Clone(w.s.Order(w.now, jobs)) {
		if seen[i] {
			w.t.Fatalf("job %d twice in the order", i)
		}
		seen[i] = true
		x := waiting[i]
		switch d := w.s.Pick(w.now, x.j); d.Verdict {
		case Run:
			w.takeOn(x, d.Host)
		case Local:
			if d.Share != (d.Reason == reason.LocalShare) {
				w.t.Fatalf("%+v", d)
			}
			if !d.Share {
				w.gone(x)
				w.local++
				continue
			}
			x.here, x.since = true, w.now
		case Wait:
		}
	}
	if slices.Contains(seen, false) {
		w.t.Fatal("the order leaves some out")
	}
}

func (w *world) hedge() {
	list, _ := w.s.Hedges(w.now)
	for _, h := range list {
		x := w.jobs[h.ID]
		if x == nil || len(x.on) != 1 {
			w.t.Fatalf("%+v duplicates %+v", h, x)
		}
		w.takeOn(x, h.Host)
	}
	if n, most := w.s.copies, someCopies+1+(len(w.s.runs)+int(w.next))/runsACopy; n > most {
		w.t.Fatalf("%d duplicates of %d runs", n, len(w.s.runs))
	}
}

func (w *world) gone(x *worldJob) {
	delete(w.jobs, x.id)
	w.ended++
}

// leave is the end of x on a host.
func (w *world) leave(x *worldJob, addr string, o Outcome) {
	h := w.truth[addr]
	x.on = slices.DeleteFunc(x.on, func(a string) bool { return a == addr })
	if h.up {
		h.runs--
		h.credits++
	}
	w.s.Done(w.now, addr, o, Report{ID: x.id, Source: fmt.Sprint(x.id), CPU: x.took, Wall: x.took * time.Duration(1+w.r.IntN(2)), Bytes: x.j.Bytes})
	if h.up {
		w.s.Credits(w.now, addr, h.credits)
	}
}

// elapse lets time pass and ends what has had its time.
func (w *world) elapse(d time.Duration) {
	w.now = w.now.Add(d)
	for id := uint64(1); id <= w.next; id++ {
		x := w.jobs[id]
		if x == nil {
			continue
		}
		if x.here && w.now.Sub(x.since) >= x.took {
			w.s.ShareDone()
			w.gone(x)
			continue
		}
		for _, a := range slices.Clone(x.on) {
			if h := w.truth[a]; h.mute && w.now.Sub(x.since) < time.Minute || w.now.Sub(x.since) < x.took {
				continue
			}
			o := OK
			if w.truth[a].mute { // the owner's time limit
				o = Fault
			} else if w.r.IntN(20) == 0 {
				o = []Outcome{Killed, Fault, Refused}[w.r.IntN(3)]
			}
			w.leave(x, a, o)
			if o == OK {
				for _, b := range slices.Clone(x.on) {
					w.leave(x, b, Unused)
				}
				w.gone(x)
				break
			}
			x.j.Tried[a] = true
			if x.troubles++; x.troubles >= 2 && len(x.on) == 0 {
				w.gone(x)
				w.local++
				break
			}
		}
	}
}

// lose ends a host's connection.
func (w *world) lose(addr string) {
	h := w.truth[addr]
	if !h.up {
		return
	}
	h.up = false
	w.s.Lost(w.now, addr, "reset", false)
	for id := uint64(1); id <= w.next; id++ {
		if x := w.jobs[id]; x != nil && slices.Contains(x.on, addr) {
			w.leave(x, addr, Gone)
			x.j.Tried[addr] = true
		}
	}
}

// check compares the Scheduler's books with the truth.
func (w *world) check() {
	runs, builds := 0, 0
	for _, e := range w.list {
		h, x := w.truth[e.Addr], w.s.hosts[e.Addr]
		if h.up && (len(x.runs) != h.runs || x.credits != h.credits) {
			w.t.Fatalf("%s has %d jobs and %d credits, the scheduler thinks %d and %d", e.Addr, h.runs, h.credits, len(x.runs), x.credits)
		}
		runs += len(x.runs)
	}
	for _, n := range w.s.builds {
		builds += n
	}
	if runs != len(w.s.runs) || builds != runs {
		w.t.Fatalf("%d jobs on hosts, %d known by number, %d by build", runs, len(w.s.runs), builds)
	}
}

// TestAnyHistory: whatever happens, no host gets more than its credits and slots, no
// job is twice on a host, the books are right, and every job ends.
func TestAnyHistory(t *testing.T) {
	hedged := 0
	for seed := range uint64(150) {
		w := newWorld(t, seed)
		for range 300 {
			w.connect()
			addr := w.list[w.r.IntN(len(w.list))].Addr
			switch w.r.IntN(12) {
			case 0:
				w.lose(addr)
			case 1:
				w.s.Drain(addr, w.r.IntN(2) == 0)
			case 2:
				if w.r.IntN(8) == 0 {
					w.s.Quarantine(w.now, addr, "x")
				}
			case 3:
				w.s.Load(w.now, addr, Load{Running: w.r.IntN(12), Queued: w.r.IntN(3), Average: float64(w.r.IntN(9)), MemoryFree: uint64(w.r.IntN(8)) << 30})
			case 4, 5, 6, 7:
				w.elapse(time.Duration(w.r.IntN(1500)) * ms)
			default:
				w.next++
				x := &worldJob{id: w.next, took: time.Duration(1+w.r.IntN(4000)) * ms}
				x.j = &Job{Hosts: w.list, Tried: make(map[string]bool), Toolchain: tool, Since: w.now, Build: uint64(w.r.IntN(3)),
					Local: w.r.IntN(2) == 0, Bytes: uint64(w.r.IntN(1e6)), Size: 1000}
				if w.r.IntN(2) == 0 {
					x.j.Cost = Cost{Time: x.took, P95: x.took * 3 / 2, Memory: uint64(w.r.IntN(3)) << 30, Known: true}
				}
				w.jobs[w.next] = x
			}
			w.dispatch()
			hedged += w.s.copies
			w.check()
		}
		for _, e := range w.list {
			w.s.Drain(e.Addr, false)
		}
		for i := 0; len(w.jobs) > 0; i++ {
			if i > 5000 {
				t.Fatalf("seed %d: %d jobs do not end", seed, len(w.jobs))
			}
			w.connect()
			w.elapse(500 * ms)
			w.dispatch()
			w.check()
		}
		if len(w.s.runs)+len(w.s.builds)+w.s.copies+len(w.s.local.runs) != 0 || w.ended != int(w.next) {
			t.Fatalf("seed %d: %d of %d jobs ended; %d runs, %d builds, %d duplicates, %d here are left", seed, w.ended, w.next,
				len(w.s.runs), len(w.s.builds), w.s.copies, len(w.s.local.runs))
		}
	}
	if hedged < 100 {
		t.Errorf("only %d duplicates in all histories: they are not tried", hedged)
	}
}

// TestListOrderDoesNotMatter: for hosts that differ, Pick's choice and the time it
// expects do not depend on the order in which they are listed or were met.
func TestListOrderDoesNotMatter(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		n := 2 + r.IntN(8)
		speeds, loads, busy := make([]float64, n), make([]Load, n), make([]int, n)
		for i := range n {
			speeds[i] = 0.5 + 0.2*float64(i) + 0.01*r.Float64() // further apart than a tie
			loads[i] = Load{Average: 8 * r.Float64()}
			busy[i] = r.IntN(5)
		}
		var first Decision
		for try := range 4 {
			order := r.Perm(n)
			s := fixed(0)
			var list []Host
			for _, i := range order {
				addr := fmt.Sprint("h", i)
				fast(s, addr, 4, speeds[i])
				list = append(list, Host{Addr: addr})
				for k := range busy[i] {
					s.Pick(t0, known(time.Duration(k+1+i)*time.Second, hosts(addr)...))
				}
				s.Load(t0, addr, loads[i])
			}
			j := known(3*time.Second, list...)
			d := s.Pick(t0, j)
			if try == 0 {
				first = d
			} else if d.Verdict != first.Verdict || d.Finish-first.Finish > 150*ms || first.Finish-d.Finish > 150*ms {
				t.Fatalf("seed %d: %+v in the order %v, before it was %+v", seed, d, order, first)
			}
		}
	}
}
