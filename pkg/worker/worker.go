// Package worker is the compile host's side: it grants credits, takes jobs, runs compilers and writes results
// back.
//
// A Server has one goroutine per connection, which reads the connection's completion queue, and Options.Jobs
// runners, each of which does one job after another. A job uses the memory of its credit's slot throughout:
// the peer has written the source to it; the runner copies that to a file and gathers the result in the same
// memory, once the peer can no longer write to it. Then the memory becomes the slot of a new credit.
//
// Package lend decides which connection gets a credit, which job gets a core, and which has to give one back.
// The Server guards it with its mutex, tells it what happens, and carries out what it decides.
package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/identity/psk"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// Options configure a Server.
type Options struct {
	Device  iwarp.Device
	Log     *slog.Logger
	Audit   *auditlog.Log // nil: no audit log
	Metrics *Metrics      // nil: not counted
	Program string        // the daemon's version, as clients are told
	// Key returns the pre-shared key for connections that begin now. If Key is nil or returns nil, there is
	// none, and a client that has one is turned away.
	Key func() *psk.Key
	// AuthFailed is called for each peer that has not proven its identity, with the cause as metrics name it
	// and a line for humans. If it is nil, the server counts and logs such peers itself. It must not call the
	// server.
	AuthFailed func(remote net.Addr, cause, detail string)
	// AuthPassed, if not nil, is called for each peer that has proven that it has the key. It must not call
	// the server.
	AuthPassed func(remote net.Addr)
	ProveTime  time.Duration // from our Reply to the client's proof; 0 = 10 s
	Jobs       int           // compiles at a time
	Clients    int           // connections at a time
	Slot       int64         // bytes of a slot: for body and text, then for the result
	Prefault   int64         // bytes of each slot that stay allocated
	Source     int64         // largest source, in bytes, that is fetched because it is too big for a slot
	Result     int64         // largest result, in bytes, that is offered because it is too big for slot or sink
	Large      int64         // bytes that those may take together
	WorkBase   string        // directory for the work area
	Compilers  string        // file that remembers the compilers across restarts; empty: no file
	Answer     time.Duration // how long a compiler may take for one question about itself; 0 = 5 s
	Heartbeat  time.Duration
	Silence    time.Duration // time without a sign of life after which a client counts as lost
	Grace      time.Duration // how long Drain waits for credits to be returned or spent
	// WindowTime is how long a client may leave a result unread, or our Read of its source unanswered. 0 =
	// job.WindowTime, the least that the protocol allows.
	WindowTime time.Duration
	Tree       TreeMode

	// Store configures the store for contents that clients send once. Memory 0 = a sixteenth of the machine's
	// memory, within bounds. There is no store if NoStore is set, or if there are no trees.
	Store   store.Options
	NoStore bool
	Learn   bool // read this machine's own headers in advance, while the server is idle

	// Sandbox says how compiles are confined.
	Sandbox SandboxMode
	// Bounds of each compile: its memory in bytes, processes at a time, bytes of one file, and bytes of each
	// of its standard output and error. 0 is a default of this package.
	JobMemory int64
	Processes int
	File      int64
	Output    int64
	// Users is the first number of the users that confined compiles run as, if this process is root. Each
	// runner gets one that no other daemon has, from this number on. 0 = none.
	Users      int
	Cgroup     string        // a delegated control group directory (privatetree.Spec.Cgroup); "" = none
	CanaryMean time.Duration // average time between two canaries; 0 = 10 minutes

	// Bounds of one tenant: how many jobs run and wait at a time, 0 = no bound but that of the host.
	ClientRunning, ClientQueued int
	// ClientBytes bounds the bytes of slots and of large memory of one tenant. 0 = half of the large memory,
	// and any number of slots.
	ClientBytes int64

	Memory    int64  // bytes that each program of a compile may map; 0 = no limit
	DiskFloor int64  // bytes that must be free below WorkBase for the host to take work
	Proc      string // where the proc file system is mounted; "" = /proc
	Settings
}

// Settings are the options that can change while the server runs.
type Settings struct {
	Allow      []netip.Prefix // networks that may connect, in addition to loopback
	Nice       int            // niceness of compiles
	JobTimeout time.Duration
	Dirs       []string // directories with compilers
}

