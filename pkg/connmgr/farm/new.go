package farm

import (
	"context"
	"crypto/rand"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// New makes a farm without hosts. All hosts end with ctx, for its cause. The caller then calls Close.
func New(ctx context.Context, o Options, p Pace) *Farm {
	if o.DemandPause == 0 {
		o.DemandPause = demandPause
	}
	f := &Farm{
		o: o, ctx: ctx, pace: p,
		sched:  scheduler.New(p.config()),
		hosts:  make(map[string]*Host),
		racing: make(map[uint64]*Request),
		demand: demand{preparing: make(map[*scheduler.Host]*preparing)},
		drains: drains{on: make(map[string]bool)},
		dialling: dialling{
			Config: link.Config{Device: o.Device, Wait: o.Wait, PD: o.PD, Log: o.Log, Name: o.Name, Version: o.Version, Key: o.Key, Bare: o.Bare, Results: o.Results,
				DialTimeout: o.DialTimeout, Heartbeat: o.Heartbeat, HeartbeatDead: o.HeartbeatDead, CancelTimeout: o.CancelTimeout},
			first: semaphore.NewWeighted(int64(o.Dials)), again: semaphore.NewWeighted(int64(o.Dials)),
		},
	}
	_, _ = rand.Read(f.dialling.Boot[:]) // never fails
	f.sched.Up(time.Now(), scheduler.LocalHost, scheduler.Capacity{Jobs: p.LocalJobs})
	for _, addr := range o.Drained {
		f.drains.on[addr] = true
		f.sched.Drain(addr, true)
	}
	f.queue.alarm = time.AfterFunc(time.Hour, f.wake)
	f.demand.timer = time.AfterFunc(time.Hour, f.count)
	return f
}

// Close waits until all hosts have ended, which they do with the farm's context.
func (f *Farm) Close() {
	f.running.Wait()
	f.queue.alarm.Stop()
	f.demand.timer.Stop()
}

// Apply puts p into force for what comes from now on.
func (f *Farm) Apply(p Pace) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pace = p
	f.sched.Pace(p.config())
	f.sched.Resize(p.LocalJobs)
	f.dispatchLocked()
}
