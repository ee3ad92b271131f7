package farm

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// busy starts n jobs with long sources on a slow line, and returns what waits for
// their end.
func (r *rig) busy(hosts []scheduler.Host, n int) *sync.WaitGroup {
	var all sync.WaitGroup
	text := strings.Repeat("x", 3<<20)
	for range n {
		all.Go(func() { r.run(hosts, 1, text) })
	}
	return &all
}

// links are a host's connections now.
func (r *rig) links(addr string) (n int, state string) {
	h := r.f.Status(list(addr))[0]
	return h.Links, h.State
}

// TestPoolGrowsAndShrinks: a host whose connection has much to do gets a second one,
// which carries jobs, and loses it when that is idle.
func TestPoolGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, net := newSimulated(t, func(o *Options) { o.LinksMax = 2 })
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) { d.SlotSize, d.Jobs = 4<<20, 4 })
		net.Slow[d.Addr] = 1 << 20
		hosts := list(d.Addr)
		s.busy(hosts, 1).Wait() // which tells the rate
		if n, _ := s.links(d.Addr); n != 1 {
			t.Fatalf("%d connections for one job", n)
		}
		s.busy(hosts, 8).Wait()
		if n, state := s.links(d.Addr); n != 2 || state != "up" {
			t.Errorf("%d connections, state %s, for eight long jobs; want 2", n, state)
		}
		if w := d.Conns[1].QP.Stats().WritesReceived; w == 0 {
			t.Error("the second connection carried nothing")
		}
		if h := s.f.Status(hosts)[0]; h.Links != 2 || h.Credits != 8 {
			t.Errorf("%d connections with %d credits, want 2 with 8", h.Links, h.Credits)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n, state := s.links(d.Addr); n != 1 || state != "up" {
			t.Errorf("%d connections, state %s, when idle; want 1", n, state)
		}
		if len(d.Conns[1].Slots) != 0 || len(d.Conns[1].Returns) != 4 {
			t.Errorf("%d credits were returned before the end, want 4", len(d.Conns[1].Returns))
		}
		s.run(hosts, 1, "int x;")
	})
}

// TestPoolLosesOne: when one of two connections ends, whichever, the other carries
// on, and only the jobs of the lost one are done again.
func TestPoolLosesOne(t *testing.T) {
	for _, which := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := newSimulated(t, func(o *Options) { o.LinksMin, o.LinksMax = 2, 2 })
			far := func(d *daemontest.Daemon) {
				d.SlotSize, d.Jobs = 4<<20, 4
				d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
					select {
					case <-time.After(10 * time.Second):
						c.Finish(j, daemontest.Compiled(j))
					case <-j.Ctx.Done():
						c.Finish(j, &daemontest.Answer{Result: job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}})
					}
				}
			}
			d, other := daemontest.Start(t, s.far, "10.0.0.1:7632", far), daemontest.Start(t, s.far, "10.0.0.2:7632", far)
			s.f.Want(list(d.Addr), nil)
			time.Sleep(5 * time.Second)
			if n, _ := s.links(d.Addr); n != 2 {
				t.Fatalf("%d connections, want the two that are to be kept", n)
			}
			all := s.busy(list(d.Addr, other.Addr), 6)
			time.Sleep(5 * time.Second)
			d.Conns[which].QP.Abort()
			time.Sleep(time.Second)
			if n, state := s.links(d.Addr); n != 1 || state != "up" {
				t.Errorf("%d connections, state %s, after a loss; want 1 and up", n, state)
			}
			if h := s.f.Snapshot(nil).Hosts[0]; h.Addr != d.Addr || h.Load == nil {
				t.Errorf("status %+v", h)
			}
			all.Wait()
			time.Sleep(time.Minute)
			synctest.Wait()
			if n, state := s.links(d.Addr); n != 2 || state != "up" {
				t.Errorf("%d connections, state %s, a minute later; want 2 and up", n, state)
			}
		})
	}
}

// TestPoolLosesAll: then the host is lost, and dialled anew as ever.
func TestPoolLosesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSimulated(t, func(o *Options) { o.LinksMin, o.LinksMax = 3, 3 })
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		s.f.Want(list(d.Addr), nil)
		for range 5 {
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n, state := s.links(d.Addr); n != 3 || state != "up" {
				t.Fatalf("%d connections, state %s, want 3 and up", n, state)
			}
			d.Kill()
			synctest.Wait()
			if n, _ := s.links(d.Addr); n != 0 {
				t.Errorf("%d connections of a host that closed all", n)
			}
		}
	})
}
