package connmgr

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
)

func TestCompileOnHost(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	res := r.remote(d.Addr, "int x;")
	if res.Host != d.Addr || res.Attempts != 1 || res.BytesOut == 0 || res.BytesIn == 0 {
		t.Errorf("result %+v", res)
	}
	r.idle()
	s := r.m.Status()
	if len(s.Recent) != 1 || s.Recent[0].Local || s.Recent[0].Host != d.Addr || !s.Recent[0].Finished {
		t.Errorf("recent %+v, want the one job", s.Recent)
	}
}

// TestWarmCompileMessages counts what a compile costs on an established connection: one Write and one Send in
// each direction, and no new connection. This is invariant 7: one network round trip.
func TestWarmCompileMessages(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Heartbeat, o.HeartbeatDead = time.Hour, 2*time.Hour
		o.DemandPause = time.Hour // no Demand messages, which are sent from time to time
	})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int warm;")
	r.idle()
	qp := r.link(d.Addr).QP()
	// The Acks of the daemon's first messages may still be under way.
	before := qp.Stats()
	eventually(t, "quiet", func() bool {
		last := before
		time.Sleep(20 * time.Millisecond)
		before = qp.Stats()
		return before == last
	})
	qps := r.dev.Stats().QPs
	const jobs = 5
	for i := range jobs {
		r.remote(d.Addr, fmt.Sprintf("int x%d;", i))
	}
	after := qp.Stats()
	if got := after.WritesSent - before.WritesSent; got != jobs {
		t.Errorf("%d Writes out for %d jobs, want one each", got, jobs)
	}
	if got := after.SendsSent - before.SendsSent; got != jobs {
		t.Errorf("%d Sends out for %d jobs, want one each", got, jobs)
	}
	if got := after.WritesReceived - before.WritesReceived; got != jobs {
		t.Errorf("%d Writes back for %d jobs, want one each", got, jobs)
	}
	if got := after.SendsReceived - before.SendsReceived; got != jobs {
		t.Errorf("%d Sends back for %d jobs, want one each", got, jobs)
	}
	if r.link(d.Addr).QP() != qp || r.dev.Stats().QPs != qps || len(d.Conns) != 1 {
		t.Error("a warm compile made a connection")
	}
}

func TestLongSourceIsCutIntoWrites(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.SlotSize = 4 << 20 })
	r.remote(d.Addr, strings.Repeat("x", 3<<20))
	if got := r.link(d.Addr).QP().Stats().WritesSent; got < 4 || got > 49 {
		t.Errorf("%d Writes for a little over 3 MiB, want some of 64 KiB to 1 MiB", got)
	}
	r.idle()
}

func TestTooBigGoesLocal(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.SlotSize = 64 << 10 })
	no := r.goLocal(d.Addr, strings.Repeat("x", 64<<10))
	if no.Reason != "too-big" || no.Trouble {
		t.Errorf("answer %+v, want too-big without trouble", no)
	}
	if d.JobsSeen() != 0 {
		t.Error("the job was sent")
	}
	r.remote(d.Addr, "small one")
	r.idle()
}

func TestResultTooBigGoesLocal(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseTooBig}})
		}
	})
	if no := r.goLocal(d.Addr, "int x;"); no.Reason != "too-big" || no.Trouble {
		t.Errorf("answer %+v, want too-big without trouble", no)
	}
	r.idle()
	if rec := r.m.Status().Recent[0]; !rec.Twice {
		t.Errorf("record %+v: a host had compiled it", rec)
	}
}

