package connmgr

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/hostlist"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Options configure a Manager. A zero field takes the default in parentheses.
type Options struct {
	Device   iwarp.Device
	Wait     iwarp.Waiting         // how connections to hosts wait for messages
	Log      *slog.Logger          // (none)
	Registry prometheus.Registerer // (none)
	Name     string                // of this build host, for the daemons' logs
	Version  string                // of the program, for status

	// Key returns the pre-shared key that both sides of a connection have to prove. It is called for each
	// connection. If Key is nil or returns nil, there is no key.
	Key func() *psk.Key

	// Hosts returns the host list for jobs that bring none. It is called for each job.
	Hosts func() lists.HostList
	// Find returns a list with the hosts added that its sources stand for (a discover.Finder's List); nil:
	// none are added. stamp grows with each change of any source.
	Find func(hostlist.List) (list hostlist.List, stamp uint64)
	// Resolver is asked whether names can be resolved (nil: the system's).
	Resolver *net.Resolver
	// Identify identifies the compiler at an absolute path (a toolchain.Cache whose compilers have Home).
	Identify func(ctx context.Context, path string, env toolchain.Env) (toolchain.Toolchain, error)

	// Object returns how the objects that a local compiler makes begin (the compiler is asked).
	Object compilers.ObjectMaker

	// Config returns where the settings come from, for the status (nil: the status does not say).
	Config func() *report.Configuration

	// Replaced is called when another manager has taken over the socket, before that one goes on. It has to
	// give up everything else that the other one needs.
	Replaced func()

	// Control has functions that answer further subcommands of rdistcc, by name.
	Control map[string]func() (any, error)

	Home      string
	Compilers string // file that remembers the compilers (none)
	History   string // file that remembers what compiles took (none: it is forgotten when the manager ends)
	Headers   string // file that remembers how precompiled headers were made here (none, as above)
	Costs     string // directory of a journal of what compiles read and took (none: it is not noted)
	Holdings  string // file that remembers what hosts hold of what they were sent (none, as above)
	Watched   string // file that remembers which compilers were watched (none, as above)
	Drains    string // file that remembers which hosts were drained by hand (none, as above)
	Kept      string // file for a report.Kept, which is read when no manager runs (none)

	// Results are the tiers of the cache of results, in the order in which they are asked (no cache). The manager
	// owns their stores.
	Results []results.Tier
	// NoBackFill says that a result which was found in a tier is not kept in those in front of it.
	NoBackFill bool
	Ahead      int64 // bytes of results that are fetched from stores before they are asked for (none)
	Copies     int   // hosts that keep a result, with the one that has compiled it (1)
	// Verify returns the name of the host that has made a signature for the sum of a result that several tenants
	// share (none of those is accepted).
	Verify  func(sum [32]byte, signature []byte) (host string, err error)
	BaseDir string // directory that results are shared across, for wrappers that name none (none)
	// Signing says who may have put the results into stores that others use.
	Signing results.Signing
	// KeepHere is whether what compiles on this machine come to is kept (where it is told what they read).
	KeepHere KeepHere

	// SendToolchains opens a stream to a host's service for toolchains (hosts are sent none).
	SendToolchains func(ctx context.Context, addr string) (net.Conn, error)

	// Plugins are the names of the plugins that compilers may load on hosts, such as annobin (none).
	Plugins []string

	// AnyUser makes the manager serve every user that can open the socket, not only its own and root.
	AnyUser bool

	LoadAverage   func() float64        // of this machine (the system's)
	Memory        func() machine.Memory // of this machine (the system's)
	Cores         int                   // of this machine (GOMAXPROCS)
	Slots         int                   // leases at a time (64)
	SlotSize      int64                 // bytes of a source with its arguments that is written to a host (32 MiB)
	SinkSize      int64                 // bytes of a result that a host writes (32 MiB)
	Source        int64                 // bytes of a source at most; beyond SlotSize, hosts fetch it (SlotSize)
	Result        int64                 // bytes of a result at most; beyond SinkSize it is fetched (SinkSize)
	Large         int64                 // bytes that all fetched or leased for fetching may take (none)
	Eager         int64                 // bytes of a source at most that travels inside a message where Carrier is auto (16 KiB; negative: none)
	Prefault      int64                 // bytes that each slot and sink keeps allocated (1 MiB)
	Inputs        int64                 // bytes of what is known of commands and files (256 MiB)
	Preprocessors int                   // at a time (twice the cores)
	LocalJobs     int                   // at a time (the cores)
	MaxWrappers   int                   // connections at a time (1024)
	// Dials is how many hosts that were never connected are dialled at a time, and as many again of those that
	// were (512, but at most half of the descriptors).
	Dials int

	// Carrier is how sources travel where hosts take that: write, eager or pull; auto decides for each job (auto).
	Carrier string

	LocalShare    bool          // run jobs locally if that is sooner than on any host
	Fast          bool          // accept what a host's compiler prints, even if ours might word it differently
	NoFallback    bool          // wrappers that do not say otherwise fail if hosts give trouble
	Patience      time.Duration // how long a job that must not run locally waits for a host (1 min)
	Audit         float64       // fraction of the jobs that two hosts compile, for comparison (none)
	Attempts      int           // hosts that are tried for a job that meets trouble (2)
	IOTimeout     time.Duration // bound of a job's remote part (5 min)
	DialTimeout   time.Duration // (4 s)
	Heartbeat     time.Duration // (1 s)
	HeartbeatDead time.Duration // (5 s)
	CancelTimeout time.Duration // a daemon's answer to a Cancel (5 s)
	IdleExit      time.Duration // without a wrapper: Serve ends (never)
	LinksMin      int           // connections to a host (1)
	LinksMax      int           // connections to a host at most, when it has much to do (LinksMin)
	DemandPause   time.Duration // between two updates of the demand that hosts are told (20 ms)
	LinksIdle     time.Duration // a connection beyond LinksMin ends after being idle for so long (1 min)
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
	setDefault(&o.Eager, 16<<10)
	setDefault(&o.Prefault, min(1<<20, o.SlotSize, o.SinkSize))
	setDefault(&o.Inputs, 256<<20)
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

// maxAudits bounds how many audits run at a time, and so how many slots they take from builds.
const maxAudits = 2

// carriers returns how sources travel.
func (o *Options) carriers() (attempt.Choice, error) {
	if o.Carrier == "" || o.Carrier == "auto" {
		return attempt.Choice{Auto: true, Eager: o.Eager}, nil
	}
	c, err := job.ParseCarrier(o.Carrier)
	return attempt.Choice{Carrier: c}, err
}

// memory returns the options of the memory for jobs.
func (o *Options) memory() slots.Options {
	message := int64(0)
	if o.Eager > 0 {
		message = o.Eager + job.MaxMessage
	}
	return slots.Options{Device: o.Device, Log: o.Log, Slots: o.Slots, Spare: maxAudits, Sizes: slots.Sizes{
		Slot: o.SlotSize, Sink: o.SinkSize, Source: o.Source, Result: o.Result, Large: o.Large, Prefault: o.Prefault, Message: message}}
}

// shelves reports whether hosts keep results for the cache.
func (o *Options) shelves() bool { return slices.Contains(o.tiers(), resultcache.TierFarm) }

// tiers returns the names of the tiers of the cache, or nil.
func (o *Options) tiers() (names []string) {
	for _, t := range o.Results {
		names = append(names, t.Name)
	}
	return names
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// maxDials is how many hosts are dialled at a time. A long list with dead hosts is tried within a few
// seconds, at the cost of the memory of that many connections.
const maxDials = 512

// dialsAtATime returns how many hosts to dial at a time. It leaves half of the descriptors to wrappers and
// their slots.
func dialsAtATime() int {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return maxDials
	}
	return int(max(min(l.Cur/2, maxDials), 1))
}
