package worker

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// counted returns the values of a metric by its only label.
func counted(t *testing.T, r prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := make(map[string]float64)
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				values[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// TestEndingsAreCounted: each connection is counted once by why it ended, and what no honest client does
// counts as a violation of its address.
func TestEndingsAreCounted(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Heartbeat, o.Silence = 20*time.Millisecond, 200*time.Millisecond })
	held := func() bool { // against this address, since the last call
		ts.mu.Lock()
		defer ts.mu.Unlock()
		n := len(ts.offenders)
		clear(ts.offenders)
		return n > 0
	}
	reg := prometheus.NewRegistry()
	if err := ts.o.Metrics.Register(reg, ts.Server); err != nil {
		t.Fatal(err)
	}
	id := ts.tool("gcc")
	for _, x := range []struct {
		cause ending
		do    func(c *testClient)
		bad   bool
	}{
		{endedClosed, func(c *testClient) { c.qp.Abort() }, false},
		{endedClosed, func(c *testClient) { _ = c.qp.Disconnect(t.Context()) }, false},
		{endedProtocol, func(c *testClient) { c.send(&job.Hello{}) }, true},
		{endedStream, func(c *testClient) {
			_ = c.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("x"), STag: 1})
		}, true},
		{endedTerminated, func(c *testClient) { // by a result for memory that it has not
			c.start(id, request{body: compileBody("cpp-output", "a.c"), text: hello, change: func(m *job.Job) { m.Sink.STag ^= 1 << 31 }})
		}, false},
		{endedSilent, func(c *testClient) { c.mu.Lock(); defer c.mu.Unlock(); <-c.qp.Done() }, false}, // it takes nothing
	} {
		before := counted(t, reg, "rdistccd_connections_ended_total")
		c := dial(t, ts.addr, &job.Hello{Name: string(x.cause)})
		x.do(c)
		<-c.done
		until(t, "the end of a connection: "+string(x.cause), func() bool {
			return counted(t, reg, "rdistccd_connections_ended_total")[string(x.cause)] == before[string(x.cause)]+1
		})
		if got := held(); got != x.bad {
			t.Errorf("%s: a violation is held against the client: %v", x.cause, got)
		}
	}
}

// TestCancelOfAnother: no other connection can cancel a job or fetch its result. Cancels that match no job
// are counted.
func TestCancelOfAnother(t *testing.T) {
	ts := startServer(t, func(o *Options) { o.Source, o.Result, o.Large = 8<<20, 8<<20, 32<<20 })
	reg := prometheus.NewRegistry()
	if err := ts.o.Metrics.Register(reg, ts.Server); err != nil {
		t.Fatal(err)
	}
	gate := t.TempDir() + "/gate"
	id := ts.fake("gcc-13", "while [ ! -e "+gate+" ]; do sleep 0.02; done; cat a.c >$out\n")
	first, second := dial(t, ts.addr, &job.Hello{Name: "first"}), dial(t, ts.addr, &job.Hello{Name: "second"})
	n := first.start(id, request{body: compileBody("cpp-output", "a.c"), text: "its own text"})
	second.send(&job.Cancel{Seq: 1, Jobs: []uint64{n, n + 1, 1 << 63}})
	second.wait("the Ack", func() bool { return second.acks[job.KindCancel] == 1 })
	if got := counted(t, reg, "rdistccd_cancels_total"); got["unknown"] != 3 || got["running"]+got["queued"] != 0 {
		t.Errorf("cancels are counted as %v", got)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := first.result(n); r.Status != job.StatusRan || string(r.bytes(r.Files[0].Segment)) != "its own text" {
		t.Errorf("after another's Cancel: %+v", r.Result)
	}
	// A result that lies in a window of the first one's.
	r := first.do(id, request{body: compileBody("cpp-output", "a.c"), text: poison, sink: 1, fetch: 1 << 20})
	if r.Window.Len != uint64(len(poison)) {
		t.Fatalf("%+v, want a window", r.Result)
	}
	mem := make([]byte, len(poison))
	mr, err := second.pd.RegMR(mem, iwarp.LocalWrite, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.qp.PostSend(&iwarp.SendWR{Op: iwarp.OpRead, STag: iwarp.STag(r.Window.STag), TO: r.Window.TO,
		SGL: []iwarp.SGE{{Addr: mr.Base(), Length: uint32(len(mem)), LKey: mr.STag()}}}); err != nil {
		t.Fatal(err)
	}
	<-second.done
	if string(mem) != string(make([]byte, len(poison))) {
		t.Errorf("another connection read %q", mem)
	}
	third := dial(t, ts.addr, &job.Hello{Name: "third"})
	third.post(&job.Release{ID: r.ID}, r.Window.STag)
	<-third.done
	if got := first.read(r.Window); string(got) != poison {
		t.Errorf("after another's Read and Release its window holds %q", got)
	}
}

// TestLateAnswerCutsNoTerminate: a client that breaks the stack's rules right behind a job is told so by a Terminate, though the answer to the job
// comes too late to be sent.
func TestLateAnswerCutsNoTerminate(t *testing.T) {
	ts := startServer(t, nil)
	for range 60 {
		c := dial(t, ts.addr, &job.Hello{})
		r := &testResult{sink: make([]byte, 1)} // the answer may still be in time, and may invalidate it then
		var err error
		if r.mr, err = c.pd.RegMR(r.sink, iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp}); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		c.results[1] = r
		k := c.credits[0]
		msg := job.Append(nil, &job.Job{ID: 1, Credit: k.ID, Sink: job.Window{STag: uint32(r.mr.STag()), TO: r.mr.Base(), Len: 1}}) // refused, of no compiler
		for _, wr := range []*iwarp.SendWR{
			{Op: iwarp.OpSendInv, Flags: iwarp.Unsignaled | iwarp.Inline | iwarp.More, Data: msg, InvSTag: iwarp.STag(k.Slot.STag)},
			{Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.Inline, Data: []byte("late"), STag: iwarp.STag(k.Slot.STag), TO: k.Slot.TO},
		} {
			if err := c.qp.PostSend(wr); err != nil {
				t.Fatal(err)
			}
		}
		c.mu.Unlock()
		<-c.qp.Done()
		var end *iwarp.TerminateError
		if err := c.qp.Err(); !errors.As(err, &end) || !end.FromPeer || end.Layer != 1 || end.Type != 1 || end.Code != 0 {
			t.Fatalf("the client was told %v", err)
		}
		c.close()
		until(t, "the end of a connection", func() bool {
			ts.mu.Lock()
			defer ts.mu.Unlock()
			clear(ts.offenders)
			return len(ts.conns) == 0
		})
	}
}
