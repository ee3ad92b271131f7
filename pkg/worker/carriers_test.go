package worker

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/digest"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// eager lets messages carry 16 KiB.
func eager(o *Options) { o.Eager = 16 << 10 }

// bare makes credits without slots.
func bare(o *Options) { eager(o); o.NoWrite = true }

// stays leaves slots open to the client.
func stays(o *Options) { eager(o); o.Slots = SlotsKept }

// TestCarriers: whatever way a source takes, with a slot or without, the object is the one that is made here,
// and the memory is back afterwards.
func TestCarriers(t *testing.T) {
	part.Skip(t)
	want := objectOf(t, hello)
	for _, x := range []struct {
		name   string
		change func(*Options)
		q      request
	}{
		{"write", eager, request{}},
		{"eager beside a slot", eager, request{eager: true}},
		{"eager", bare, request{eager: true}},
		{"pull beside a slot", eager, request{offer: true}},
		{"pull", bare, request{offer: true}},
		{"write into an open slot", stays, request{}},
		{"eager beside an open slot", stays, request{eager: true}},
		{"pull beside an open slot", stays, request{offer: true}},
	} {
		t.Run(x.name, func(t *testing.T) {
			ts := startServer(t, x.change)
			c := dial(t, ts.addr, &job.Hello{})
			if got := ts.slots.Stats().Total; (got == 0) != ts.o.NoWrite {
				t.Errorf("%d buffers for credits", got)
			}
			x.q.body, x.q.text = compileBody("cpp-output", "a.c"), hello
			for range 3 {
				r := c.do(ts.tool("gcc"), x.q)
				if r.Status != job.StatusRan || r.Exit != 0 || len(r.Files) != 1 || r.Next == nil {
					t.Fatalf("%+v", r.Result)
				}
				if !bytes.Equal(r.bytes(r.Files[0].Segment), want) {
					t.Error("the object is another one than here")
				}
				if (r.Next.Slot.STag == 0) != ts.o.NoWrite {
					t.Errorf("the next credit is %+v", r.Next)
				}
			}
			if ts.o.NoWrite {
				until(t, "the memory of results", func() bool { s := ts.slots.Stats(); return s.Total == s.Free })
			}
		})
	}
}

// TestEagerMessages: an eager job is one Send each way and a Write back, with a slot or without.
func TestEagerMessages(t *testing.T) {
	for _, change := range []func(*Options){eager, bare} {
		ts := startServer(t, func(o *Options) { change(o); o.Heartbeat = patience })
		c := dial(t, ts.addr, &job.Hello{})
		do := func() {
			if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, eager: true}); r.Exit != 0 || r.Next == nil {
				t.Fatalf("%+v", r.Result)
			}
		}
		do()
		const n, rounds = 5, 3
		before := c.qp.Stats()
		for round := 1; ; round++ { // as in TestWarmCompileMessages
			for range n {
				do()
			}
			after := c.qp.Stats()
			sent, got := after.SendsSent-before.SendsSent, after.SendsReceived-before.SendsReceived
			wrote, back := after.WritesSent-before.WritesSent, after.WritesReceived-before.WritesReceived
			if sent == n && got == n && wrote == 0 && back == n {
				break
			}
			if round == rounds {
				t.Fatalf("%d jobs took %d Sends and %d Writes out, %d and %d back", n, sent, wrote, got, back)
			}
			before = after
		}
	}
}