// TestCompilerSaysNo: a failing compile is a result, not an error, and is not
// tried again.
func TestCompilerSaysNo(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			c.Finish(j, &daemontest.Answer{Result: job.Result{Exit: 1}, Err: []byte("x.c:1: error\n")})
		}
	})
	w := r.dial()
	defer w.close()
	got, _ := w.run(leaseOf(d.Addr), "int x")
	res, ok := got.(*ipc.Result)
	if !ok || res.Exit != 1 || len(res.Files) != 0 || res.Stderr.Len != 13 {
		t.Fatalf("answer %T %+v, want exit 1 with its message", got, got)
	}
	b := make([]byte, res.Stderr.Len)
	if _, err := w.sink.ReadAt(b, int64(res.Stderr.Off)); err != nil || string(b) != "x.c:1: error\n" {
		t.Errorf("stderr %q, %v", b, err)
	}
	// The wrapper now runs the command here.
	w.send(&ipc.Local{Version: ipc.Version, Reason: "diagnostics", Turn: ipc.TurnLocal, Closed: true})
	if k := w.recv(); k != ipc.KindGo {
		t.Fatalf("Local answered by %v, want Go", k)
	}
	if s := r.m.Status(); s.Slots.Leased != 0 {
		t.Errorf("%d slots are leased while it runs here, want none", s.Slots.Leased)
	}
	w.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "diagnostics", Exit: 1, Closed: true})
	r.idle()
	if d.JobsSeen() != 1 {
		t.Errorf("the host saw %d jobs, want 1", d.JobsSeen())
	}
	if rec := r.m.Status().Recent[0]; !rec.Local || rec.Reason != "diagnostics" || rec.Trouble {
		t.Errorf("record %+v, want local for diagnostics", rec)
	} else if s := r.m.Stats(); !rec.Twice || s.Twice != 1 || len(s.Again) != 1 || s.Again[0].Reason != "diagnostics" || counter(t, r.m, "rdistcc_cm_compiled_twice_total", "diagnostics") != 1 {
		t.Errorf("a command that ran twice counts as %+v: %+v", rec, s)
	}
}

// TestNoHostsIsNoTrouble: a build without hosts is told so once, and it does not count as trouble.
func TestNoHostsIsNoTrouble(t *testing.T) {
	r := newRig(t, nil)
	for i := range 3 {
		if no := r.goLocal("", "int x;"); no.Reason != "no-hosts" || no.Trouble != (i == 0) {
			t.Errorf("answer %d is %+v, want no-hosts, told at the first", i, no)
		}
	}
	r.idle()
	s := r.m.Status()
	if s.NoHosts != 3 {
		t.Errorf("status counts %d compiles without hosts, want 3", s.NoHosts)
	}
	for _, j := range s.Recent {
		if j.Trouble {
			t.Errorf("counts as trouble: %+v", j)
		}
	}
}

// TestBuildsAreToldOnce: each build is told each reason once, and again after so long without commands that
// it may be another build.
func TestBuildsAreToldOnce(t *testing.T) {
	now := time.Now()
	var told told
	for _, c := range []struct {
		after  time.Duration
		build  uint64
		reason string
		want   bool
	}{
		{0, 1, "a", true}, {1, 1, "a", false}, {2, 1, "b", true}, {3, 2, "a", true}, {4, 1, "a", false},
		{forgetBuild, 1, "a", false}, {2 * forgetBuild, 1, "a", false}, {3*forgetBuild + 1, 1, "a", true}, {3*forgetBuild + 1, 2, "a", true},
	} {
		if got := told.news(now.Add(c.after), c.build, c.reason); got != c.want {
			t.Errorf("after %v build %d hears %s: %v, want %v", c.after, c.build, c.reason, got, c.want)
		}
	}
	for b := range uint64(3 * maxBuilds) {
		told.news(now, b, "a")
	}
	if len(told.builds) > maxBuilds {
		t.Errorf("%d builds are remembered, want at most %d", len(told.builds), maxBuilds)
	}
}

func TestBadHostList(t *testing.T) {
	r := newRig(t, func(o *Options) { o.NoFallback = true })
	no := r.goLocal("user@host", "int x;")
	if no.Reason != "host-list" || !no.Trouble || !no.NoFallback || no.Code != reason.ExitHostList || !strings.Contains(no.Detail, "ssh") {
		t.Errorf("answer %+v, want trouble with exit code 106 that names ssh", no)
	}
	eventually(t, "the job to be counted", func() bool { return len(r.m.Status().Jobs) == 1 })
	if s := r.m.Status(); s.NoHosts != 0 || s.Jobs[0].Reason != "host-list" {
		t.Errorf("counted as %+v, %d without hosts", s.Jobs, s.NoHosts)
	}
	for i, list := range []string{"user@host", "user@host", "user@other"} {
		if no := r.goLocal(list, "int x;"); no.Trouble != (i == 2) || no.Code != reason.ExitHostList {
			t.Errorf("answer %d after that, about %s: %+v, want each list told once", i, list, no)
		}
	}
	r.idle()
}

