package connmgr

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestLostJobIsUnderWayElsewhereAtOnce: nothing is waited for between a closed
// connection and the next host.
func TestLostJobIsUnderWayElsewhereAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		var lost, again time.Time
		bad := startFake(t, s.far, "10.0.0.1:7632", func(d *fakeDaemon) {
			d.onJob = func(c *fakeConn, j *fakeJob) {
				time.Sleep(200 * time.Millisecond)
				lost = time.Now()
				c.qp.Abort()
			}
		})
		good := startFake(t, s.far, "10.0.0.2:7632", func(d *fakeDaemon) {
			d.onJob = func(c *fakeConn, j *fakeJob) {
				again = time.Now()
				c.finish(j, compiled(j))
			}
		})
		s.m.farm.Want(s.m.lists.Of(bad.addr+" "+good.addr).Sched, nil)
		synctest.Wait()
		res, no := s.run(context.Background(), leaseOf(bad.addr+" "+good.addr), "int x;")
		if no != nil || res.Host != good.addr || res.Attempts != 2 {
			t.Fatalf("answer %+v %+v, want a result of %s after 2 attempts", res, no, good.addr)
		}
		if d := again.Sub(lost); d < 0 || d > 100*time.Millisecond {
			t.Errorf("the other host had the job %v after the connection was closed, want at most 100 ms", d)
		}
	})
}

// TestLostHostsAreTriedAgain: a job that may not be done here outlives the loss of every
// host, while one may come back; a job that brings all of them down is not sent for ever.
func TestLostHostsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, nil)
		falls := func(d *fakeDaemon) {
			had := false
			d.onJob = func(c *fakeConn, j *fakeJob) {
				if !had || strings.Contains(string(j.text), "poison") {
					had = true
					c.qp.Abort()
					return
				}
				c.finish(j, compiled(j))
			}
		}
		one := startFake(t, s.far, "10.0.0.1:7632", falls)
		two := startFake(t, s.far, "10.0.0.2:7632", falls)
		strict := leaseOf(one.addr + " " + two.addr)
		strict.Mode = ipc.ModeRemote
		s.m.farm.Want(s.m.lists.Of(strict.Hosts).Sched, nil)
		synctest.Wait()
		if res, no := s.run(context.Background(), strict, "int x;"); no != nil || res.Attempts != 3 {
			t.Fatalf("answer %+v %+v, want a result of the third attempt", res, no)
		}
		before := one.jobsSeen() + two.jobsSeen()
		if _, no := s.run(context.Background(), strict, "poison"); no == nil || no.Reason != "host-lost" {
			t.Errorf("answer %+v, want host-lost", no)
		}
		if n := one.jobsSeen() + two.jobsSeen() - before; n < 2 || n > strictLosses {
			t.Errorf("the poison was sent to %d hosts, want at most %d", n, strictLosses)
		}
	})
}

// TestHungrySource: a compile that dies on two hosts is not sent to any for a while;
// others of the same hosts are.
func TestHungrySource(t *testing.T) {
	for name, a := range map[string]answer{
		"memory": {Result: job.Result{Status: job.StatusFailed, Cause: job.CauseMemory}},
		"limit":  {Result: job.Result{Status: job.StatusFailed, Cause: job.CauseLimit}},
		"killed": {Result: job.Result{Signal: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, nil)
				dies := func(d *fakeDaemon) {
					d.onJob = func(c *fakeConn, j *fakeJob) {
						if strings.Contains(string(j.text), "huge") {
							c.finish(j, &a)
							return
						}
						c.finish(j, compiled(j))
					}
				}
				one := startFake(t, s.far, "10.0.0.1:7632", dies)
				two := startFake(t, s.far, "10.0.0.2:7632", dies)
				hosts := one.addr + " " + two.addr
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
				if n := one.jobsSeen() + two.jobsSeen(); n != 2+3 {
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
