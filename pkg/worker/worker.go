// Package worker is the compile host's side: it grants credits, takes jobs, runs
// compilers and writes results back.
//
// A Server has one goroutine for each connection, which reads its completion
// queue, and Options.Jobs runners, each of which takes one job after another. A
// job's memory is its credit's slot throughout: the peer wrote the source into it,
// the runner copies that to a file, and gathers the result in the same memory
// once the peer can write it no more. Then it becomes a slot for a new credit.
//
// Who gets a credit or a core, and who gives one back, is decided by package lend. The Server
// guards that with its mutex, tells it what happens, and carries out what it says.
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

// Options of a Server.
type Options struct {
	Device  iwarp.Device
	Log     *slog.Logger
	Audit   *auditlog.Log // nil: none is kept
	Metrics *Metrics      // nil: not counted
	Program string        // what the daemon calls its version
	// Key is the pre-shared key of connections that begin now. Nil, or nil from it:
	// there is none, and a client that has one is turned away.
	Key func() *psk.Key
	// AuthFailed is told of each peer that has not proven who it is, by the word for
	// it in metrics and a line for a person; nil: that is counted and logged here.
	// AuthPassed is told of one that has. They must not call the server.
	AuthFailed func(remote net.Addr, cause, detail string)
	AuthPassed func(remote net.Addr)
	ProveTime  time.Duration // from our Reply to the client's proof; 0 = 10 s
	Jobs       int           // compiles at a time
	Clients    int           // connections at a time
	Slot       int64         // bytes of a slot: body and text, and the result
	Prefault   int64         // of these, kept in memory
	Source     int64         // bytes of a source that is fetched, when a slot is too small
	Result     int64         // bytes of a result that is offered, when slot or sink are too small
	Large      int64         // bytes that those may take together
	WorkBase   string        // directory for the work area
	Compilers  string        // file that remembers which compilers there are; empty: none
	Answer     time.Duration // to one question to a compiler about itself; 0 = 5 s
	Heartbeat  time.Duration
	Silence    time.Duration // without a sign of life a client is lost
	Grace      time.Duration // how long Drain waits for credits to come back, or be spent
	// WindowTime is how long a client may leave a result unread, or our Read of its
	// source unanswered. 0 = job.WindowTime, the least that the protocol allows.
	WindowTime time.Duration
	Tree       TreeMode

	// Store is of contents that clients send once; Memory 0 = a sixteenth of the machine's.
	// There is none where NoStore says so, or no trees.
	Store   store.Options
	NoStore bool
	Learn   bool // this machine's own headers are read while there is nothing else to do

	// How compiles are confined, and what each may take: Processes at a time, File bytes of a
	// file, Output bytes of its words, JobMemory bytes of memory in all. 0 is a default of this package.
	Sandbox    SandboxMode
	JobMemory  int64
	Processes  int
	File       int64
	Output     int64
	Users      int           // that confined compiles run as: this number and the next ones that no other daemon has, where this process is root; 0 = none
	Cgroup     string        // directory of control groups that is delegated to us (tree.Spec.Cgroup); "" = none
	CanaryMean time.Duration // between two canaries; 0 = 10 minutes

	// Of one tenant: jobs that run and that wait, 0 = as many as there are places for;
	// and bytes of slots and of large memory, 0 = half of the latter.
	ClientRunning, ClientQueued int
	ClientBytes                 int64

	Memory    int64  // bytes that each program of a compile may take; 0 = no limit
	DiskFloor int64  // bytes free below WorkBase without which no work is taken
	Proc      string // where the system tells about itself; "" = /proc
	Settings
}

// Settings can change while the server runs.
type Settings struct {
	Allow      []netip.Prefix // beside loopback
	Nice       int
	JobTimeout time.Duration
	Dirs       []string // with compilers
}

// Server is a daemon without its flags and signals.
type Server struct {
	o         Options
	boot      [16]byte
	compilers *offered.Compilers
	slots     *shm.Pool
	large     *large.Memory
	keep      *store.Store      // of what clients have sent; nil: there is none; set once by New
	machine   files.Machine     // of this machine's own headers
	learner   *files.Learner    // reads them in advance, if Options.Learn
	forgets   atomic.Uint64     // grows while the machine is short of memory: trees drop what they keep
	intakes   chan *run.Scratch // one for each place: so many tasks are taken in at a time
	area      *workdir.Area
	guard     *workdir.Guard
	places    *run.Host // what they share: how jobs are run
	ownUsers  bool      // each runner's as another user; set once by New
	users     users.Range
	cage      confinement
	shown     atomic.Pointer[display] // what trees have to show
	groups    *cgroup.Groups          // around this process; set once by New
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
	lend      *lend.Ledger // decides who gets credits, cores and memory
	wake      *sync.Cond   // runners wait for something that they can do, or closing
	awaiting  bool         // the cores are going to be woken
	rest      time.Time    // until then the host takes no work, whatever else
	draining  bool
	// impatient: it has drained for Options.Grace.
	impatient bool
	closing   bool
	boardSeq  uint64
	boardBuf  []byte        // of publishLocked
	speeds    []job.Speed   // of toolchains, the one used last first
	idle      chan struct{} // made by Drain; closed when nothing runs, waits or is being sent
}

// New makes a server: it clears what dead daemons left, makes the work area, and
// starts the guard and the runners. Serve can follow at once: what takes longer goes on
// beside it. These are compilers that are not known from before (Options.Compilers), which
// clients are told of as they are identified; and the proofs of how compiles are confined, for which jobs
// wait if the mode is SandboxStrict.
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

// startRunners makes the runners and starts them. Each proves how its compiles are confined
// when it has nothing else to do, or, if the mode is strict, before its first job.
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
		for i := range s.cage.held { // which a canary may put in doubt
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

// open gets the server's resources; release gives back what it got.
func (s *Server) open() error {
	if n, err := workdir.RemoveStale(s.o.WorkBase); err != nil {
		s.o.Log.Warn("old work directories", "err", err)
	} else if n > 0 {
		s.o.Log.Info("removed work directories of daemons that were killed", "count", n)
	}
	var err error
	// Beside the credits, one buffer for each result that is still being sent, and for
	// each credit that is hoarded.
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

// newPlaces says how jobs are run.
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

// Apply puts new settings in force; Rescan follows if the directories changed.
// Connections that are no longer allowed stay until they end.
func (s *Server) Apply(n Settings) { s.settings.Store(&n) }

// Settings are those in force.
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

// Drain ends the server in order: no new connection, no new job; the clients are
// told; what runs or waits is finished. A job may be on its way for each credit that a
// client has: it is refused when it comes, which costs nobody an attempt, as a
// connection that closes would. Drain returns when all results are sent, or with
// ctx's error. Close follows.
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

// Close ends everything at once: compilers are killed, connections dropped, the
// work area removed. It returns after the last goroutine. After Drain the
// connections are closed gracefully.
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