func TestUnknownCompilerGoesLocal(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	w := r.dial()
	defer w.close()
	f := leaseOf(d.Addr)
	f.Compiler = "/unknown/cc"
	w.send(f)
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "refused:toolchain" {
		t.Errorf("answer %+v, want refused:toolchain", no)
	}
}

func TestHostWithoutToolchainIsNotEligible(t *testing.T) {
	r := newRig(t, nil)
	other := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.IDs = []unit.ToolchainID{{9}} })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	for range 4 {
		if res := r.remote(other.Addr+" "+d.Addr, "int x;"); res.Host != d.Addr {
			t.Errorf("ran on %s, want %s", res.Host, d.Addr)
		}
	}
	if no := r.goLocal(other.Addr, "int x;"); no.Reason != "refused:toolchain" || no.Host == d.Addr {
		t.Errorf("answer %+v, want refused:toolchain", no)
	}
	if other.JobsSeen() != 0 {
		t.Error("a host without the toolchain got a job")
	}
	r.idle()
}

func TestLostHostIsRetriedOnAnother(t *testing.T) {
	r := newRig(t, nil)
	bad := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { c.QP.Abort() }
	})
	good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.warm(bad.Addr + " " + good.Addr)
	res := r.remote(bad.Addr+" "+good.Addr, "int x;")
	if bad.JobsSeen() == 0 {
		t.Fatal("the first host of equals was not asked")
	}
	if res.Host != good.Addr || res.Attempts != 2 {
		t.Errorf("result of %s after %d attempts, want %s after 2", res.Host, res.Attempts, good.Addr)
	}
	r.idle()
}

func TestAllHostsLostGoesLocal(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Backoff, o.BackoffMax = time.Hour, time.Hour }) // a host that is back in time gets the job once more
	abort := func(d *daemontest.Daemon) { d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { c.QP.Abort() } }
	a := daemontest.Start(t, r.far, "127.0.0.1:0", abort)
	b := daemontest.Start(t, r.far, "127.0.0.1:0", abort)
	r.warm(a.Addr + " " + b.Addr)
	no := r.goLocal(a.Addr+" "+b.Addr, "int x;")
	if no.Reason != "host-lost" || !no.Trouble || no.Code != reason.ExitConnect || no.Host == "" || !strings.Contains(no.Detail, "lost (") {
		t.Errorf("answer %+v, want host-lost with its host", no)
	}
	if a.JobsSeen()+b.JobsSeen() != 2 {
		t.Errorf("%d attempts, want 2", a.JobsSeen()+b.JobsSeen())
	}
	r.idle()
	if rec := r.m.Status().Recent[0]; !rec.Local || !rec.Trouble {
		t.Errorf("record %+v, want a local compile with trouble", rec)
	}
}

func TestUnreachableHostGoesLocal(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	d.Stop()
	no := r.goLocal(d.Addr, "int x;")
	if no.Reason != "host-lost" || !no.Trouble {
		t.Errorf("answer %+v, want host-lost", no)
	}
}

// link returns the live connection to a host.
func (r *rig) link(addr string) *link.Link {
	return r.m.farm.Link(addr)
}

// warm waits until all hosts of a list are connected.
func (r *rig) warm(hosts string) {
	r.t.Helper()
	list := r.m.lists.Of(hosts)
	r.m.farm.Want(list.Sched, nil)
	eventually(r.t, "connections", func() bool {
		for _, h := range r.m.hostStatus(list) {
			if h.State != "up" || h.Credits == 0 {
				return false
			}
		}
		return true
	})
}

func TestHostComesBack(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	r.remote(d.Addr, "int x;")
	l := r.link(d.Addr)
	d.Kill()
	<-l.Dead()
	r.warm(d.Addr)
	r.remote(d.Addr, "int y;")
	r.idle()
}

