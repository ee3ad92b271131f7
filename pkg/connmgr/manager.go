// Package connmgr is the connection manager of a build host: it keeps queue pairs
// to the compile hosts and a pool of shared-memory slots, and serves the
// wrappers of all build commands over a Unix socket.
//
// What can be understood alone has a package of its own: ipc (what wrappers say), farm
// (which host a job goes to), link (one connection to one host), holdings (which contents
// hosts have), machine (this build host), report (what the manager tells of itself), trust
// (what to believe of others). Here is what ties these together:
//
//	listen serve service replace     the socket, and how it goes to a successor
//	wrappers reserve client share    one wrapper: a command
//	compiler ask control drained     and what else it wants to know
//	tell                             what a build hears once
//	lists                            which hosts a job may go to
//	task race attempt                one job: attempts at it, one after the other and side by side
//	known cargo lacks                what a job reads, and what a host has of that already
//	window hold scratch              the memory that it takes
//	judge trust foreign audit        what follows where hosts, or other users, are not believed
//	predict hungry                   what earlier compiles took
//	underway account keep status     what is done now, what was, and where it is written down
//	metrics knownmetrics             figures
//	live                             what of its options can change
//
// A wrapper is served by one goroutine (and one that reads its socket), an attempt by one of
// its own. Each part of a Manager that changes has a lock; none is held while another one's is
// taken, and none while the farm is called.
package connmgr

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/arena"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/history"
	"github.com/rdistcc/rdistcc/pkg/hostlist"
	"github.com/rdistcc/rdistcc/pkg/identity/psk"
	"github.com/rdistcc/rdistcc/pkg/inputs"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
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
	Hosts func() HostList
	// Find adds the hosts that a list's sources stand for (a discover.Finder's List);
	// nil: none. stamp grows with each change of any source.
	Find func(hostlist.List) (list hostlist.List, stamp uint64)
	// Resolver is asked whether names can be resolved (nil: the system's).
	Resolver *net.Resolver
	// Identify says what the compiler at an absolute path is (a toolchain.Cache
	// whose compilers have Home).
	Identify func(ctx context.Context, path string, env toolchain.Env) (toolchain.Toolchain, error)

	// Object says how objects begin that the compiler here makes (asks it).
	Object objectMaker

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
	if o.Object == nil {
		o.Object = makeObject
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
		o.Hosts = func() HostList { return HostList{} }
	}
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

// Manager serves wrappers. Make it with New, run it with Serve, end it with Close. Each of its
// parts has a lock of its own where it needs one.
type Manager struct {
	o       Options // set once in New, as what follows up to cancel
	uid     uint32  // that it runs as
	started time.Time
	metrics *metrics
	farm    *farm.Farm
	inputs  *inputs.Table
	ctx     context.Context // ends all that is under way
	cancel  context.CancelCauseFunc

	service   service        // the socket
	wrappers  wrappers       // that are served
	clients   sync.WaitGroup // goroutines of wrappers
	lists     listCache
	memory    memory
	turns     turns
	compilers compilers
	past      past
	account   account
	told      told
	ids       atomic.Uint64        // the last job's
	auditing  atomic.Int32         // audits under way
	now       atomic.Pointer[Live] // see live and Apply
}

// memory is what jobs and their results lie in. All of it is set once in New and safe for
// concurrent use.
type memory struct {
	pd        iwarp.PD
	sources   *arena.Pool
	sinks     *arena.Pool
	large     *semaphore.Weighted // bytes: see takeLarge
	largeUsed atomic.Int64        // bytes taken of large
	scratch   *scratch            // to pack and unpack in
	texts     *scratch            // for jobs whose inputs are known
}

// turns are for what runs on this machine.
type turns struct {
	cpp    machine.Gate // preprocessors
	local  machine.Gate // compiles, links and the like
	builds machine.Builds
}

// compilers is what those of this machine have been asked.
type compilers struct {
	recipes recipes.Cache
	native  recipes.NativeCache
	objects recipes.ObjectCache
	search  recipes.SearchCache
}

