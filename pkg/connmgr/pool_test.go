package connmgr

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// busy starts n jobs with long sources on a slow line, and returns what waits for
// their end.
func (s *simulated) busy(addr string, n int) *sync.WaitGroup {
	var all sync.WaitGroup
	text := strings.Repeat("x", 3<<20)
	for range n {
		all.Go(func() {
			if _, no := s.run(context.Background(), leaseOf(addr), text); no != nil {
				s.t.Errorf("answer %+v", no)
			}
		})
	}
	return &all
}

// links are a host's connections now.
func (s *simulated) links(addr string) (n int, state string) {
	h := s.m.farm.Status([]scheduler.Host{{Addr: addr}})[0]
	return h.Links, h.State
}

// TestPoolGrowsAndShrinks: a host whose connection has much to do gets a second one,
// which carries jobs, and loses it when that is idle.
func TestPoolGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.LinksMax, o.Slots = 2, 8 })
		d := startFake(t, s.far, "10.0.0.1:7632", func(d *fakeDaemon) { d.slotSize, d.jobs = 4<<20, 4 })
		s.slow[d.addr] = 1 << 20
		s.busy(d.addr, 1).Wait() // which tells the rate
		if n, _ := s.links(d.addr); n != 1 {
			t.Fatalf("%d connections for one job", n)
		}
		s.busy(d.addr, 8).Wait()
		if n, state := s.links(d.addr); n != 2 || state != "up" {
			t.Errorf("%d connections, state %s, for eight long jobs; want 2", n, state)
		}
		if w := d.conns[1].qp.Stats().WritesReceived; w == 0 {
			t.Error("the second connection carried nothing")
		}
		if h := s.m.Status().Hosts[0]; h.Links != 2 || h.Credits != 8 {
			t.Errorf("%d connections with %d credits, want 2 with 8", h.Links, h.Credits)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n, state := s.links(d.addr); n != 1 || state != "up" {
			t.Errorf("%d connections, state %s, when idle; want 1", n, state)
		}
		if len(d.conns[1].slots) != 0 || len(d.conns[1].returns) != 4 {
			t.Errorf("%d credits were returned before the end, want 4", len(d.conns[1].returns))
		}
		if _, no := s.run(context.Background(), leaseOf(d.addr), "int x;"); no != nil {
			t.Errorf("answer %+v", no)
		}
	})
}

// TestPoolLosesOne: when one of two connections ends, whichever, the other carries
// on, and only the jobs of the lost one are done again.
func TestPoolLosesOne(t *testing.T) {
	for _, which := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulated(t, func(o *Options) { o.LinksMin, o.LinksMax, o.Slots = 2, 2, 8 })
			far := func(d *fakeDaemon) {
				d.slotSize, d.jobs = 4<<20, 4
				d.onJob = func(c *fakeConn, j *fakeJob) {
					select {
					case <-time.After(10 * time.Second):
						c.finish(j, compiled(j))
					case <-j.ctx.Done():
						c.finish(j, &answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
					}
				}
			}
			d, other := startFake(t, s.far, "10.0.0.1:7632", far), startFake(t, s.far, "10.0.0.2:7632", far)
			s.m.farm.Want(s.m.lists.Of(d.addr).Sched, nil)
			time.Sleep(5 * time.Second)
			if n, _ := s.links(d.addr); n != 2 {
				t.Fatalf("%d connections, want the two that are to be kept", n)
			}
			all := s.busy(d.addr+" "+other.addr, 6)
			time.Sleep(5 * time.Second)
			d.conns[which].qp.Abort()
			time.Sleep(time.Second)
			if n, state := s.links(d.addr); n != 1 || state != "up" {
				t.Errorf("%d connections, state %s, after a loss; want 1 and up", n, state)
			}
			if h := s.m.Status().Hosts[0]; h.Addr != d.addr || h.Load == nil {
				t.Errorf("status %+v", h)
			}
			all.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n, state := s.links(d.addr); n != 2 || state != "up" {
				t.Errorf("%d connections, state %s, a minute later; want 2 and up", n, state)
			}
		})
	}
}

// TestPoolLosesAll: then the host is lost, and dialled anew as ever.
func TestPoolLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.LinksMin, o.LinksMax = 3, 3 })
		d := startFake(t, s.far, "10.0.0.1:7632", nil)
		s.m.farm.Want(s.m.lists.Of(d.addr).Sched, nil)
		for range 5 {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n, state := s.links(d.addr); n != 3 || state != "up" {
				t.Fatalf("%d connections, state %s, want 3 and up", n, state)
			}
			d.kill()
			synctest.Wait()
			if n, _ := s.links(d.addr); n != 0 {
				t.Errorf("%d connections of a host that closed all", n)
			}
		}
	})
}
