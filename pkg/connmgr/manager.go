// Package connmgr is the connection manager of a build host: it keeps queue pairs
// to the compile hosts and a pool of shared-memory slots, and serves the
// wrappers of all build commands over a Unix socket.
//
// What can be understood alone has a package of its own: ipc (what wrappers say), lists and farm
// (which hosts a job may go to, and which one it does), link (one connection to one host), holdings (which contents
// hosts have), compilers and known (what a command reads), machine (this build host), report and metrics (what the manager tells of itself),
// slots (the memory of jobs), socket (what wrappers connect to), trust (what to believe of others). Here is what ties these together:
//
//	serve service reserve replace    wrappers are taken from the socket, until a successor does
//	wrappers client share            one wrapper: a command
//	ask control drained              and what else it wants to know
//	tell                             what a build hears once
//	task race attempt                one job: attempts at it, one after the other and side by side
//	known cargo lacks                jobs whose inputs are known, and what a host has of them already
//	window                           what of it is too big for a slot or a sink
//	judge trust audit                what follows where hosts, or other users, are not believed
//	predict hungry                   what earlier compiles took
//	underway account keep status     what is done now, what was, and where it is written down
//	options live                     what can be set, and what of that can change
//
// A wrapper is served by one goroutine (and one that reads its socket), an attempt by one of
// its own. Each part of a Manager that changes has a lock; none is held while another one's is
// taken, and none while the farm is called.
package connmgr

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/compilers"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/lists"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/metrics"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/history"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Manager serves wrappers. Make it with New, run it with Serve, end it with Close. Each of its
// parts has a lock of its own where it needs one.
type Manager struct {
	// set once in New
	o       Options
	uid     uint32 // that it runs as
	started time.Time
	metrics *metrics.Metrics
	farm    *farm.Farm
	known   *known.Table
	base    attempt.Base
	ctx     context.Context // ends all that is under way
	cancel  context.CancelCauseFunc

	// each with a lock of its own, or safe for concurrent use without
	service   service        // the socket
	wrappers  wrappers       // that are served
	clients   sync.WaitGroup // goroutines of wrappers
	lists     *lists.Lists
	memory    *slots.Memory
	turns     turns
	compilers *compilers.Table
	past      past
	account   account
	told      told
	ids       atomic.Uint64        // the last job's
	auditing  atomic.Int32         // audits under way
	now       atomic.Pointer[Live] // see live and Apply
}

// turns are for what runs on this machine.
type turns struct {
	cpp    machine.Gate // preprocessors
	local  machine.Gate // compiles, links and the like
	builds machine.Builds
}

// past is what earlier compiles took.
type past struct {
	history *history.Store // set once in New
	hungry  hungry
	saved   atomic.Int64 // when history was, or was begun to be: nanoseconds since started
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
		lists:    lists.New(lists.Options{Own: o.Hosts, Find: o.Find, AnyUser: o.AnyUser}),
		known:    known.New(o.SlotSize, o.Log),
	}
	m.now.Store(&live)
	var err error
	if m.memory, err = slots.Open(o.memory()); err != nil {
		return nil, err
	}
	guard := &machine.Guard{Read: o.Memory}
	m.turns.cpp.Room = func() bool { return guard.Admits(time.Now(), machine.PreprocessMemory) }
	m.turns.local.Room = func() bool { return guard.Admits(time.Now(), machine.CompileMemory) }
	m.openHistory()
	m.ctx, m.cancel = context.WithCancelCause(context.Background())
	m.metrics = metrics.New(metrics.Source{Status: m.Status, Large: m.memory.LargeUsed,
		Files: m.known.Files, States: farm.States(), Doubts: known.Words()})
	m.compilers = compilers.New(m.ctx, o.Object)
	m.farm = farm.New(m.ctx, m.farmOptions(), live.pace())
	m.base = attempt.Base{Farm: m.farm, Memory: m.memory, Metrics: m.metrics, Log: o.Log,
		NextID: func() uint64 { return m.ids.Add(1) }, Learn: m.learn}
	m.metrics.Register(o.Registry) // which may ask at once
	for _, h := range m.lists.Own().Sched {
		m.metrics.Host(h.Addr)
	}
	return m, nil
}

// farmOptions are those of the manager that the farm goes by.
func (m *Manager) farmOptions() farm.Options {
	o := &m.o
	return farm.Options{
		Device: o.Device, PD: m.memory.PD(), Log: o.Log, Name: o.Name, Key: o.Key, Resolver: o.Resolver,
		Drained: o.readDrained(), SaveDrained: o.saveDrained,
		Here: func() scheduler.Load {
			cpp, _ := m.turns.cpp.Load()
			local, queued := m.turns.local.Load()
			return scheduler.Load{Running: cpp + local, Queued: queued, Average: o.LoadAverage()}
		},
		Moved:       m.metrics.Moved,
		Board:       m.metrics.Board,
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
	m.metrics.Unregister(m.o.Registry)
	return m.memory.Close()
}

// errShutdown ends what is under way when the manager stops.
var errShutdown = errors.New("connection manager stops")
