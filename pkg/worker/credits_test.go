package worker

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

func (c *testClient) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.credits)
}

// A single client has all credits. A second one gets its half, because the first is asked to return what it
// does not use.
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

// A credit whose job crosses its recall counts as spent: the job is done.
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

// Each loan has an STag of its own: an old STag gives access to nothing.
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

// A warm compile takes one message each way and no more.
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

// Managers share by their weights, whatever more each asks for.
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

// No client holds credits that another can use: a client's share is at most its demand.
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
