package connmgr

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestCarriers: for each setting and host, sources of three sizes travel the way that docs/protocol.md says,
// and the objects are right.
func TestCarriers(t *testing.T) {
	sizes := []int{300, 20 << 10, 200 << 10} // what may travel eager here, what fits a slot, and what fits neither
	const w, e, p = job.Write, job.Eager, job.Pull
	for _, x := range []struct {
		setting string
		host    func(d *daemontest.Daemon)
		want    [3]job.Carrier
	}{
		{"", func(d *daemontest.Daemon) {}, [...]job.Carrier{e, w, p}},
		{"auto", func(d *daemontest.Daemon) { d.Bare = true }, [...]job.Carrier{e, p, p}},
		{"auto", func(d *daemontest.Daemon) { d.Eager = 0 }, [...]job.Carrier{w, w, p}},
		{"auto", func(d *daemontest.Daemon) { d.Eager, d.Bare = 0, true }, [...]job.Carrier{p, p, p}},
		{"write", func(d *daemontest.Daemon) {}, [...]job.Carrier{w, w, p}},
		{"write", func(d *daemontest.Daemon) { d.Bare = true }, [...]job.Carrier{p, p, p}},
		{"eager", func(d *daemontest.Daemon) { d.Eager = 64 << 10 }, [...]job.Carrier{e, e, p}},
		{"pull", func(d *daemontest.Daemon) {}, [...]job.Carrier{p, p, p}},
		{"pull", func(d *daemontest.Daemon) { d.Fetches = 100 << 10 }, [...]job.Carrier{p, p, w}},
		{"pull", func(d *daemontest.Daemon) { d.Fetches = 0 }, [...]job.Carrier{e, w, w}},
	} {
		r := newRig(t, func(o *Options) { small(o); o.Carrier, o.Eager, o.SinkSize = x.setting, 8<<10, 1<<20 })
		var mu sync.Mutex
		var got []job.Carrier
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
			fetching(d)
			d.Eager = 8 << 10
			x.host(d)
			if d.Fetches < 1<<20 {
				d.SlotSize = 1 << 20
			}
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				mu.Lock()
				got = append(got, j.Carrier())
				mu.Unlock()
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		if x.setting == "pull" && d.Fetches == 0 {
			x.want[0] = job.Write // it has no other wish
		}
		for _, n := range sizes {
			if res := r.remote(d.Addr, bigText(n)); res.BytesOut < uint64(n) {
				t.Errorf("%d bytes out for a text of %d", res.BytesOut, n)
			}
			r.given()
		}
		mu.Lock()
		if fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("carrier %q, host with slots %v of %d bytes, eager %d, fetches %d: %v, want %v", x.setting, !d.Bare, d.SlotSize, d.Eager, d.Fetches, got, x.want)
		}
		mu.Unlock()
		n := 0.0
		for _, word := range job.CarrierNames() {
			n += r.count("rdistcc_cm_carriers_total", word)
		}
		if n != 3 {
			t.Errorf("%v jobs counted by carrier", n)
		}
	}
}

// TestWarmEagerMessages: an eager compile on an established connection costs one Send out, and one Write and
// one Send back.
func TestWarmEagerMessages(t *testing.T) {
	r := newRig(t, func(o *Options) {
		o.Heartbeat, o.HeartbeatDead = time.Hour, 2*time.Hour
		o.DemandPause = time.Hour
	})
	d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) { d.Eager, d.Bare = 16<<10, true })
	r.remote(d.Addr, "int warm;")
	r.idle()
	qp := r.link(d.Addr).QP()
	before := qp.Stats()
	eventually(t, "quiet", func() bool {
		last := before
		time.Sleep(20 * time.Millisecond)
		before = qp.Stats()
		return before == last
	})
	const jobs = 5
	for i := range jobs {
		r.remote(d.Addr, fmt.Sprintf("int x%d;", i))
	}
	after := qp.Stats()
	if out, sends := after.WritesSent-before.WritesSent, after.SendsSent-before.SendsSent; out != 0 || sends != jobs {
		t.Errorf("%d Writes and %d Sends out for %d jobs", out, sends, jobs)
	}
	if in, sends := after.WritesReceived-before.WritesReceived, after.SendsReceived-before.SendsReceived; in != jobs || sends != jobs {
		t.Errorf("%d Writes and %d Sends back for %d jobs", in, sends, jobs)
	}
	if r.link(d.Addr).QP() != qp || len(d.Conns) != 1 {
		t.Error("a warm compile made a connection")
	}
}

// pulling makes the manager offer sources, and hosts without slots.
func pulling(o *Options)        { o.Carrier = "pull" }
func bare(d *daemontest.Daemon) { d.Bare, d.Fetches = true, 8<<20 }
func read(w job.Window) iwarp.SendWR {
	return iwarp.SendWR{Op: iwarp.OpRead, STag: iwarp.STag(w.STag), TO: w.TO}
}

