package connmgr

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestLostJobIsUnderWayElsewhereAtOnce: a job whose connection closes goes to the next host without a wait.
func TestLostJobIsUnderWayElsewhereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		var lost, again time.Time
		bad := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				time.Sleep(200 * time.Millisecond)
				lost = time.Now()
				c.QP.Abort()
			}
		})
		good := daemontest.Start(t, s.far, "10.0.0.2:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				again = time.Now()
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		s.m.farm.Want(s.m.lists.Of(bad.Addr+" "+good.Addr).Sched, nil)
		synctest.Wait()
		res, no := s.run(context.Background(), leaseOf(bad.Addr+" "+good.Addr), "int x;")
		if no != nil || res.Host != good.Addr || res.Attempts != 2 {
			t.Fatalf("answer %+v %+v, want a result of %s after 2 attempts", res, no, good.Addr)
		}
		if d := again.Sub(lost); d < 0 || d > 100*time.Millisecond {
			t.Errorf("the other host had the job %v after the connection was closed, want at most 100 ms", d)
		}
	})
}

// TestLostHostsAreTriedAgain: a job that may not run here survives the loss of every host while one may come
// back. A job that brings down all hosts is not sent forever.
func TestLostHostsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		falls := func(d *daemontest.Daemon) {
			had := false
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				if !had || strings.Contains(string(j.Text), "poison") {
					had = true
					c.QP.Abort()
					return
				}
				c.Finish(j, daemontest.Compiled(j))
			}
		}
		one := daemontest.Start(t, s.far, "10.0.0.1:7632", falls)
		two := daemontest.Start(t, s.far, "10.0.0.2:7632", falls)
		strict := leaseOf(one.Addr + " " + two.Addr)
		strict.Mode = ipc.ModeRemote
		s.m.farm.Want(s.m.lists.Of(strict.Hosts).Sched, nil)
		synctest.Wait()
		if res, no := s.run(context.Background(), strict, "int x;"); no != nil || res.Attempts != 3 {
			t.Fatalf("answer %+v %+v, want a result of the third attempt", res, no)
		}
		before := one.JobsSeen() + two.JobsSeen()
		if _, no := s.run(context.Background(), strict, "poison"); no == nil || no.Reason != "host-lost" {
			t.Errorf("answer %+v, want host-lost", no)
		}
		if n := one.JobsSeen() + two.JobsSeen() - before; n < 2 || n > strictLosses {
			t.Errorf("the poison was sent to %d hosts, want at most %d", n, strictLosses)
		}
	})
}

// TestHungrySource: a compile that dies on two hosts is not sent to any host for a while. Other compiles are
// sent to the same hosts.
func TestHungrySource(t *testing.T) {
	for name, a := range map[string]daemontest.Answer{
		"memory": {Result: job.Result{Status: job.StatusFailed, Cause: job.CauseMemory}},
		"limit":  {Result: job.Result{Status: job.StatusFailed, Cause: job.CauseLimit}},
		"killed": {Result: job.Result{Signal: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, nil)
				dies := func(d *daemontest.Daemon) {
					d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
						if strings.Contains(string(j.Text), "huge") {
							c.Finish(j, &a)
							return
						}
						c.Finish(j, daemontest.Compiled(j))
					}
				}
				one := daemontest.Start(t, s.far, "10.0.0.1:7632", dies)
				two := daemontest.Start(t, s.far, "10.0.0.2:7632", dies)
				hosts := one.Addr + " " + two.Addr
				s.m.farm.Want(s.m.lists.Of(hosts).Sched, nil)
				synctest.Wait()
				huge := leaseOf(hosts)
				huge.Source = "huge.c"
				if _, no := s.run(context.Background(), huge, "huge"); no == nil || no.Reason != "host-lost" || !no.Trouble {
					t.Errorf("answer %+v, want trouble", no)
				}
				for range 3 {
					_, no := s.run(context.Background(), huge, "huge")
					if no == nil || no.Reason != "refused:memory" || no.Trouble {
						t.Errorf("answer %+v, want refused:memory, which is no trouble any more", no)
					}
					if _, no := s.run(context.Background(), leaseOf(hosts), "int x;"); no != nil {
						t.Errorf("answer %+v for another source", no)
					}
				}
				if n := one.JobsSeen() + two.JobsSeen(); n != 2+3 {
					t.Errorf("hosts had %d jobs, want one attempt each at the hungry one, and the others", n)
				}
				huge.Mode = ipc.ModeRemote
				if _, no := s.run(context.Background(), huge, "huge"); no == nil || no.Reason != "host-lost" {
					t.Errorf("answer %+v, want host-lost: it may not run here", no)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				if _, no := s.run(context.Background(), huge, "small"); no != nil {
					t.Errorf("answer %+v, want another try after so long", no)
				}
			})
		})
	}
}
