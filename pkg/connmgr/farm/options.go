package farm

import (
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
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

	// The next three may be called with the farm's lock held, and must not call it.

	Here  func() scheduler.Load             // what this machine does, but for jobs that were placed here
	Moved func(addr string, out, in uint64) // counts payload to and from a host, in bytes; from several goroutines
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