// gated returns a compiler that waits for open, and then copies its source.
func (ts *testServer) gated(t *testing.T) (tool [16]byte, open func()) {
	gate := filepath.Join(t.TempDir(), "gate")
	id := ts.fake("gcc-13", "while [ ! -e "+gate+" ]; do sleep 0.02; done; cat a.c >$out\n")
	return id, func() {
		if err := os.WriteFile(gate, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPulledJobsWaitWithoutMemory: of jobs that wait, only as many sources are fetched as there are places.
// The others take no memory, and a cancelled one is never read.
func TestPulledJobsWaitWithoutMemory(t *testing.T) {
	ts := startServer(t, func(o *Options) { bare(o); o.Jobs = 1 })
	id, open := ts.gated(t)
	c := dial(t, ts.addr, &job.Hello{})
	c.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	c.wait("credits", func() bool { return len(c.credits) >= 4 })
	var ids []uint64
	for i := range 4 {
		ids = append(ids, c.start(id, request{body: compileBody("cpp-output", "a.c"), text: fmt.Sprintf("text %d", i), offer: true}))
	}
	until(t, "one that runs, and the next", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		return ts.lend.Running() == 1 && ts.lend.Queued() == 3 && ts.lend.Ahead() == 1
	})
	if got := ts.slots.Stats(); got.Total-got.Free != 2 {
		t.Errorf("%+v: the memory of %d jobs is taken, want 2", got, got.Total-got.Free)
	}
	c.send(&job.Cancel{Seq: 1, Jobs: ids[3:]})
	if r := c.result(ids[3]); r.Status != job.StatusFailed || r.Cause != job.CauseCancelled {
		t.Errorf("a cancelled one: %+v", r.Result)
	}
	open()
	for i, n := range ids[:3] {
		if r := c.result(n); r.Status != job.StatusRan || string(r.bytes(r.Files[0].Segment)) != fmt.Sprintf("text %d", i) {
			t.Errorf("job %d: %+v", i, r.Result)
		}
	}
	if got := c.qp.Stats().ReadsReceived; got != 3 {
		t.Errorf("%d Reads of 3 sources", got)
	}
}

// TestPulledJobsOfTheGone: a client that goes while its sources wait, are read and are compiled leaves nothing.
func TestPulledJobsOfTheGone(t *testing.T) {
	ts := startServer(t, func(o *Options) { bare(o); o.Jobs = 2 })
	id, _ := ts.gated(t)
	for range 5 {
		c := dial(t, ts.addr, &job.Hello{})
		c.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
		c.wait("credits", func() bool { return len(c.credits) >= 4 })
		for range 4 {
			c.start(id, request{body: compileBody("cpp-output", "a.c"), text: "text", offer: true})
		}
		c.qp.Abort()
		<-c.done
		until(t, "all to be back", func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			s := ts.slots.Stats()
			return len(ts.conns) == 0 && ts.lend.Ahead() == 0 && ts.lend.Queued() == 0 && s.Total == s.Free
		})
	}
}

// TestUnreadSourceDelaysNobody: a client that answers no Read keeps its own jobs waiting, not another's, and
// loses its connection after WindowTime.
func TestUnreadSourceDelaysNobody(t *testing.T) {
	ts, addr := startNamed(t, func(o *Options) {
		bare(o)
		o.Jobs, o.Silence, o.Heartbeat, o.WindowTime = 1, patience, 10*time.Millisecond, 500*time.Millisecond
	})
	mute, honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{}), dialFrom(t, "127.0.0.3", addr, 2, &job.Hello{})
	var held sync.Mutex
	held.Lock()
	q := request{body: compileBody("cpp-output", "a.c"), text: hello, offer: true}
	q.guard = &held
	mute.start(ts.tool("gcc"), q)
	until(t, "the Read", func() bool { ts.mu.Lock(); defer ts.mu.Unlock(); return ts.lend.Ahead() == 1 })
	q.guard = nil
	if r := honest.do(ts.tool("gcc"), q); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("another's job: %+v", r.Result)
	}
	until(t, "the end of the mute one", func() bool {
		return gathered(t, ts, "rdistccd_connections_ended_total", string(endedUnread)) == 1
	})
	held.Unlock()
	<-mute.done
}

// TestSlowFetchEnds: a source that takes longer to fetch than its compile may is given up.
func TestSlowFetchEnds(t *testing.T) {
	ts := startServer(t, func(o *Options) { bare(o); o.Silence = patience })
	c := dial(t, ts.addr, &job.Hello{})
	var held sync.Mutex
	held.Lock()
	n := c.start(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, offer: true, guard: &held, timeout: 50 * time.Millisecond})
	until(t, "the Read", func() bool { return c.qp.Stats().ReadsReceived > 0 })
	time.AfterFunc(100*time.Millisecond, held.Unlock) // a Read under way cannot be called back: its answer ends the fetch
	if r := c.result(n); r.Status != job.StatusFailed || r.Cause != job.CauseTimeout {
		t.Errorf("%+v", r.Result)
	}
	if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, offer: true}); r.Status != job.StatusRan {
		t.Errorf("the next one: %+v", r.Result)
	}
}

