package farm

import (
	"log/slog"
	"net"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/connmgr/holdings"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Options configure a Farm. Those without a default in parentheses are required.
type Options struct {
	Device   iwarp.Device
	Wait     iwarp.Waiting // how connections to hosts wait for messages
	PD       iwarp.PD
	Log      *slog.Logger
	Name     string          // of this build host, for the daemons' logs
	Version  string          // of this program, likewise
	Key      func() *psk.Key // called for each connection; if it is nil or returns nil, there is no key
	Resolver *net.Resolver   // used to find out whether names can be resolved (the system's)

	Drained     []string                   // addresses of hosts that were drained by hand earlier
	SaveDrained func(addrs []string) error // saves the addresses of those that are drained now

	Held func(addr string) *holdings.Record // what a host held when an earlier manager ended; nil: nothing (unknown)

	// The next three may be called with the farm's lock held, and must not call the farm.

	Here  func() scheduler.Load             // this machine's load, without jobs that were placed here
	Moved func(addr string, out, in uint64) // counts payload to and from a host, in bytes; from several goroutines
	Board func(result string)               // counts load boards that were read: "ok" or "torn"

	Bare          bool // sources are not written: credits need no slots
	Results       bool // results that daemons keep are of interest
	Equips        bool // hosts are sent toolchains that they lack, and Coming says how that goes
	DialTimeout   time.Duration
	Heartbeat     time.Duration
	HeartbeatDead time.Duration // silence after which a connection ends
	CancelTimeout time.Duration // how long a daemon may take to answer a Cancel
	DemandPause   time.Duration // between two updates of the demand (20 ms)
	Dials         int           // hosts never connected that are dialled at a time, and as many again that were
	LinksMin      int           // connections to a host
	LinksMax      int           // connections to a host at most, when it has much to do
	LinksIdle     time.Duration // a connection beyond LinksMin ends after being idle for so long
}

// Pace are the options that can change while a farm runs.
type Pace struct {
	LocalJobs    int           // jobs that are placed on this machine, at a time
	Patience     time.Duration // how long a job that must not run locally waits for a host
	Backoff      time.Duration // pause after a host's first loss (the scheduler's)
	BackoffMax   time.Duration // longest pause (the scheduler's)
	ConnectGrace time.Duration // how long a job waits for a first connection (the scheduler's)
}

func (p *Pace) config() scheduler.Config {
	return scheduler.Config{Backoff: p.Backoff, BackoffMax: p.BackoffMax, Grace: p.ConnectGrace, Strict: p.Patience}
}

// dialling is what all dials have in common.
type dialling struct {
	link.Config
	first *semaphore.Weighted // bounds dials of hosts that were never connected
	again *semaphore.Weighted // bounds dials of hosts that were, so that they do not wait for hosts that do not answer
}
