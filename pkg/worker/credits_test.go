package worker

import (
	"log/slog"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
)

func (c *testClient) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.credits)
}

// A client alone has all; a second one that comes gets its half, as the first is
// asked to return what it does not use.
func TestCreditsAreSharedFairly(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 4 }) // 8 spare credits and one for each client
	a := dial(t, ts.addr, &job.Hello{Name: "a"})
	a.wait("all credits", func() bool { return len(a.credits) == 9 })
	b := dial(t, ts.addr, &job.Hello{Name: "b"})
	b.wait("half", func() bool { return len(b.credits) == 5 })
	until(t, "the other half", func() bool { return a.count() == 5 })
	// Only one of them builds: the other keeps one.
	id := ts.tool("gcc")
	if r := b.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	b.wait("the spare credits", func() bool { return len(b.credits) == 9 })
	a.wait("one credit", func() bool { return len(a.credits) == 1 })
	// Both build.
	if r := a.do(id, request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Fatalf("%+v", r.Result)
	}
	a.wait("half", func() bool { return len(a.credits) == 5 })
	until(t, "the other half", func() bool { return b.count() == 5 })
	// One is gone: the other has all.
	b.qp.Abort()
	a.wait("all credits", func() bool { return len(a.credits) == 9 })
}

// A client that holds on to its credits does not keep another from its one.
func TestHoarderLeavesOne(t *testing.T) {
	ts := startServer(t, nil)
	a := dial(t, ts.addr, &job.Hello{})
	a.wait("all credits", func() bool { return len(a.credits) == 5 })
	a.mu.Lock()
	a.keep = true
	a.mu.Unlock()
	b := dial(t, ts.addr, &job.Hello{})
	if r := b.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Next == nil {
		t.Errorf("%+v", r.Result)
	}
	a.wait("a recall", func() bool { return len(a.recalls) == 1 })
	a.mu.Lock()
	m := a.recalls[0]
	a.recalls = nil
	a.keep = false
	for range m.Count {
		a.returnLocked()
	}
	a.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq})
	a.mu.Unlock()
	b.wait("its share", func() bool { return len(b.credits) >= 3 })
}

// A credit that crosses its recall counts as spent: the job is done.
func TestRecallCrossesAJob(t *testing.T) {
	ts := startServer(t, nil)
	a := dial(t, ts.addr, &job.Hello{})
	a.wait("all credits", func() bool { return len(a.credits) == 5 })
	a.mu.Lock()
	a.keep = true
	a.mu.Unlock()
	b := dial(t, ts.addr, &job.Hello{})
	a.wait("a recall", func() bool { return len(a.recalls) == 1 })
	var ids []uint64
	for range 5 {
		ids = append(ids, a.start(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}))
	}
	a.mu.Lock()
	a.send(&job.Ack{Of: job.KindRecall, Seq: a.recalls[0].Seq}) // nothing left to return
	a.keep = false
	a.mu.Unlock()
	for _, n := range ids {
		if r := a.result(n); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%+v", r.Result)
		}
	}
	if r := b.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}

func TestWantBoundsTheShare(t *testing.T) {
	ts := startServer(t, nil)
	c := dial(t, ts.addr, &job.Hello{Want: 2})
	c.wait("credits", func() bool { return len(c.credits) == 2 })
	for range 3 {
		if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
			t.Fatalf("%+v", r.Result)
		}
	}
	if n := c.count(); n != 2 {
		t.Errorf("%d credits after three jobs, wanted 2", n)
	}
}

// Each loan has an STag of its own: an old one opens nothing.
func TestSTagsAreFresh(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 1 })
	c := dial(t, ts.addr, &job.Hello{})
	seen := map[uint32]bool{}
	for range 20 {
		c.wait("a credit", func() bool { return len(c.credits) > 0 })
		c.mu.Lock()
		stag := c.credits[0].Slot.STag
		c.mu.Unlock()
		if seen[stag] {
			t.Fatalf("STag %#x for a second time", stag)
		}
		seen[stag] = true
		if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
			t.Fatalf("%+v", r.Result)
		}
	}
	// 1 idle client of a server with 1 job: 4 credits, and never many buffers more.
	if st := ts.slots.Stats(); st.Total > 6 {
		t.Errorf("%d buffers for 4 credits", st.Total)
	}
}

