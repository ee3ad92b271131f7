package connmgr

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// farmOptions are a farm's. It needs all of them that have no default.
type farmOptions struct {
	Device   iwarp.Device
	PD       iwarp.PD
	Log      *slog.Logger
	Name     string          // of this build host, for the daemons' logs
	Key      func() *psk.Key // asked for each connection; nil, or nil from it: there is no key
	Resolver *net.Resolver   // is asked whether names can be resolved (the system's)

	Drained     []string                   // addresses of the hosts that were drained by hand earlier
	SaveDrained func(addrs []string) error // remembers those that are now

	// What follows is called with the farm's lock held, and must not call it.

	Here  func() scheduler.Load             // what this machine does, but for jobs that were placed here
	Moved func(addr string, out, in uint64) // counts payload to and from a host, in bytes
	Board func(result string)               // counts load boards that were read: "ok" or "torn"

	DialTimeout   time.Duration
	Heartbeat     time.Duration
	HeartbeatDead time.Duration // of silence: a connection ends
	CancelTimeout time.Duration // a daemon's answer to a Cancel
	DemandPause   time.Duration // between two counts of what there is to do (20 ms)
	Dials         int           // hosts never connected that are dialled at a time, and as many that were
	LinksMin      int           // connections to a host
	LinksMax      int           // of these at most, when there is much to do
	LinksIdle     time.Duration // one beyond LinksMin ends when it had nothing to do for so long
}

// farmPace are those options that can change while a farm runs.
type farmPace struct {
	LocalJobs    int           // jobs that are placed on this machine, at a time
	Patience     time.Duration // how long a job that may not run here waits for a host
	Backoff      time.Duration // pause after a host's first loss (the scheduler's)
	BackoffMax   time.Duration // longest pause (the scheduler's)
	ConnectGrace time.Duration // how long a job waits for a first connection (the scheduler's)
}

func (p *farmPace) config() scheduler.Config {
	return scheduler.Config{Backoff: p.Backoff, BackoffMax: p.BackoffMax, Grace: p.ConnectGrace, Strict: p.Patience}
}

// dialling is what all connections have in common.
type dialling struct {
	link.Config
	first *semaphore.Weighted // hosts that were never connected
	again *semaphore.Weighted // those that were: they do not wait for others that do not answer
}

// farm is what hosts there are, how they are connected, and which of them a job goes to.
type farm struct {
	// set once in newFarm
	o        farmOptions
	dialling dialling
	ctx      context.Context // ends all hosts
	running  sync.WaitGroup  // host.run

	mu     sync.Mutex // before the lock of any link; it guards the rest
	pace   farmPace
	sched  *scheduler.Scheduler
	hosts  map[string]*host           // by address
	racing map[uint64]*request        // jobs that are at a host, or on their way, by id
	used   map[job.ToolchainID]string // compilers that jobs have asked for, by what people call them
	queue  queue
	here   here
	demand demand
	drains drains
}

// newFarm makes a farm without hosts. All of them end with ctx, for its cause; then close
// is to be called.
func newFarm(ctx context.Context, o farmOptions, p farmPace) *farm {
	setDefault(&o.DemandPause, demandPause)
	f := &farm{
		o: o, ctx: ctx, pace: p,
		sched:  scheduler.New(p.config()),
		hosts:  make(map[string]*host),
		racing: make(map[uint64]*request),
		demand: demand{preparing: make(map[*scheduler.Host]*preparing)},
		drains: drains{on: make(map[string]bool)},
		dialling: dialling{
			Config: link.Config{Device: o.Device, PD: o.PD, Log: o.Log, Name: o.Name, Key: o.Key,
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

// close returns when all hosts have ended, which they do with the farm's context.
func (f *farm) close() {
	f.running.Wait()
	f.queue.alarm.Stop()
	f.demand.timer.Stop()
}

// apply puts p in force for what comes from now on.
func (f *farm) apply(p farmPace) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pace = p
	f.sched.Pace(p.config())
	f.sched.Resize(p.LocalJobs)
	f.dispatchLocked()
}
