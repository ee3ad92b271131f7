// Package farm is the compile hosts as one connection manager knows them: what hosts there are,
// how they are connected, and which one a job goes to.
//
//	farm request state             what there is; a job that waits, and the word that it gets
//	want dial resolve              how hosts come, are dialled, and are forgotten
//	host conn pool                 one host: what the scheduler hears of it, its connections, how many
//	forms dispatch rule here       before a job is made; then which host; and why; this machine as one
//	hedge ended                    a second host for a job that is late; what came of a job
//	demand drain                   what hosts are told that there is to do; those that get nothing
//	asked status                   questions
//
// It does not know what a job is made of, what becomes of its result, or who asked for it: a
// caller has its Request, waits for the Grant, puts a link.Flight on the grant's link, and says
// what it Ended with.
//
// One mutex guards all of it, and no other package's. Every exported method takes it by itself and
// none blocks with it held; what is called under it (Options, link.Link, holdings.Ledger)
// never comes back here. A link's lock comes after it, and links call without theirs. A host has
// one goroutine, which dials, and one for each connection that waits for its end.
package farm

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Options are a farm's. It needs all of them that have no default.
type Options struct {
	Device   iwarp.Device
	PD       iwarp.PD
	Log      *slog.Logger
	Name     string          // of this build host, for the daemons' logs
	Key      func() *psk.Key // asked for each connection; nil, or nil from it: there is no key
	Resolver *net.Resolver   // is asked whether names can be resolved (the system's)

	Drained     []string                   // addresses of the hosts that were drained by hand earlier
	SaveDrained func(addrs []string) error // remembers those that are now

	// The next three are called with the farm's lock held, and must not call it.

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

// Pace are those options that can change while a farm runs.
type Pace struct {
	LocalJobs    int           // jobs that are placed on this machine, at a time
	Patience     time.Duration // how long a job that may not run here waits for a host
	Backoff      time.Duration // pause after a host's first loss (the scheduler's)
	BackoffMax   time.Duration // longest pause (the scheduler's)
	ConnectGrace time.Duration // how long a job waits for a first connection (the scheduler's)
}

func (p *Pace) config() scheduler.Config {
	return scheduler.Config{Backoff: p.Backoff, BackoffMax: p.BackoffMax, Grace: p.ConnectGrace, Strict: p.Patience}
}

// dialling is what all connections have in common.
type dialling struct {
	link.Config
	first *semaphore.Weighted // hosts that were never connected
	again *semaphore.Weighted // those that were: they do not wait for others that do not answer
}

// Farm is what hosts there are, how they are connected, and which of them a job goes to.
type Farm struct {
	// set once in New
	o        Options
	dialling dialling
	ctx      context.Context // ends all hosts
	running  sync.WaitGroup  // Host.run

	mu     sync.Mutex // before the lock of any link; it guards the rest
	pace   Pace
	sched  *scheduler.Scheduler
	hosts  map[string]*Host           // by address
	racing map[uint64]*Request        // jobs that are at a host, or on their way, by id
	used   map[job.ToolchainID]string // compilers that jobs have asked for, by what people call them
	queue  queue
	here   here
	demand demand
	drains drains
}

// New makes a farm without hosts. All of them end with ctx, for its cause; then Close
// is to be called.
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

// Close returns when all hosts have ended, which they do with the farm's context.
func (f *Farm) Close() {
	f.running.Wait()
	f.queue.alarm.Stop()
	f.demand.timer.Stop()
}

// Apply puts p in force for what comes from now on.
func (f *Farm) Apply(p Pace) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pace = p
	f.sched.Pace(p.config())
	f.sched.Resize(p.LocalJobs)
	f.dispatchLocked()
}