// A warm compile is one message each way, and no other.
func TestWarmCompileMessages(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Heartbeat = patience })
	c := dial(t, ts.addr, &job.Hello{})
	do := func() {
		if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Next == nil {
			t.Fatalf("%+v", r.Result)
		}
	}
	do()
	// Once in a while a grant and its ack come in between, when the daemon shares its
	// credits out anew. One round without them shows that jobs need none.
	const n, rounds = 10, 3
	before := c.qp.Stats()
	after := before
	for round := 1; ; round++ {
		for range n {
			do()
		}
		after = c.qp.Stats()
		sent, got := after.SendsSent-before.SendsSent, after.SendsReceived-before.SendsReceived
		if sent == n && got == n {
			break
		}
		if round == rounds {
			t.Fatalf("%d jobs took %d Sends out and %d back, %d times", n, sent, got, rounds)
		}
		before = after
	}
	if got := after.WritesReceived - before.WritesReceived; got != n {
		t.Errorf("%d results came in %d RDMA Writes", n, got)
	}
}

// Managers of different weights share by them, whatever each asks for beyond.
func TestWeights(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 4 }) // 8 spare credits and one for each client
	a := dialAs(t, ts.addr, 1, &job.Hello{Name: "a", Weight: 3})
	b := dialAs(t, ts.addr, 2, &job.Hello{Name: "b"})
	a.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	b.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	a.wait("three quarters", func() bool { return len(a.credits) == 7 && a.acks[job.KindDemand] == 1 })
	b.wait("a quarter", func() bool { return len(b.credits) == 3 && b.acks[job.KindDemand] == 1 })
	// With as many builds each of them goes as fast as the other manager's one.
	b.send(&job.Demand{Seq: 2, Jobs: 100, Builds: 3})
	b.wait("half", func() bool { return len(b.credits) == 5 && b.acks[job.KindDemand] == 2 })
	a.wait("half", func() bool { return len(a.credits) == 5 })
}

// Nobody holds what another has use for: a client's share is no more than its demand.
func TestDemandBoundsTheShare(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 4 })
	a := dialAs(t, ts.addr, 1, &job.Hello{Name: "a"})
	a.wait("all credits", func() bool { return len(a.credits) == 9 })
	b := dialAs(t, ts.addr, 2, &job.Hello{Name: "b"})
	a.send(&job.Demand{Seq: 1, Jobs: 3})
	b.send(&job.Demand{Seq: 1, Jobs: 100})
	b.wait("what a leaves", func() bool { return len(b.credits) == 7 })
	a.wait("what it asked for", func() bool { return len(a.credits) == 3 })
	// Who needs nothing keeps one, for its next job.
	a.send(&job.Demand{Seq: 2, Jobs: 0})
	b.wait("all but one", func() bool { return len(b.credits) == 9 })
	a.wait("one", func() bool { return len(a.credits) == 1 })
}

// All connections of one manager are one client.
func TestConnectionsOfOneManager(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Jobs = 4 })
	a := dialAs(t, ts.addr, 1, &job.Hello{})
	more := dialAs(t, ts.addr, 1, nil)
	third := dialAs(t, ts.addr, 1, nil)
	for _, c := range []*testClient{more, third} {
		c.send(&job.Hello{})
		c.wait("a credit", func() bool { return c.welcome != nil && len(c.credits) > 0 })
	}
	b := dialAs(t, ts.addr, 2, &job.Hello{})
	b.wait("half of the spare ones, not a quarter", func() bool { return len(b.credits) == 5 })
	until(t, "the other half", func() bool { return a.count()+more.count()+third.count() == 7 && more.count() > 0 && third.count() > 0 })
	// It stays one as long as one connection does.
	a.qp.Abort()
	<-a.done
	until(t, "the half of those that are left", func() bool { return more.count()+third.count() == 6 && b.count() == 5 })
	if r := more.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 {
		t.Errorf("%+v", r.Result)
	}
}

// TestDepthFollowsTheRoundTrip: where cores stand idle although a client has work, more
// jobs are put on their way, and fewer once some always wait.
func TestDepthFollowsTheRoundTrip(t *testing.T) {
	s := &Server{o: Options{Jobs: 2, Log: slog.New(slog.DiscardHandler)}, depth: minDepth(2)}
	s.host.Store(&hostLoad{})
	cl := s.add(localTenant, &client{weight: 1, demand: 0, conns: []*conn{{ended: true}}})
	s.starvedLocked()
	if s.depth != minDepth(2) {
		t.Errorf("depth %d though there is no work", s.depth)
	}
	cl.demand = 100
	for range 100 {
		s.starvedLocked()
	}
	if s.depth != maxDepth(2) {
		t.Errorf("depth %d, want the most, %d", s.depth, maxDepth(2))
	}
	for range 100 {
		s.queued, s.worked = 5, true
		s.quietLocked()
	}
	if s.depth != minDepth(2) {
		t.Errorf("depth %d though five jobs always wait", s.depth)
	}
	s.starvedLocked()
	s.queued, s.lowQueue = 0, 0
	s.worked = true
	s.quietLocked()
	if s.depth != minDepth(2)+1 {
		t.Errorf("depth %d while jobs come", s.depth)
	}
	s.quietLocked()
	if s.depth != minDepth(2) {
		t.Errorf("depth %d though nobody builds", s.depth)
	}
}

