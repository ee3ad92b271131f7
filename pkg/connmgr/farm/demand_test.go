package farm

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// TestDemand: a host hears how many of our jobs could use it, when they come and
// some time after they have gone; few messages do.
func TestDemand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSimulated(t, nil)
		finish := make(chan struct{})
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.Jobs = 2
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				<-finish
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		other := daemontest.Start(t, s.far, "10.0.0.2:7632", nil)
		s.f.Want(list(d.Addr, other.Addr), nil)
		hosts := list(d.Addr)
		synctest.Wait()
		said := func(d *daemontest.Daemon) (jobs []uint16) {
			c := d.Conns[0]
			c.Mu.Lock()
			defer c.Mu.Unlock()
			for i, m := range c.Demands {
				if m.Seq != uint32(i+1) {
					t.Errorf("sequence number %d of demand %d", m.Seq, i+1)
				}
				jobs = append(jobs, m.Jobs)
			}
			return jobs
		}
		var all sync.WaitGroup
		for range 12 {
			all.Go(func() { s.run(hosts, 1, "int x;") })
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := said(d)
		if len(got) == 0 || len(got) > 4 || got[len(got)-1] != 12 {
			t.Errorf("demands %v while 12 jobs want the host, want 12 within a few messages", got)
		}
		if got := said(other); len(got) != 0 {
			t.Errorf("demands %v for jobs of another host's", got)
		}
		close(finish)
		all.Wait()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := said(d); got[len(got)-1] != 0 {
			t.Errorf("demands %v, want 0 at the end", got)
		}
		if n := s.f.Snapshot(nil).Preparing; n != 0 {
			t.Errorf("%d jobs are still to come", n)
		}
	})
}

// TestDemandOfABuild: jobs that follow each other are one demand, which says of how
// many builds they are.
func TestDemandOfABuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newSimulated(t, nil)
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				time.Sleep(100 * time.Millisecond)
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		hosts := list(d.Addr)
		for range 50 {
			s.run(hosts, 1, "int x;")
		}
		synctest.Wait()
		if got := d.Conns[0].Demands; !slices.Equal(got, []job.Demand{{Seq: 1, Jobs: 1, Builds: 1}}) {
			t.Errorf("demands %+v, want one", got)
		}
	})
}