// Server does the daemon's work. It knows nothing of flags or signals.
type Server struct {
	o         Options
	boot      [16]byte
	compilers *offered.Compilers
	slots     *shm.Pool
	large     *large.Memory
	keep      *store.Store      // contents that clients have sent; nil: no store; set once by New
	machine   files.Machine     // this machine's own headers
	learner   *files.Learner    // reads them in advance, if Options.Learn
	forgets   atomic.Uint64     // grows while the machine is short of memory: trees drop what they keep
	intakes   chan *run.Scratch // one per place, which bounds how many tasks are taken in at a time
	area      *workdir.Area
	guard     *workdir.Guard
	places    *run.Host // what all places share
	ownUsers  bool      // each runner's compiles have a user of their own; set once by New
	users     users.Range
	cage      confinement
	shown     atomic.Pointer[display] // what trees have to show
	groups    *cgroup.Groups          // the control groups around this process; set once by New
	settings  atomic.Pointer[Settings]
	load      atomic.Pointer[hostLoad]
	started   time.Time

	stop    context.CancelFunc // ends the accept loops and the ticker
	ctx     context.Context
	serving sync.WaitGroup // accept loops, connections, ticker
	runners sync.WaitGroup

	mu        sync.Mutex
	conns     map[*conn]bool
	lastConn  uint64
	offenders lend.Offenders
	lend      *lend.Ledger // decides how credits, cores and memory are divided
	wake      *sync.Cond   // runners wait here for something to do, or for closing
	awaiting  bool         // a timer will wake the runners at the end of a pause
	rest      time.Time    // until then the host takes no work in any case
	draining  bool
	impatient bool // the server has drained for Options.Grace
	closing   bool
	boardSeq  uint64
	boardBuf  []byte        // scratch space of publishLocked
	speeds    []job.Speed   // of toolchains, the last used one first
	idle      chan struct{} // made by Drain; closed when nothing runs, waits or is being sent
}

// New makes a server. It removes what killed daemons have left, makes the work area, and starts the guard and
// the runners. Close ends the server. Serve can be called at once, as slower work goes on in the background:
// compilers that are not known from before (Options.Compilers) are announced to clients as they are
// identified; and runners run canaries, for which jobs wait only if the mode is SandboxStrict.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.WorkBase == "" || o.Jobs <= 0 || o.Clients <= 0 || o.Slot <= 0 || o.Heartbeat <= 0 || o.Silence <= 0 || o.Grace <= 0 || o.JobTimeout <= 0 {
		return nil, errors.New("worker: jobs, clients, slot, heartbeat, silence and job-timeout must be positive, and a work directory named")
	}
	if o.WindowTime == 0 {
		o.WindowTime = job.WindowTime
	}
	o.Proc = cmp.Or(o.Proc, "/proc")
	o.Processes, o.File, o.Output = cmp.Or(o.Processes, defaultProcesses), cmp.Or(o.File, defaultFile), cmp.Or(o.Output, defaultOutput)
	s := &Server{o: o, conns: make(map[*conn]bool), offenders: make(lend.Offenders),
		lend: lend.New(o.lending()), started: time.Now()}
	s.wake = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancel(context.Background())
	rand.Read(s.boot[:]) // never fails, says its documentation
	s.settings.Store(&o.Settings)
	s.groups = cgroup.Find(o.Proc)
	s.readHostLoad()
	s.tellMemoryLocked()
	if s.o.JobMemory == 0 {
		s.o.JobMemory = s.jobMemory()
	}
	if s.o.Store.Memory == 0 {
		s.o.Store.Memory = min(max(s.machineMemory()/storePart, storeLeast), storeMost)
	}
	s.cage.held, s.cage.schedule.mean = make([]sandbox.Set, o.Jobs), cmp.Or(o.CanaryMean, canaryMean)
	s.cage.tested, s.cage.shownAt = make([]*privatetree.Spec, o.Jobs), time.Now()
	s.openCompilers()
	s.places = s.newPlaces()
	s.show(nil)
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	s.compilers.Start(s.ctx, &s.serving)
	if err := s.startRunners(ctx); err != nil {
		s.endRunners()
		s.release()
		return nil, err
	}
	s.serving.Go(func() {
		if n := workdir.RemoveTargets(); n > 0 {
			s.o.Log.Info("removed what canaries of daemons that were killed left", "count", n)
		}
	})
	s.openStore()
	s.serving.Go(s.tick)
	return s, nil
}

// startRunners makes and starts the runners. Each runs a canary when it is idle or, if the mode is strict,
// before its first job.
func (s *Server) startRunners(ctx context.Context) error {
	list := make([]*runner, 0, s.o.Jobs)
	if err := s.makeRunners(ctx, &list); err != nil {
		for _, r := range list {
			r.close()
		}
		return err
	}
	s.mu.Lock()
	if s.places.Confined {
		for i := range s.cage.held { // until canaries show otherwise
			s.cage.held[i] = list[0].place.Measures()
		}
	}
	s.cage.begun = true
	s.mu.Unlock()
	s.tellSandbox()
	for _, r := range list {
		s.runners.Go(r.loop)
	}
	return nil
}

// makeRunners appends the runners to list, also if it fails. The first one decides how compiles are confined.
func (s *Server) makeRunners(ctx context.Context, list *[]*runner) error {
	for i := range s.o.Jobs {
		r, err := newRunner(s, i)
		if err != nil {
			return err
		}
		*list = append(*list, r)
		if i == 0 {
			if err := s.setSandbox(ctx, r); err != nil {
				return err
			}
		}
		if err := r.place.Settle(); err != nil {
			return err
		}
	}
	return nil
}

