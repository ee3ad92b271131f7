package connmgr

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// counter returns the sum of a counter's series that have a label with this value; "" = all series.
func counter(t *testing.T, m *Manager, name, value string) (sum float64) {
	t.Helper()
	all, err := m.o.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, x := range f.GetMetric() {
			for _, l := range x.GetLabel() {
				if l.GetValue() == value || value == "" {
					sum += x.GetCounter().GetValue()
					break
				}
			}
		}
	}
	return sum
}

// hedges checks how many second hosts answered first (won) and how many did not (lost).
func hedges(t *testing.T, m *Manager, won, lost float64) {
	t.Helper()
	const name = "rdistcc_cm_hedges_total"
	if w, l := counter(t, m, name, "won"), counter(t, m, name, "lost"); w != won || l != lost {
		t.Errorf("%v hedges won, %v lost, want %v and %v", w, l, won, lost)
	}
}

// timed returns the answer to a compile of 100 ms, whose time the manager remembers.
func timed(j *daemontest.Job) *daemontest.Answer {
	a := daemontest.Compiled(j)
	a.Wall, a.CPU = 100_000, 100_000
	return a
}

// acquaint runs some jobs on the hosts, so that the manager can predict the next ones.
func (s *simulated) acquaint(hosts string) {
	s.t.Helper()
	s.m.farm.Want(s.m.lists.Of(hosts).Sched, nil)
	synctest.Wait()
	for range 4 {
		if _, no := s.run(context.Background(), leaseOf(hosts), "short"); no != nil {
			s.t.Fatalf("answer %+v", no)
		}
	}
}

// TestSecondHostWins: a late job gets a second host. The wrapper gets the answer at once, and the memory is
// freed when the first host has answered the Cancel.
func TestSecondHostWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		answers := make(chan struct{})
		slow := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if string(j.Text) == "short" {
					c.Finish(j, timed(j))
					return
				}
				<-j.Ctx.Done()
				<-answers
				c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
			}
		})
		good := daemontest.Start(t, s.far, "10.0.0.2:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { c.Finish(j, timed(j)) }
		})
		hosts := slow.Addr + " " + good.Addr
		s.acquaint(hosts)
		began := time.Now()
		res, no := s.run(context.Background(), leaseOf(hosts), "long!")
		if no != nil || res.Host != good.Addr || !res.Moved || res.Attempts != 2 {
			t.Fatalf("answer %+v %+v, want a result of %s in a sink of its own", res, no, good.Addr)
		}
		if took := time.Since(began); took < 400*time.Millisecond || took > 4*time.Second {
			t.Errorf("it took %v, want between half a second and 4 s", took)
		}
		hedges(t, s.m, 1, 0)
		synctest.Wait()
		leased := func() int { st := sinks(s.m); return st.Total - st.Free }
		if leased() != 1 || s.m.Status().Slots.Leased != 1 {
			t.Errorf("%d sinks and %d sources in use while the slow host may write, want one of each", leased(), s.m.Status().Slots.Leased)
		}
		close(answers)
		synctest.Wait()
		if leased() != 0 || s.m.Status().Slots.Leased != 0 {
			t.Errorf("%d sinks and %d sources in use, want none", leased(), s.m.Status().Slots.Leased)
		}
		for _, h := range s.m.Status().Hosts {
			if h.State != "up" || h.Running != 0 {
				t.Errorf("%s is %s with %d jobs: to be slow is no fault", h.Addr, h.State, h.Running)
			}
		}
	})
}

// TestFirstHostWins: the first host answers before the second.
func TestFirstHostWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		first := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if string(j.Text) == "short" {
					c.Finish(j, timed(j))
					return
				}
				time.Sleep(4 * time.Second)
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		second := daemontest.Start(t, s.far, "10.0.0.2:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if string(j.Text) == "short" {
					c.Finish(j, timed(j))
					return
				}
				<-j.Ctx.Done()
				c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
			}
		})
		hosts := first.Addr + " " + second.Addr
		s.acquaint(hosts)
		before := second.JobsSeen()
		res, no := s.run(context.Background(), leaseOf(hosts), "long!")
		if no != nil || res.Host != first.Addr || res.Moved {
			t.Fatalf("answer %+v %+v, want a result of %s in the leased sink", res, no, first.Addr)
		}
		if second.JobsSeen() != before+1 {
			t.Error("there was no second host")
		}
		hedges(t, s.m, 0, 1)
		synctest.Wait()
		if n := s.m.Status().Slots.Leased; n != 0 {
			t.Errorf("%d slots in use, want none", n)
		}
	})
}

// TestSecondHostFails: if the second host fails, the manager waits for the first.
func TestSecondHostFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		first := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if string(j.Text) == "short" {
					c.Finish(j, timed(j))
					return
				}
				time.Sleep(10 * time.Second)
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		second := daemontest.Start(t, s.far, "10.0.0.2:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if string(j.Text) == "short" {
					c.Finish(j, timed(j))
					return
				}
				c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseDisk}})
			}
		})
		hosts := first.Addr + " " + second.Addr
		s.acquaint(hosts)
		before := second.JobsSeen()
		res, no := s.run(context.Background(), leaseOf(hosts), "long!")
		if no != nil || res.Host != first.Addr || second.JobsSeen() != before+1 {
			t.Fatalf("answer %+v %+v, want a result of %s after the other failed", res, no, first.Addr)
		}
		hedges(t, s.m, 0, 1)
	})
}

// TestHedgedObject: the wrapper reads the winner's object, with real sockets and memory.
func TestHedgedObject(t *testing.T) {
	r := newRig(t, nil)
	answers := func(d *daemontest.Daemon) {
		d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) { c.Finish(j, timed(j)) }
	}
	slow, good := daemontest.Start(t, r.far, "127.0.0.1:0", answers), daemontest.Start(t, r.far, "127.0.0.1:0", answers)
	hosts := slow.Addr + " " + good.Addr
	for range 5 { // so that the manager can predict the next one
		r.remote(hosts, "int x;")
	}
	slow.Mu.Lock()
	slow.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
		<-j.Ctx.Done()
		a := daemontest.Compiled(j)
		a.Objects[0] = []byte(strings.Repeat("late", 10)) // it writes, although it has lost
		c.Finish(j, a)
	}
	slow.Mu.Unlock()
	for i := 0; counter(t, r.m, "rdistcc_cm_hedges_total", "won") == 0; i++ {
		if i == 20 {
			t.Fatal("no job went to the slow host and from there to the other one")
		}
		if res := r.remote(hosts, "int y;"); res.Host != good.Addr {
			t.Errorf("result of %s, want %s", res.Host, good.Addr)
		}
	}
	r.idle()
}
