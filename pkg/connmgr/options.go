package connmgr

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Options of a Manager. A zero field takes the default in parentheses.
type Options struct {
	Device   iwarp.Device
	Log      *slog.Logger          // (none)
	Registry prometheus.Registerer // (none)
	Name     string                // of this build host, for the daemons' logs
	Version  string                // of the program, for status

	// Key is the pre-shared key that hosts are to prove to have, and this side proves;
	// it is asked for each connection. Nil, or nil from it: there is none.
	Key func() *psk.Key

	// Hosts is the list for jobs that bring none; it is asked for each job.
	Hosts func() lists.HostList
	// Find adds the hosts that a list's sources stand for (a discover.Finder's List);
	// nil: none. stamp grows with each change of any source.
	Find func(hostlist.List) (list hostlist.List, stamp uint64)
	// Resolver is asked whether names can be resolved (nil: the system's).
	Resolver *net.Resolver
	// Identify says what the compiler at an absolute path is (a toolchain.Cache
	// whose compilers have Home).
	Identify func(ctx context.Context, path string, env toolchain.Env) (toolchain.Toolchain, error)

	// Object says how objects begin that the compiler here makes (asks it).
	Object compilers.ObjectMaker

	// Config says for the status what the settings come from (nil: nothing is said).
	Config func() *report.Configuration

	// Replaced is called when another manager has taken the socket over, before that one
	// goes on: what else it needs is to be given up.
	Replaced func()

	// Control answers further questions of rdistcc's subcommands, by their word.
	Control map[string]func() (any, error)

	Home      string
	Compilers string // file that remembers which compilers there are (none)
	History   string // file that remembers what compiles took (none: nothing outlives the manager)
	Drains    string // file that remembers which hosts were drained by hand (none, as above)
	Kept      string // file that has a report.Kept for when no manager runs (none)

	// AnyUser serves every user who may open the socket, not only this one and root.
	AnyUser bool

	LoadAverage   func() float64        // of this machine (the system's)
	Memory        func() machine.Memory // of this machine (the system's)
	Cores         int                   // of this machine (GOMAXPROCS)
	Slots         int                   // leases at a time (64)
	SlotSize      int64                 // bytes of a source and its arguments that are written to a host (32 MiB)
	SinkSize      int64                 // bytes of a result that a host writes (32 MiB)
	Source        int64                 // bytes of a source and its arguments; beyond SlotSize, hosts fetch them (SlotSize)
	Result        int64                 // bytes of a result; beyond SinkSize it is fetched (SinkSize)
	Large         int64                 // bytes that what is fetched, and leased for it, may take together (none)
	Prefault      int64                 // bytes that each keeps allocated (1 MiB)
	Preprocessors int                   // at a time (twice the cores)
	LocalJobs     int                   // at a time (the cores)
	MaxWrappers   int                   // connections at a time (1024)
	Dials         int                   // hosts never connected that are dialled at a time, and as many that were (512, and half of the descriptors at most)

	LocalShare    bool          // jobs run here where that is sooner than on any host
	Fast          bool          // what a host's compiler prints stands, even where ours might word it otherwise
	NoFallback    bool          // wrappers that do not say otherwise fail where a host gave trouble
	Patience      time.Duration // how long a job that may not run here waits for a host (1 min)
	Audit         float64       // part of the jobs that two hosts compile, for comparison (none)
	Attempts      int           // hosts that are tried for a job that met trouble (2)
	IOTimeout     time.Duration // a job's remote part (5 min)
	DialTimeout   time.Duration // (4 s)
	Heartbeat     time.Duration // (1 s)
	HeartbeatDead time.Duration // (5 s)
	CancelTimeout time.Duration // a daemon's answer to a Cancel (5 s)
	IdleExit      time.Duration // without a wrapper: Serve ends (never)
	LinksMin      int           // connections to a host (1)
	LinksMax      int           // of these at most, when there is much to do (LinksMin)
	DemandPause   time.Duration // between two counts of what hosts are told that there is to do (20 ms)
	LinksIdle     time.Duration // one beyond LinksMin ends when it had nothing to do for so long (1 min)
	Backoff       time.Duration // pause after a host's first loss (the scheduler's)
	BackoffMax    time.Duration // longest pause (the scheduler's)
	ConnectGrace  time.Duration // how long a job waits for a first connection (the scheduler's)
}

func (o *Options) defaults() {
	setDefault(&o.Cores, runtime.GOMAXPROCS(0))
	setDefault(&o.Slots, 64)
	setDefault(&o.SlotSize, 32<<20)
	setDefault(&o.SinkSize, 32<<20)
	o.Source, o.Result = max(o.Source, o.SlotSize), max(o.Result, o.SinkSize)
	if o.Large == 0 {
		o.Source, o.Result = o.SlotSize, o.SinkSize
	}
	setDefault(&o.Prefault, min(1<<20, o.SlotSize, o.SinkSize))
	setDefault(&o.MaxWrappers, 1024)
	setDefault(&o.Dials, dialsAtATime())
	setDefault(&o.DialTimeout, 4*time.Second)
	setDefault(&o.Heartbeat, time.Second)
	setDefault(&o.HeartbeatDead, 5*time.Second)
	setDefault(&o.CancelTimeout, 5*time.Second)
	setDefault(&o.LinksMin, 1)
	o.LinksMax = max(o.LinksMax, o.LinksMin)
	setDefault(&o.LinksIdle, time.Minute)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Identify == nil {
		o.Identify = (&toolchain.Cache{Home: o.Home, File: o.Compilers}).IdentifyIn
	}
	if o.Memory == nil {
		o.Memory = machine.ReadMemory
	}
	if o.LoadAverage == nil {
		o.LoadAverage = machine.LoadAverage
	}
	if o.Hosts == nil {
		o.Hosts = func() lists.HostList { return lists.HostList{} }
	}
}

// maxAudits bounds how many slots audits keep from builds.
const maxAudits = 2

// memory returns what jobs lie in, by the options.
func (o *Options) memory() slots.Options {
	return slots.Options{Device: o.Device, Log: o.Log, Slots: o.Slots, Spare: maxAudits, Sizes: slots.Sizes{
		Slot: o.SlotSize, Sink: o.SinkSize, Source: o.Source, Result: o.Result, Large: o.Large, Prefault: o.Prefault}}
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// maxDials is how many hosts are dialled at a time: a long list with dead hosts is
// tried within some seconds, for the memory of so many connections.
const maxDials = 512

// dialsAtATime leaves half of the descriptors to wrappers and their slots.
func dialsAtATime() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return maxDials
	}
	return int(max(min(l.Cur/2, maxDials), 1))
}