// past is what earlier compiles took.
type past struct {
	history *history.Store // set once in New
	hungry  hungry
	saved   atomic.Int64 // when history was, or was begun to be: nanoseconds since started
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

// New makes a Manager; it owns neither the device nor the registry.
func New(o Options) (*Manager, error) {
	o.defaults()
	if o.Device == nil {
		return nil, errors.New("connection manager: no device")
	}
	live := o.live()
	live.defaults(o.Cores)
	m := &Manager{
		o:        o,
		uid:      uint32(os.Geteuid()),
		started:  time.Now(),
		service:  service{stopping: make(chan struct{}), idleChanged: make(chan struct{}, 1)},
		wrappers: wrappers{places: semaphore.NewWeighted(int64(o.MaxWrappers)), open: make(map[*client]struct{}), lastUse: time.Now()},
		inputs:   inputs.New(inputs.Options{MaxFile: min(o.SlotSize, maxKnownFile)}),
	}
	m.now.Store(&live)
	if err := m.memory.open(&o); err != nil {
		return nil, err
	}
	guard := &machine.Guard{Read: o.Memory}
	m.turns.cpp.Room = func() bool { return guard.Admits(time.Now(), machine.PreprocessMemory) }
	m.turns.local.Room = func() bool { return guard.Admits(time.Now(), machine.CompileMemory) }
	m.openHistory()
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.metrics = newMetrics(m)
	m.farm = farm.New(m.ctx, m.farmOptions(), live.pace())
	m.metrics.register(o.Registry) // which may ask at once
	for _, h := range m.ownNow().sched {
		m.metrics.host(h.Addr)
	}
	return m, nil
}

// open makes the memory that o asks for.
func (x *memory) open(o *Options) (err error) {
	x.large = semaphore.NewWeighted(o.Large)
	x.scratch = newScratch(max(2*o.SlotSize, 1<<maxScratchKept))
	x.texts = newScratch(max(2*o.SlotSize, 1<<maxScratchKept))
	if x.sources, err = arena.NewPool(arena.Options{Name: "rdistcc-source", Size: o.Source, Map: o.SlotSize, Prefault: o.Prefault, Max: o.Slots}); err != nil {
		return err
	}
	// Some more for second hosts of jobs, or a full house would have none.
	if x.sinks, err = arena.NewPool(arena.Options{Name: "rdistcc-sink", Size: o.Result, Map: o.SinkSize, Prefault: o.Prefault, Max: o.Slots + max(o.Slots/8, 2) + maxAudits}); err != nil {
		return err
	}
	if x.pd, err = o.Device.AllocPD(); err != nil {
		return fmt.Errorf("connection manager: %w", err)
	}
	return nil
}

// farmOptions are those of the manager that the farm goes by.
func (m *Manager) farmOptions() farm.Options {
	o := &m.o
	return farm.Options{
		Device: o.Device, PD: m.memory.pd, Log: o.Log, Name: o.Name, Key: o.Key, Resolver: o.Resolver,
		Drained: o.readDrained(), SaveDrained: o.saveDrained,
		Here: func() scheduler.Load {
			cpp, _ := m.turns.cpp.Load()
			local, queued := m.turns.local.Load()
			return scheduler.Load{Running: cpp + local, Queued: queued, Average: o.LoadAverage()}
		},
		Moved:       m.metrics.bytes,
		Board:       func(result string) { m.metrics.boards.WithLabelValues(result).Inc() },
		DialTimeout: o.DialTimeout, Heartbeat: o.Heartbeat, HeartbeatDead: o.HeartbeatDead, CancelTimeout: o.CancelTimeout,
		DemandPause: o.DemandPause, Dials: o.Dials, LinksMin: o.LinksMin, LinksMax: o.LinksMax, LinksIdle: o.LinksIdle,
	}
}

// Stop makes Serve end: what runs goes on, nothing new is taken.
func (m *Manager) Stop() { m.service.stop() }

// Drain waits until no wrapper is served any more, or ctx ends.
func (m *Manager) Drain(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		m.clients.Wait() // ends by itself, or with Close
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends everything at once: wrappers that are still served find their
// connection closed and compile by themselves. It returns when all goroutines
// have ended and the device's objects are freed.
func (m *Manager) Close() error {
	m.Stop()
	m.keepLast()
	m.cancel(errShutdown)
	m.wrappers.hangUp()
	m.clients.Wait()
	m.farm.Close()
	m.saveHistory()
	m.metrics.unregister(m.o.Registry)
	m.memory.sources.Close()
	m.memory.sinks.Close()
	return m.memory.pd.Dealloc()
}

// errShutdown ends what is under way when the manager stops.
var errShutdown = errors.New("connection manager stops")