// simulated clients keep the queue of a server full, each with jobs of its own length,
// in simulated time. It returns the core time that each got.
func simulate(weights []int, lengths []time.Duration, expect bool, cores int, until time.Duration) []time.Duration {
	s := &Server{o: Options{Jobs: cores}, runs: make(map[*task]bool)}
	s.wake = sync.NewCond(&s.mu)
	s.host.Store(&hostLoad{})
	got := make([]time.Duration, len(weights))
	number := map[*client]int{}
	for i, w := range weights {
		cl := s.add(localTenant, &client{weight: w})
		number[cl] = i
	}
	now := time.Unix(0, 0)
	end := map[*task]time.Time{}
	for now.Sub(time.Unix(0, 0)) < until {
		for i, cl := range s.clients {
			for len(cl.queue) < 4 {
				m := &job.Job{}
				if expect {
					m.Expect = uint32(lengths[i].Milliseconds())
				}
				s.enqueueLocked(&task{c: &conn{s: s, client: cl}, m: m, queued: now})
			}
		}
		for s.running < cores {
			t := s.nextTaskLocked(now)
			end[t] = now.Add(lengths[number[t.c.client]])
		}
		first := now.Add(time.Hour)
		for _, e := range end {
			if e.Before(first) {
				first = e
			}
		}
		now = first
		for t, e := range end {
			if e.Equal(now) {
				got[number[t.c.client]] += now.Sub(t.started)
				s.ranLocked(t, now)
				delete(end, t)
			}
		}
	}
	return got
}

// TestCoresAreSharedByWeight: whoever has short jobs gets as much of the cores as one
// with long ones, and one of twice the weight twice as much, whether or not their
// lengths are known beforehand. No core idles: simulate would not end.
func TestCoresAreSharedByWeight(t *testing.T) {
	const span = 2000 * time.Second
	weights := []int{1, 1, 2, 4}
	lengths := []time.Duration{100 * time.Millisecond, 5 * time.Second, 700 * time.Millisecond, 3 * time.Second}
	for _, expect := range []bool{false, true} {
		for _, cores := range []int{1, 4} {
			got := simulate(weights, lengths, expect, cores, span)
			for i, w := range weights {
				want := span.Seconds() * float64(cores) * float64(w) / 8
				if d := got[i].Seconds() - want; math.Abs(d) > 0.03*want+10 {
					t.Errorf("%d cores, lengths known %v: client %d got %.0f s of them, want %.0f", cores, expect, i, got[i].Seconds(), want)
				}
			}
		}
	}
}

// A client that comes late is served at once, and does not make up for the time before.
func TestLateClientIsServedNext(t *testing.T) {
	s := &Server{o: Options{Jobs: 1}, runs: make(map[*task]bool)}
	s.wake = sync.NewCond(&s.mu)
	s.host.Store(&hostLoad{})
	now := time.Unix(0, 0)
	run := func() *client {
		x := s.nextTaskLocked(now)
		now = now.Add(time.Second)
		s.ranLocked(x, now)
		return x.c.client
	}
	add := func(cl *client, n int) {
		for range n {
			s.enqueueLocked(&task{c: &conn{s: s, client: cl}, m: &job.Job{}, queued: now})
		}
	}
	early, late := s.add(localTenant, &client{weight: 1}), s.add(localTenant, &client{weight: 1})
	add(early, 200)
	for range 100 {
		run()
	}
	add(late, 50)
	got := map[*client]int{}
	for i := range 40 {
		cl := run()
		if got[cl]++; i == 1 && got[late] == 0 {
			t.Error("the late client's first job waits behind two others")
		}
	}
	if d := got[early] - got[late]; d < -2 || d > 2 {
		t.Errorf("of 40 jobs the early client had %d, the late one %d", got[early], got[late])
	}
}