// TestCarriersThatLie: what a client may not say of its source ends the job, or the connection; the next
// client is served.
func TestCarriersThatLie(t *testing.T) {
	ts := startServer(t, bare)
	body := compileBody("cpp-output", "a.c")
	for name, lie := range map[string]struct {
		q     request
		cause job.Cause // 0: the connection ends
	}{
		"no source at all":                     {request{eager: true, change: func(m *job.Job) { m.Carried = nil }}, job.CauseMalformed},
		"a window and a message":               {request{offer: true, change: func(m *job.Job) { m.Carried = []byte("x") }}, job.CauseMalformed},
		"a message that carries more":          {request{eager: true, change: func(m *job.Job) { m.Carried = append(m.Carried, 0) }}, job.CauseMalformed},
		"a message that carries less":          {request{eager: true, change: func(m *job.Job) { m.Carried = m.Carried[1:] }}, job.CauseMalformed},
		"a frame of another length":            {request{eager: true, change: func(m *job.Job) { m.Packed = 3 }}, job.CauseMalformed},
		"a frame that is none":                 {request{eager: true, change: func(m *job.Job) { m.Packed = uint64(len(m.Carried)) }}, job.CauseDigest},
		"another digest, eager":                {request{eager: true, change: func(m *job.Job) { m.Digest[3] = 1 }}, job.CauseDigest},
		"another digest, pulled":               {request{offer: true, change: func(m *job.Job) { m.Digest[3] = 1 }}, job.CauseDigest},
		"a body that is noise, eager":          {request{eager: true, change: func(m *job.Job) { m.Carried[0] = 0xff; m.Carried[3] = 0xff }}, job.CauseMalformed},
		"a window longer than its text":        {request{offer: true, change: func(m *job.Job) { m.TextLen-- }}, job.CauseMalformed},
		"a window longer than its memory":      {request{offer: true, change: func(m *job.Job) { m.Source.Len++; m.TextLen++ }}, 0},
		"a window of nothing":                  {request{offer: true, change: func(m *job.Job) { m.Source.STag ^= 1 << 9 }}, 0},
		"a window that is the sink":            {request{offer: true, change: func(m *job.Job) { m.Source.STag, m.Source.TO = m.Sink.STag, m.Sink.TO }}, 0},
		"a message longer than its receive":    {request{eager: true, change: func(m *job.Job) { m.Carried = make([]byte, 18<<10) }}, 0},
		"a credit that it does not have":       {request{eager: true, change: func(m *job.Job) { m.Credit += 99 }}, 0},
		"a window longer than a source may be": {request{offer: true, change: func(m *job.Job) { m.Source.Len, m.TextLen = 1<<40, 1<<40-uint64(m.TextOff) }}, job.CauseTooBig},
	} {
		c := dial(t, ts.addr, &job.Hello{})
		q := lie.q
		q.body, q.text = body, hello
		n := c.start(ts.tool("gcc"), q)
		if lie.cause == 0 {
			<-c.done
			if c.qp.Err() == nil {
				t.Errorf("%s: the connection ended in peace", name)
			}
		} else if r := c.result(n); r.Cause != lie.cause {
			t.Errorf("%s: %+v, want %v", name, r.Result, lie.cause)
		}
		c.qp.Abort()
		ts.mu.Lock()
		clear(ts.offenders)
		ts.mu.Unlock()
	}
	// Nothing is lent that a peer could write to, so an invalidation, or a Write, hits nothing.
	for name, do := range map[string]func(c *testClient, k job.Credit){
		"an invalidation with a bare credit": func(c *testClient, k job.Credit) { c.post(&job.Return{Credit: k.ID}, 77) },
		"a Write with a bare credit": func(c *testClient, k job.Credit) {
			_ = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, STag: iwarp.STag(k.Slot.STag), Data: []byte("x")})
		},
	} {
		c := dial(t, ts.addr, &job.Hello{})
		c.mu.Lock()
		k := c.credits[0]
		c.mu.Unlock()
		do(c, k)
		<-c.done
		if c.qp.Err() == nil {
			t.Errorf("%s: the connection ended in peace", name)
		}
	}
	c := dial(t, ts.addr, &job.Hello{})
	if r := c.do(ts.tool("gcc"), request{body: body, text: hello, eager: true}); r.Status != job.StatusRan || r.Exit != 0 {
		t.Errorf("an honest one afterwards: %+v", r.Result)
	}
	until(t, "all memory", func() bool { s := ts.slots.Stats(); return s.Total == s.Free })
}

