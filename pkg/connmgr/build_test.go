package connmgr

import (
	"context"
	"os"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/pkg/connmgr/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
)

// TestBuildThatIsNamed: a name goes before what the process belongs to.
func TestBuildThatIsNamed(t *testing.T) {
	of := func(uid uint32, name string) uint64 {
		c := &client{m: new(Manager), uid: uid, pid: int32(os.Getpid()), lease: &ipc.Lease{Build: name}}
		return c.build()
	}
	if named := of(1, "a"); named != machine.NamedBuild(1, "a") || of(1, "") == named {
		t.Error("the build is not the one that was named")
	}
}

// TestBuildsTakeTurns: a build that came later does not stand behind all of a
// large one.
func TestBuildsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.Slots = 16 })
		turn := make(chan struct{})
		var began []string
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
			d.Jobs = 2
			d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
				began = append(began, string(j.Text))
				<-turn
				c.Finish(j, daemontest.Compiled(j))
			}
		})
		s.m.farm.Want(s.m.lists.Of(d.Addr).Sched, nil)
		synctest.Wait()
		var wg sync.WaitGroup
		for _, text := range []string{"a1", "a2", "a3", "a4", "a5", "b1", "b2"} {
			f := leaseOf(d.Addr)
			f.Build = text[:1]
			wg.Go(func() {
				if _, no := s.run(context.Background(), f, text); no != nil {
					t.Errorf("%s: answer %+v", text, no)
				}
			})
			synctest.Wait() // it waits for the host, or runs there
		}
		for range 7 {
			turn <- struct{}{}
			synctest.Wait()
		}
		wg.Wait()
		if len(began) != 7 || began[2] != "b1" {
			t.Errorf("order %q, want b1 when the first of the others has ended", began)
		}
	})
}