func TestRefusedJobGoesElsewhere(t *testing.T) {
	for _, cause := range []job.Cause{job.CauseToolchain, job.CausePolicy, job.CauseFull, job.CauseDraining, job.CauseMalformed} {
		t.Run(cause.String(), func(t *testing.T) {
			r := newRig(t, nil)
			bad := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusRefused, Cause: cause, Detail: "so it is"}})
				}
			})
			good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			r.warm(bad.Addr + " " + good.Addr)
			if res := r.remote(bad.Addr+" "+good.Addr, "int x;"); res.Host != good.Addr {
				t.Errorf("ran on %s, want %s", res.Host, good.Addr)
			}
			no := r.goLocal(bad.Addr, "int x;")
			want := "refused:" + cause.String()
			if cause == job.CauseMalformed {
				want = "refused:policy"
			}
			if no.Reason != want || !strings.Contains(no.Detail, "so it is") {
				t.Errorf("answer %+v, want %s with the daemon's words", no, want)
			}
			r.idle()
		})
	}
}

func TestKilledCompilerIsRetried(t *testing.T) {
	r := newRig(t, nil)
	killed := func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			c.Finish(j, &daemontest.Answer{Result: job.Result{Signal: 9}})
		}
	}
	a, b := daemontest.Start(t, r.far, "127.0.0.1:0", killed), daemontest.Start(t, r.far, "127.0.0.1:0", killed)
	r.warm(a.Addr + " " + b.Addr)
	no := r.goLocal(a.Addr+" "+b.Addr, "int x;")
	if no.Reason != "host-lost" || !no.Trouble || a.JobsSeen() != 1 || b.JobsSeen() != 1 {
		t.Errorf("answer %+v after %d and %d attempts, want trouble after one each", no, a.JobsSeen(), b.JobsSeen())
	}
	r.idle()
}

func TestRejectedConnection(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Reject = &job.Rejection{Cause: job.CauseDenied, Detail: "not in --allow"}
	})
	no := r.goLocal(d.Addr, "int x;")
	if no.Reason != "denied" || !no.Trouble || no.Code != reason.ExitDenied || !strings.Contains(no.Detail, "not in --allow") {
		t.Errorf("answer %+v, want denied with the daemon's words", no)
	}
}

// TestBadResultsAreRefused: a host whose result is outside the sink, or was not asked for, is broken. The job
// runs elsewhere.
func TestBadResultsAreRefused(t *testing.T) {
	inside := job.Segment{Off: 0, Len: 4}
	for name, bad := range map[string]job.Result{
		"stdout outside":   {Stdout: job.Segment{Off: 1, Len: 4 << 20}},
		"stderr wraps":     {Stderr: job.Segment{Off: 1 << 63, Len: 1<<63 - 1}},
		"file outside":     {Files: []job.File{{Index: 0, Segment: job.Segment{Off: 4 << 20, Len: 1}}}},
		"undeclared file":  {Files: []job.File{{Index: 0, Segment: inside}, {Index: 1, Segment: inside}}},
		"file twice":       {Files: []job.File{{Index: 0, Segment: inside}, {Index: 0, Segment: inside}}},
		"no object at all": {},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					b := bad
					b.ID = j.ID
					c.Send(&b, j.SinkSTag())
				}
			})
			good := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
			r.warm(d.Addr + " " + good.Addr)
			if res := r.remote(d.Addr+" "+good.Addr, "int x;"); res.Host != good.Addr {
				t.Errorf("ran on %s, want %s", res.Host, good.Addr)
			}
			if d.JobsSeen() != 1 {
				t.Errorf("the bad host saw %d jobs, want 1", d.JobsSeen())
			}
			r.idle()
		})
	}
}

// TestResultMustShutItsSink: an answer that does not invalidate the job's sink
// would let the daemon write what the wrapper already reads.
func TestResultMustShutItsSink(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { c.Send(&job.Result{ID: j.ID, Exit: 1}, 0) }
	})
	no := r.goLocal(d.Addr, "int x;")
	if no.Reason != "host-lost" || !strings.Contains(no.Detail, "invalidation") {
		t.Errorf("answer %+v, want host-lost for the missing invalidation", no)
	}
	r.idle()
}

