package connmgr

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestBusyFarmLeavesJobsHere: if jobs would have to wait for hosts and this machine is idle, it compiles too.
// It does not if that is forbidden or a host is free.
func TestBusyFarmLeavesJobsHere(t *testing.T) {
	for _, c := range []struct {
		name  string
		share bool
		mode  ipc.Mode
		want  int // how many of 4 jobs run here
	}{
		{"one host with one place", true, ipc.ModeAuto, 2},
		{"switched off", false, ipc.ModeAuto, 0},
		{"RDISTCC_MODE=remote", true, ipc.ModeRemote, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSimulated(t, func(o *Options) { o.LocalShare, o.LocalJobs, o.Slots = c.share, 2, 8 })
				turn := make(chan struct{})
				d := daemontest.Start(t, s.far, "10.0.0.1:7632", func(d *daemontest.Daemon) {
					d.Jobs = 1
					d.OnJob = func(c *daemontest.Conn, j *daemontest.Job) {
						if string(j.Text) != "short" {
							<-turn
						}
						c.Finish(j, timed(j))
					}
				})
				s.acquaint(d.Addr)
				if n := s.m.farm.Snapshot(nil).Here; n != 0 {
					t.Fatalf("%d jobs here with a free host", n)
				}
				var mu sync.Mutex
				here := 0
				var wg sync.WaitGroup
				for range 4 {
					wg.Go(func() {
						f := leaseOf(d.Addr)
						f.Mode = c.mode
						_, no := s.run(context.Background(), f, "long!")
						if no == nil {
							return
						}
						if no.Reason != "local-share" || no.Trouble {
							t.Errorf("answer %+v, want local-share", no)
						}
						mu.Lock()
						here++
						mu.Unlock()
					})
					synctest.Wait()
				}
				close(turn)
				wg.Wait()
				if here != c.want {
					t.Errorf("%d jobs here, want %d", here, c.want)
				}
			})
		})
	}
}

// TestColdFarmIsWaitedFor: a first connection is no reason to compile here.
func TestColdFarmIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSimulated(t, func(o *Options) { o.LocalShare = true })
		d := daemontest.Start(t, s.far, "10.0.0.1:7632", nil)
		began := time.Now()
		if _, no := s.run(context.Background(), leaseOf(d.Addr), "int x;"); no != nil {
			t.Errorf("answer %+v after %v, want a result", no, time.Since(began))
		}
	})
}