// TestPulledSourceIsACopy: what a client changes in its window after the Read changes nothing.
func TestPulledSourceIsACopy(t *testing.T) {
	ts := startServer(t, func(o *Options) { bare(o); o.Jobs = 1 })
	id, open := ts.gated(t)
	c := dial(t, ts.addr, &job.Hello{})
	body := compileBody("cpp-output", "a.c")
	head := body.Append(nil)
	off := job.TextOffset(len(head))
	raw := append(append(head, make([]byte, off-len(head))...), "as it was"...)
	blocker := c.start(id, request{body: body, text: "first", offer: true})
	n := c.start(id, request{raw: raw, offer: true, change: func(m *job.Job) {
		m.BodyLen, m.TextOff, m.TextLen, m.Digest = uint32(len(head)), uint32(off), uint64(len(raw)-off), digest.Sum(raw)
	}})
	until(t, "the Reads", func() bool {
		return c.qp.Stats().ReadsReceived == 2 && ts.Status().Ahead == 1 && ts.Status().Load.Queued == 1
	})
	copy(raw[off:], "tampered!")
	open()
	for _, id := range []uint64{blocker, n} {
		if r := c.result(id); r.Status != job.StatusRan {
			t.Fatalf("%+v", r.Result)
		}
	}
	if r := c.result(n); string(r.bytes(r.Files[0].Segment)) != "as it was" {
		t.Errorf("compiled %q", r.bytes(r.Files[0].Segment))
	}
}

// TestContentsByCarrier: contents that a job brings are there for the next one on the connection, whichever
// way either of them comes, also if the first one waits for its turn or is cancelled while it does.
func TestContentsByCarrier(t *testing.T) {
	ts, c := startTrees(t, func(o *Options) { o.Eager, o.Jobs, o.Slot = 512<<10, 1, 4<<20 })
	p := listsProject(t, "gcc")
	all := inParts(request{body: p.body, text: p.text, sink: 4 << 20})
	gcc := ts.tool("gcc")
	for round := range 9 {
		ts.keep.Shrink(1 << 30)
		first, second := all.named(true), all.named(false)
		first.eager, first.offer = round%3 == 0, round%3 == 1
		second.eager, second.offer = round/3 == 0, round/3 == 1
		ids := []uint64{c.start(gcc, first), c.start(gcc, second)}
		for i, id := range ids {
			if r := c.result(id); r.Status != job.StatusRan || r.Exit != 0 {
				t.Errorf("round %d, job %d: %+v", round, i, r.Result)
			}
		}
	}
	first, second := all.named(true), all.named(false)
	first.offer, second.eager = true, true
	for i := range 10 {
		n := c.start(gcc, first)
		c.send(&job.Cancel{Seq: uint32(i), Jobs: []uint64{n}})
		if r := c.result(c.start(gcc, second)); r.Status != job.StatusRan || r.Exit != 0 {
			t.Fatalf("behind a cancelled one: %+v", r.Result)
		}
		c.result(n)
		c.wait("the Cancel's Ack", func() bool { return c.acks[job.KindCancel] > i })
	}
}