func TestWrapperGoneCancels(t *testing.T) {
	r := newRig(t, nil)
	started, cancelled := make(chan struct{}), make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			close(started)
			<-j.Ctx.Done()
			close(cancelled)
			c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
		}
	})
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.send(w.preprocess("int x;"))
	<-started
	w.close()
	<-cancelled
	r.idle()
	if s := r.m.Status(); s.Hosts[0].Credits != d.Jobs || s.Recent[0].Finished {
		t.Errorf("%d credits and record %+v afterwards, want %d and an unfinished job", s.Hosts[0].Credits, s.Recent[0], d.Jobs)
	}
	// The preprocessor had ended, so the slot can be used again.
	if s := sources(r.m); s.Total != 1 || s.Free != 1 {
		t.Errorf("sources %+v, want the one kept", s)
	}
}

func TestSlotOfAKilledWrapperIsNotUsedAgain(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.close() // its preprocessor may still run
	r.idle()
	if s := sources(r.m); s.Total != 0 {
		t.Errorf("sources %+v, want none kept", s)
	}
	if s := sinks(r.m); s.Free != 1 {
		t.Errorf("sinks %+v, want the one kept", s)
	}
}

// TestDaemonThatIgnoresCancelLosesItsConnection: the sink stays valid until then.
func TestDaemonThatIgnoresCancelLosesItsConnection(t *testing.T) {
	r := newRig(t, func(o *Options) { o.CancelTimeout = 50 * time.Millisecond; o.Heartbeat = 10 * time.Millisecond })
	started := make(chan *daemontest.Conn, 1)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { started <- c }
		d.OnCancel = func(*daemontest.Conn, *job.Cancel) {}
	})
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.send(w.preprocess("int x;"))
	c := <-started
	w.close()
	<-c.QP.Done()
	r.idle()
}

func TestDrainingHostGetsNothingNew(t *testing.T) {
	r := newRig(t, nil)
	finish, begun := make(chan struct{}), make(chan struct{}, 8)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			begun <- struct{}{}
			<-finish
			a := daemontest.Compiled(j)
			a.NoNext = true
			c.Finish(j, a)
		}
	})
	r.warm(d.Addr)
	var wg sync.WaitGroup
	wg.Go(func() { r.remote(d.Addr, "running when it drains") })
	<-begun
	c := d.Conns[0]
	c.Send(&job.Drain{Seq: 1}, 0)
	eventually(t, "the drain to be seen", func() bool { return r.m.Status().Hosts[0].State == "draining" })
	if no := r.goLocal(d.Addr, "int x;"); no.Reason != "refused:draining" {
		t.Errorf("answer %+v, want refused:draining", no)
	}
	close(finish)
	wg.Wait()
	eventually(t, "the credit to come back", func() bool {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		return len(c.Returns) == d.Jobs-1 && len(c.Slots) == 0
	})
	r.idle()
}

func TestRecallReturnsUnspentCredits(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Jobs = 4 })
	r.warm(d.Addr)
	c := d.Conns[0]
	c.Send(&job.Recall{Seq: 7, Count: 3}, 0)
	eventually(t, "the answer to the recall", func() bool {
		c.Mu.Lock()
		defer c.Mu.Unlock()
		for _, a := range c.Acks {
			if a.Of == job.KindRecall && a.Seq == 7 {
				if len(c.Returns) != 3 {
					t.Errorf("%d credits returned before the Ack, want 3", len(c.Returns))
				}
				return true
			}
		}
		return false
	})
	if got := r.m.Status().Hosts[0].Credits; got != 1 {
		t.Errorf("%d credits left, want 1", got)
	}
	r.remote(d.Addr, "the one that is left")
	r.idle()
}