// TestPulledWindowIsExact: a host that reads outside the window of its job, that writes to it, or that reads
// it once the job is answered, loses the connection. What lies around the source stays unread.
func TestPulledWindowIsExact(t *testing.T) {
	for name, x := range map[string]struct {
		late bool
		do   func(w job.Window) iwarp.SendWR
	}{
		"past the end":     {do: func(w job.Window) iwarp.SendWR { w.TO += w.Len - 7; return read(w) }},
		"before the start": {do: func(w job.Window) iwarp.SendWR { w.TO--; return read(w) }},
		"another STag":     {do: func(w job.Window) iwarp.SendWR { w.STag ^= 1 << 9; return read(w) }},
		"a Write": {do: func(w job.Window) iwarp.SendWR {
			return iwarp.SendWR{Op: iwarp.OpWrite, STag: iwarp.STag(w.STag), TO: w.TO}
		}},
		"after the Result": {late: true, do: read},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(o *Options) { pulling(o); o.Attempts = 1 })
			var mem [8]byte
			var jobs sync.WaitGroup // more than one if the host is connected again before the manager gives it up
			d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
				bare(d)
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					jobs.Add(1)
					defer jobs.Done()
					if x.late {
						c.Finish(j, daemontest.Compiled(j))
						r.idleSlots() // its wrapper has the result, so the window is shut
					}
					c.Reach(x.do(j.Source), mem[:])
				}
			})
			if x.late {
				r.remote(d.Addr, "int x;")
			} else if no := r.goLocal(d.Addr, "int x;"); no.Reason != "host-lost" {
				t.Errorf("answer %+v, want host-lost", no)
			}
			jobs.Wait()
			if mem != [8]byte{} {
				t.Errorf("it read %q", mem)
			}
			r.given()
		})
	}
}

// idleSlots waits until no slot is in use.
func (r *rig) idleSlots() {
	eventually(r.t, "slots to be free", func() bool { s := sources(r.m); return s.Total == s.Free })
}

// TestPulledSourceOfTheGone: while a job waits at its host, unread, its source stays as it is; when its wrapper
// goes, the window is shut only by the host's answer, or by the end of the connection.
func TestPulledSourceOfTheGone(t *testing.T) {
	for _, killed := range []bool{false, true} {
		r := newRig(t, pulling)
		gate := make(chan struct{})
		d := daemontest.Start(t, r.far, "127.0.0.1:0", func(d *daemontest.Daemon) {
			bare(d)
			d.OnSource = func(*job.Job) { <-gate }
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
			}
		})
		w := r.dial()
		if !w.lease(leaseOf(d.Addr)) {
			t.FailNow()
		}
		w.send(w.preprocess("int x;"))
		eventually(t, "the job", func() bool { return d.JobsSeen() == 1 })
		w.close()
		eventually(t, "the wrapper's end", func() bool { return r.m.Status().Slots.Leased == 1 })
		if s := sources(r.m); s.Total == s.Free {
			t.Error("the slot of a source that can be read is free")
		}
		if killed {
			d.Kill()
		}
		close(gate)
		r.given()
	}
}

// TestPulledByTwo: a late job gets a second host, and both pull the same source through windows of their own.
func TestPulledByTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, pulling)
		answers := make(chan struct{})
		var mu sync.Mutex
		var windows []job.Window
		host := func(late bool) func(d *daemontest.Daemon) {
			return func(d *daemontest.Daemon) {
				bare(d)
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					if string(j.Text) != "short" {
						mu.Lock()
						windows = append(windows, j.Source)
						mu.Unlock()
						if late {
							<-j.Ctx.Done()
							<-answers
							c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
							return
						}
					}
					c.Finish(j, timed(j))
				}
			}
		}
		slow := daemontest.Start(t, s.far, "10.0.0.1:7632", host(true))
		good := daemontest.Start(t, s.far, "10.0.0.2:7632", host(false))
		hosts := slow.Addr + " " + good.Addr
		s.acquaint(hosts)
		res, no := s.run(context.Background(), leaseOf(hosts), "long!")
		if no != nil || res.Host != good.Addr || res.Attempts != 2 {
			t.Fatalf("answer %+v %+v, want a result of %s", res, no, good.Addr)
		}
		synctest.Wait()
		if len(windows) != 2 || windows[0].STag == 0 || windows[0].STag == windows[1].STag {
			t.Errorf("windows %+v, want two different ones", windows)
		}
		if s.m.Status().Slots.Leased != 1 {
			t.Error("the source is free while the slow host may read it")
		}
		close(answers)
		synctest.Wait()
		if s.m.Status().Slots.Leased != 0 {
			t.Error("the source is still held")
		}
	})
}