// open acquires the server's resources. release frees what open has acquired, also if it fails.
func (s *Server) open() error {
	if n, err := workdir.RemoveStale(s.o.WorkBase); err != nil {
		s.o.Log.Warn("old work directories", "err", err)
	} else if n > 0 {
		s.o.Log.Info("removed work directories of daemons that were killed", "count", n)
	}
	var err error
	// In addition to the credits, one buffer for each result that is still being sent, and for each hoarded
	// credit.
	most := 3*s.most() + s.o.Clients
	if s.slots, err = shm.NewPool(shm.Options{Name: "rdistccd-slot", Size: s.o.Slot, Prefault: s.o.Prefault, Max: most, Wipe: true}); err != nil {
		return err
	}
	if s.large, err = large.New(s.o.Large, max(s.o.Source, s.o.Result), most); err != nil {
		return err
	}
	if s.area, err = workdir.New(s.o.WorkBase); err != nil {
		return err
	}
	if s.guard, err = workdir.StartGuard(s.area); err != nil {
		return err
	}
	s.places.WorkDir, s.places.Large = s.area.Path, s.large
	return s.places.Open()
}

// newPlaces returns what all places share: how jobs are run.
func (s *Server) newPlaces() *run.Host {
	return &run.Host{
		Context: s.ctx, Log: s.o.Log, Places: s.o.Jobs,
		File: s.o.File, Output: s.o.Output, Memory: s.o.Memory, JobMemory: s.o.JobMemory, Processes: s.o.Processes, Result: s.o.Result,
		Nice: func() int { return s.settings.Load().Nice }, Verify: s.compilers.Verify, OOMKills: s.readOOMKills, Denied: s.o.Metrics.denial, Forgets: &s.forgets,
	}
}

func (s *Server) release() {
	s.stop()
	s.serving.Wait()
	s.compilers.Close()
	if s.area != nil {
		if err := s.area.Remove(); err != nil {
			s.o.Log.Error("remove work directory", "err", err)
		}
	}
	if s.guard != nil {
		if err := s.guard.Stop(); err != nil {
			s.o.Log.Error("end", "err", err)
		}
	}
	if s.slots != nil {
		s.slots.Close()
	}
	s.large.Close()
	s.machine.Forget()
	if s.keep != nil {
		s.keep.Close()
	}
	s.users.Release()
	s.places.Close()
}

func (s *Server) endRunners() {
	s.mu.Lock()
	s.closing = true
	s.wake.Broadcast()
	s.mu.Unlock()
	s.runners.Wait()
}

// Apply puts new settings into force. The caller calls Rescan if the directories have changed. Connections
// that are no longer allowed stay until they end.
func (s *Server) Apply(n Settings) { s.settings.Store(&n) }

// Settings returns the settings in force.
func (s *Server) Settings() Settings { return *s.settings.Load() }

// Serve takes connections from l until Drain or Close, and closes l.
func (s *Server) Serve(l iwarp.Listener) {
	s.serving.Go(func() {
		defer l.Close()
		for {
			req, err := l.Accept(s.ctx)
			if err != nil {
				if s.ctx.Err() == nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, iwarp.ErrClosed) {
					s.o.Log.Error("accept", "addr", l.Addr().String(), "err", err)
				}
				return
			}
			s.admit(req)
		}
	})
}

// Drain prepares a graceful end: the server takes no new connections or jobs, tells the clients, and finishes
// what runs or waits. For each credit that a client holds, a job may still be in transit. It is refused on
// arrival, which does not count as an attempt; if the connection were closed instead, it would. Drain returns
// when all results are sent, or the cause of ctx's end. The caller then calls Close.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.idle == nil {
		s.idle = make(chan struct{})
		s.draining = true
		for c := range s.conns {
			c.wantDrain = true
			c.pumpLocked()
		}
		time.AfterFunc(s.o.Grace, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.impatient = true
			s.checkIdleLocked()
		})
		s.publishLocked()
		s.checkIdleLocked()
	}
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// checkIdleLocked closes idle once a draining server has nothing under way.
func (s *Server) checkIdleLocked() {
	if s.idle == nil {
		return
	}
	for c := range s.conns {
		if len(c.tasks) > 0 || len(c.sending) > 0 || len(c.offers) > 0 || !s.impatient && c.state == connServing && len(c.credits) > 0 {
			return
		}
	}
	select {
	case <-s.idle:
	default:
		close(s.idle)
	}
}

// Close ends everything at once: it kills compilers, drops connections and removes the work area. It returns
// after the last goroutine has ended. After Drain, it closes the connections gracefully.
func (s *Server) Close() {
	s.stop()
	s.mu.Lock()
	graceful := s.idle != nil
	var list []*conn
	for c := range s.conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	var ends sync.WaitGroup
	for _, c := range list {
		ends.Go(func() { c.end(graceful) })
	}
	ends.Wait()
	s.serving.Wait()
	s.endRunners()
	s.release()
}