func TestManyWrappers(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Slots = 16 })
	a := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Jobs = 4 })
	b := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Jobs = 2 })
	hosts := a.Addr + " " + b.Addr
	r.warm(hosts)
	base := descriptors(t)
	var wg sync.WaitGroup
	const n = 200
	for i := range n {
		wg.Go(func() { r.remote(hosts, fmt.Sprintf("int x%d; %s", i, strings.Repeat("y", i*100))) })
	}
	wg.Wait()
	r.idle()
	if got := a.JobsSeen() + b.JobsSeen(); got != n {
		t.Errorf("the hosts saw %d jobs, want %d", got, n)
	}
	if a.JobsSeen() == 0 || b.JobsSeen() == 0 {
		t.Errorf("jobs were spread %d to %d", a.JobsSeen(), b.JobsSeen())
	}
	kept := sources(r.m).Total + sinks(r.m).Total
	if kept > 2*16 {
		t.Errorf("%d buffers, want at most %d", kept, 2*16)
	}
	eventually(t, "the descriptors to be closed", func() bool { return descriptors(t) <= base+kept })
}

// TestWaitingWrapperGone: a wrapper that goes away while it waits for a credit leaves the queue and holds
// nothing.
func TestWaitingWrapperGone(t *testing.T) {
	r := newRig(t, nil)
	finish, begun := make(chan struct{}), make(chan struct{}, 1)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Jobs = 1
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			begun <- struct{}{}
			<-finish
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { r.remote(d.Addr, "has the credit") })
	<-begun
	w := r.dial()
	if !w.lease(leaseOf(d.Addr)) {
		t.FailNow()
	}
	w.send(w.preprocess("waits"))
	eventually(t, "the second to wait", func() bool { return r.m.Status().Waiting.Credit == 1 })
	w.close()
	eventually(t, "the second to leave", func() bool { return r.m.Status().Waiting.Credit == 0 })
	close(finish)
	wg.Wait()
	r.remote(d.Addr, "has the credit next")
	if d.JobsSeen() != 2 {
		t.Errorf("the host saw %d jobs, want 2", d.JobsSeen())
	}
	r.idle()
}

// TestLocalShare: jobs for which the hosts have no room run here, up to the local share in the host list.
func TestLocalShare(t *testing.T) {
	r := newRig(t, nil)
	finish, begun := make(chan struct{}), make(chan struct{}, 1)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.Jobs = 1
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			begun <- struct{}{}
			<-finish
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	hosts := d.Addr + " localhost/1"
	r.warm(hosts)
	var wg sync.WaitGroup
	wg.Go(func() { r.remote(hosts, "on the host") })
	<-begun
	share := r.dial()
	share.send(leaseOf(hosts))
	if no, ok := share.recv().(*ipc.GoLocal); !ok || no.Reason != "local-share" || no.Trouble || no.Code != 0 {
		t.Errorf("answer %+v, want local-share", no)
	}
	// The local share is in use, so this one waits for the host.
	wg.Go(func() { r.remote(hosts, "on the host, later") })
	eventually(t, "the third to wait", func() bool { return r.m.Status().Waiting.Credit == 1 })
	close(finish)
	wg.Wait()
	share.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "local-share"})
	share.close()
	r.idle()
}

func TestLocalCommandsTakeTurns(t *testing.T) {
	r := newRig(t, func(o *Options) { o.LocalJobs = 1 })
	first, second := r.dial(), r.dial()
	defer first.close()
	defer second.close()
	link := &ipc.Local{Version: ipc.Version, Reason: "link", Turn: ipc.TurnLocal}
	first.send(link)
	if k := first.recv(); k != ipc.KindGo {
		t.Fatalf("Local answered by %v", k)
	}
	second.send(link)
	eventually(t, "the second to wait", func() bool { return r.m.Status().Waiting.Local == 1 })
	first.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "link"})
	if k := second.recv(); k != ipc.KindGo {
		t.Fatalf("Local answered by %v", k)
	}
	second.send(&ipc.Finish{Where: ipc.WhereLocal, Reason: "link"})
	r.idle()
}

func TestLocalSlotsOfTheListCount(t *testing.T) {
	r := newRig(t, func(o *Options) { o.Preprocessors = 1 })
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	a, b := r.dial(), r.dial()
	defer a.close()
	defer b.close()
	hosts := "--localslots_cpp=2 " + d.Addr
	if !a.lease(leaseOf(hosts)) || !b.lease(leaseOf(hosts)) {
		t.Fatal("two preprocessors were not allowed")
	}
}

