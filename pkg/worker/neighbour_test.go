package worker

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// TestUnprovenKeepNobodyOut: with the maximum of unproven connections from the address of a client that has
// the key, the client still gets in at once, and the oldest of those is ended.
func TestUnprovenKeepNobodyOut(t *testing.T) {
	k := testKey(t, "k")
	ts := keyServer(t, k, func(o *Options) { o.Clients, o.ProveTime = 4, time.Hour }) // 16 unproven ones, 2 of one client
	var silent []*testClient
	for range lend.MostUnproven(ts.o.Clients) {
		c, _, err := dialKey(t, ts.addr, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, c)
	}
	var honest []*testClient
	for n := range 2 {
		c, p, err := dialKey(t, ts.addr, k, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.send(p)
		c.send(&job.Hello{})
		c.wait("a welcome beside them", func() bool { return c.welcome != nil })
		honest = append(honest, c)
		// The first one made room for it; in the place that its proof left there is no other.
		<-silent[0].done
		if got := gathered(t, ts, "rdistccd_client_limits_total", limitUnproven); got != 1 {
			t.Errorf("after connection %d: %v unproven ones were ended, want 1", n, got)
		}
	}
	for i, c := range silent[1:] {
		select {
		case <-c.done:
			t.Errorf("silent connection %d was ended, too", i+1)
		default:
		}
	}
	// A third one is too many for one client: it learns so before its proof, and no place is lost.
	d := k.Dial((&job.Greeting{Version: job.Version}).Append(nil), true)
	if j := rejection(t, ts.addr, d.PrivateData()); j.Cause != job.CauseFull {
		t.Errorf("a third connection: %+v", j)
	}
	honest[0].close2()
	until(t, "it to be gone", func() bool { return len(ts.Status().Clients) == 1 }) // until then the next one is turned away
	until(t, "a place", func() bool {
		c, p, err := dialKey(t, ts.addr, k, nil)
		if err != nil {
			return false
		}
		c.send(p)
		c.send(&job.Hello{})
		select {
		case <-c.done:
			return false // too early
		case <-time.After(patience):
			return false
		case <-welcomed(c):
			return true
		}
	})
}

// welcomed is closed once c has its Welcome.
func welcomed(c *testClient) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.mu.Lock()
		defer c.mu.Unlock()
		for c.welcome == nil && !c.ended {
			c.cond.Wait()
		}
	}()
	return done
}

// TestHoarder: a client that holds all credits, acknowledges a Recall, and neither uses nor returns any,
// still leaves another one its whole share.
func TestHoarder(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	ts, addr := startNamed(t, func(o *Options) { o.Jobs, o.Clients = 4, 16 }) // 8 spare ones
	hoarder := dialFrom(t, "127.0.0.3", addr, 9, &job.Hello{})
	hoarder.mu.Lock()
	hoarder.keep = true
	hoarder.mu.Unlock()
	hoarder.send(&job.Demand{Seq: 1, Jobs: 60000, Builds: 8})
	hoarder.wait("all credits", func() bool { return len(hoarder.credits) == 9 })
	hears := func() {
		hoarder.mu.Lock()
		defer hoarder.mu.Unlock()
		for _, m := range hoarder.recalls {
			hoarder.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq})
		}
		hoarder.recalls = nil
	}
	honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
	honest.send(&job.Demand{Seq: 1, Jobs: 100, Builds: 1})
	until(t, "its share", func() bool { hears(); return honest.count() >= 5 })
	// And it keeps that: each result brings the next credit.
	for range 20 {
		hears()
		if r := honest.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}); r.Exit != 0 || r.Next == nil {
			t.Fatalf("%+v", r.Result)
		}
	}
	if n := hoarder.count(); n < 9 || n > 1+ts.most() { // there are more where places wait for jobs
		t.Errorf("the hoarder has %d credits, want at least the 9 that it has kept", n)
	}
	// What it has kept it may use: jobs are done, and what it gets for them is no more than its share.
	hoarder.mu.Lock()
	hoarder.keep = false
	hoarder.mu.Unlock()
	var ids []uint64
	for range 9 {
		ids = append(ids, hoarder.start(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c"), text: hello}))
	}
	for _, id := range ids {
		if r := hoarder.result(id); r.Status != job.StatusRan || r.Exit != 0 {
			t.Errorf("%+v", r.Result)
		}
	}
	until(t, "both to have their shares", func() bool {
		hears()
		a, b := hoarder.count(), honest.count()
		return a >= 1 && a <= 5 && b >= 5 && a+b <= 10
	})
}

// TestBombs: compiles that start more processes than they may are counted by that cause, and compiles that
// open all files that they may fail by themselves. Neither affects another client, or makes the host report
// that it cannot work.
func TestBombs(t *testing.T) {
	part.Skip(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	confined(t, func(t *testing.T, on func(*Options)) {
		ts, addr := startNamed(t, func(o *Options) { on(o); o.Jobs, o.Processes = 2, 12 })
		ts.needLevel(sandbox.Confined)
		id := ts.fake("gcc-13", ". ./a.c\n")
		hostile := dialFrom(t, "127.0.0.3", addr, 9, &job.Hello{})
		honest := dialFrom(t, "127.0.0.2", addr, 1, &job.Hello{})
		body := compileBody("cpp-output", "a.c")
		denied := func() float64 { return gathered(t, ts, "rdistccd_sandbox_denials_total", "processes") }
		for range 3 {
			before := denied()
			// Each of them lives until it is killed.
			bomb := hostile.start(id, request{body: body, text: "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do (while :; do :; done) & done; wait\n"})
			if r := honest.do(ts.tool("gcc"), request{body: compileBody("cpp-output", "a.c", "-O2"), text: hello}); r.Status != job.StatusRan || r.Exit != 0 {
				t.Errorf("beside a bomb: %+v", r.Result)
			}
			r := hostile.result(bomb)
			// Where the kernel counts first (a control group, or the compile's own user) the shell is told that it cannot fork.
			if told := bytes.Contains(r.bytes(r.Stderr), []byte("fork")); r.Status != job.StatusRan && !(r.Status == job.StatusFailed && r.Cause == job.CauseLimit) || r.Status == job.StatusRan && !told {
				t.Errorf("a bomb: %+v\n%.300s", r.Result, r.bytes(r.Stderr))
			} else if got := denied(); r.Status == job.StatusFailed && got != before+1 {
				t.Errorf("%v denials for processes, want %v", got, before+1)
			}
		}
		r := hostile.do(id, request{body: body, text: "ulimit -n; ulimit -Hn; echo x >$out\n"})
		most := strings.Fields(string(r.bytes(r.Stdout)))
		for _, w := range most {
			if n, err := strconv.Atoi(w); err != nil || n > 4096 {
				t.Errorf("a compile's process may have %s files open, want some thousand at most", w)
			}
		}
		if len(most) != 2 {
			t.Errorf("the limits are %q", most)
		}
		if err := ts.Ready(); err != nil {
			t.Errorf("after the bombs: %v", err)
		}
	})
}