// TestSlotsOfATenant: a tenant with many connections gets slots for as many credits as the host may have to
// spare, and bare credits beyond these. A client that does not write gets none.
func TestSlotsOfATenant(t *testing.T) {
	ts := startServer(t, func(o *Options) { eager(o); o.Jobs, o.Clients = 1, 100 })
	slots, credits := 0, 0
	for i := range 40 {
		c := dialAs(t, ts.addr, byte(i+1), &job.Hello{Bare: i%10 == 0})
		c.mu.Lock()
		for _, k := range c.credits {
			credits++
			if k.Slot.STag != 0 {
				slots++
			}
		}
		if i%10 == 0 && c.credits[0].Slot.STag != 0 {
			t.Error("a slot for a client that does not write")
		}
		c.mu.Unlock()
	}
	if most := ts.most(); slots < most/2 || slots > most || credits < 40 {
		t.Errorf("%d slots for %d credits, want at most %d", slots, credits, most)
	}
}

// TestFewReceivesAreUsed: a connection has a receive for each message that its client may send, and uses the same
// ones again: eager jobs take memory for these only.
func TestFewReceivesAreUsed(t *testing.T) {
	ts := startServer(t, func(o *Options) { bare(o); o.Heartbeat = patience })
	c := dial(t, ts.addr, &job.Hello{})
	for range 60 {
		if r := c.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, eager: true, change: func(m *job.Job) { m.Digest[0] = 1 }}); r.Cause != job.CauseDigest {
			t.Fatalf("%+v", r.Result)
		}
	}
	until(t, "the receives of what the client may send", func() bool {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		for x := range ts.conns {
			return ts.recvDepth()-len(x.spare) == 1+job.Spare+len(x.credits)
		}
		return false
	})
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for x := range ts.conns {
		used := 0
		for at := 0; at < len(x.recvs); at += ts.recvLen() {
			if x.recvs[at] != 0 {
				used++
			}
		}
		if most := 1 + job.Spare + 2*ts.o.Jobs + 2; used > most || used < job.Spare {
			t.Errorf("%d of %d receives were used, want at most %d", used, ts.recvDepth(), most)
		}
	}
}

// TestGuessedCredit: a credit that no message has told the client of cannot be spent, though its number can be guessed and there is no
// slot whose STag would have to be known. The host goes on.
func TestGuessedCredit(t *testing.T) {
	part.Skip(t)
	for name, spend := range map[string]func(c *testClient, id uint64) job.Message{
		"returned": func(_ *testClient, id uint64) job.Message { return &job.Return{Credit: id} },
		"used":     func(_ *testClient, id uint64) job.Message { return &job.Job{ID: 1, Credit: id, Carried: []byte("x")} },
	} {
		t.Run(name, func(t *testing.T) {
			ts := startServer(t, bare)
			c := dial(t, ts.addr, &job.Hello{})
			c.mu.Lock()
			c.silent = true
			c.mu.Unlock()
			c.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
			untold := func() (id uint64) {
				ts.mu.Lock()
				defer ts.mu.Unlock()
				for c := range ts.conns {
					for _, k := range c.credits {
						if !k.lent.Told() {
							return k.lent.ID
						}
					}
				}
				return 0
			}
			// Each credit that comes back is granted again, and the first of these Grants is not acknowledged.
			until(t, "a credit that waits for its Grant", func() bool {
				c.mu.Lock()
				if len(c.credits) > 0 && untold() == 0 {
					c.returnLocked()
				}
				c.mu.Unlock()
				return untold() != 0
			})
			c.mu.Lock()
			c.post(spend(c, untold()), 0)
			for _, seq := range c.grants {
				c.send(&job.Ack{Of: job.KindGrant, Seq: seq})
			}
			c.mu.Unlock()
			<-c.done
			until(t, "the connection is gone", func() bool { return len(ts.Status().Clients) == 0 })
			if n := ts.panics(); n != 0 {
				t.Errorf("%v panics", n)
			}
			next := dial(t, ts.addr, &job.Hello{Name: "next"})
			if r := next.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello, eager: true}); r.Status != job.StatusRan {
				t.Errorf("the next client: %+v", r.Result)
			}
		})
	}
}