func TestNoSlotGoesLocal(t *testing.T) {
	r := newRig(t, func(o *Options) { o.SlotSize = 1 << 55 }) // more than any kernel can map
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	if no := r.goLocal(d.Addr, "int x;"); no.Reason != "no-slot" || !no.Trouble {
		t.Errorf("answer %+v, want no-slot", no)
	}
	r.idle()
}

func TestSubmitOutsideItsSlot(t *testing.T) {
	r := newRig(t, nil)
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	for name, change := range map[string]func(s *ipc.Submit){
		"text past the end": func(s *ipc.Submit) { s.TextLen = 4 << 20 },
		"length wraps":      func(s *ipc.Submit) { s.TextLen = ^uint64(0) },
		"text in the body":  func(s *ipc.Submit) { s.BodyLen = s.TextOff + 1 },
		"not aligned":       func(s *ipc.Submit) { s.TextOff++ },
		"no body":           func(s *ipc.Submit) { s.BodyLen = 0 },
		"half a body":       func(s *ipc.Submit) { s.BodyLen-- },
	} {
		t.Run(name, func(t *testing.T) {
			w := r.dial()
			defer w.close()
			if !w.lease(leaseOf(d.Addr)) {
				t.FailNow()
			}
			s := w.preprocess("int x;")
			change(s)
			w.send(s)
			if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "manager" || no.Code != reason.ExitProtocol {
				t.Errorf("answer %+v, want manager with exit code 109", no)
			}
		})
	}
	r.idle()
	if d.JobsSeen() != 0 {
		t.Error("a job was sent")
	}
}

func TestBrokenWrapperLosesItsConnection(t *testing.T) {
	r := newRig(t, nil)
	for name, frames := range map[string][]byte{
		"submit first":  (&ipc.Submit{BodyLen: 1}).Append(nil),
		"two leases":    leaseOf("").Append(leaseOf("").Append(nil)),
		"not a frame":   []byte("GET / HTTP/1.1\r\n\r\n"),
		"manager's own": (&ipc.GoLocal{}).Append(nil),
	} {
		w := r.dial()
		if err := w.conn.Send(frames); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for {
			k, _, err := w.conn.Recv()
			if err != nil {
				break
			}
			if k != ipc.KindGoLocal { // only the first of two leases is answered
				t.Errorf("%s: answered by %d", name, k)
			}
		}
		w.close()
	}
	r.idle()
}

func TestOtherVersionIsToldSo(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	defer w.close()
	f := leaseOf("")
	f.Version++
	w.send(f)
	if no, ok := w.recv().(*ipc.GoLocal); !ok || no.Reason != "manager" || !strings.Contains(no.Detail, "version") {
		t.Errorf("answer %+v, want manager for its version", no)
	}
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	r := newRig(t, nil)
	finish, begun := make(chan struct{}), make(chan struct{})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
			close(begun)
			<-finish
			c.Finish(j, daemontest.Compiled(j))
		}
	})
	var wg sync.WaitGroup
	wg.Go(func() { r.remote(d.Addr, "int x;") })
	<-begun
	r.m.Stop()
	if err := <-r.serving; err != nil {
		t.Errorf("Serve: %v", err)
	}
	r.serving <- nil // for close
	if _, err := os.Stat(r.socket); err == nil {
		t.Error("the socket is still there")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := r.m.Drain(ctx); err == nil {
		t.Error("drained while a job runs")
	}
	close(finish)
	wg.Wait()
	if err := r.m.Drain(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestIdleExit(t *testing.T) {
	r := newRig(t, nil)
	w := r.dial()
	w.send(&ipc.Local{Version: ipc.Version, Reason: "query", Turn: ipc.TurnNone})
	eventually(t, "the command to be seen", func() bool { return r.m.Status().Running == 1 })
	r.m.Apply(Live{IdleExit: 40 * time.Millisecond}) // not before: it might be over before there is a command
	select {
	case <-r.serving:
		t.Fatal("the manager ended under a command")
	case <-time.After(150 * time.Millisecond):
	}
	w.close()
	if err := <-r.serving; err != nil {
		t.Error(err)
	}
	r.serving <- nil
}
