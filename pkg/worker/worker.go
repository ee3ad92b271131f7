// Package worker is the compile host's side: it grants credits, takes jobs, runs
// compilers and writes results back.
//
// A Server has one goroutine for each connection, which reads its completion
// queue, and Options.Jobs runners, each of which takes one job after another. A
// job's memory is its credit's slot throughout: the peer wrote the source into it,
// the runner copies that to a file, and gathers the result in the same memory
// once the peer can write it no more. Then it becomes a slot for a new credit.
package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/pkg/arena"
	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
	"github.com/rdistcc/rdistcc/pkg/tree"
)

// Options of a Server.
type Options struct {
	Device    iwarp.Device
	Log       *slog.Logger
	Metrics   *Metrics // nil: not counted
	Jobs      int      // compiles at a time
	Clients   int      // connections at a time
	Slot      int64    // bytes of a slot: body and text, and the result
	Prefault  int64    // of these, kept in memory
	Source    int64    // bytes of a source that is fetched, when a slot is too small
	Result    int64    // bytes of a result that is offered, when slot or sink are too small
	Large     int64    // bytes that those may take together
	WorkBase  string   // directory for the work area
	Compilers string   // file that remembers which compilers there are; empty: none
	Heartbeat time.Duration
	Silence   time.Duration // without a sign of life a client is lost
	Grace     time.Duration // how long Drain waits for credits to come back, or be spent
	// WindowTime is how long a client may leave a result unread, or our Read of its
	// source unanswered. 0 = job.WindowTime, the least that the protocol allows.
	WindowTime time.Duration
	Tree       TreeMode
	Memory     int64  // bytes that each program of a compile may take; 0 = no limit
	DiskFloor  int64  // bytes free below WorkBase without which no work is taken
	Proc       string // where the system tells about itself; "" = /proc
	Settings
}

// Settings can change while the server runs.
type Settings struct {
	Allow      []netip.Prefix // beside loopback
	Nice       int
	JobTimeout time.Duration
	Dirs       []string // with compilers
}

// activeTime is how long after its last job a client counts as one that builds.
const activeTime = 10 * time.Second

// outKept is how much is kept of a compiler's standard output and of its standard
// error, in bytes. Writing past outSize fails.
const (
	outKept = 1 << 20
	outSize = 2 * outKept
)

// Server is a daemon without its flags and signals.
type Server struct {
	o        Options
	boot     [16]byte
	tools    toolchain.Cache
	recipes  recipes.Cache
	programs sync.Map // name of a program to its path on searchPath
	slots    *arena.Pool
	outputs  *arena.Pool
	large    *largeMemory
	area     *workArea
	guard    *guard
	devNull  *os.File
	listed   atomic.Pointer[[]toolchain.Toolchain]
	trees    bool                      // jobs of the sources form are taken; set once by New
	shown    atomic.Pointer[tree.Spec] // what trees have to show
	settings atomic.Pointer[Settings]
	host     atomic.Pointer[hostLoad]
	started  time.Time

	scan    sync.Mutex        // held by Rescan; before mu
	skipped map[string]string // guarded by scan: compilers not offered, and why

	stop    context.CancelFunc // ends the accept loops and the ticker
	ctx     context.Context
	serving sync.WaitGroup // accept loops, connections, ticker
	runners sync.WaitGroup

	mu       sync.Mutex
	conns    map[*conn]bool
	looked   map[job.ToolchainID]time.Time // when a toolchain's files were looked at
	nextScan time.Time
	lastConn uint64
	lastID   uint64         // of credits
	clients  []*client      // in order of arrival
	queued   int            // in their queues
	lowQueue int            // the smallest of it since the last tick
	worked   bool           // a job was begun since then
	depth    int            // spare credits beside one for each core
	vtime    float64        // client.pass of the one that was served last
	wake     *sync.Cond     // runners wait for something that they can do, or closing
	runs     map[*task]bool // under way
	running  int
	meanWall time.Duration                 // of compiles, the last ones most
	meanRSS  float64                       // bytes, the same
	unfit    *refusal                      // why the host takes no work now
	rest     time.Time                     // until then, whatever else
	memory   time.Time                     // when it was looked at
	benched  map[job.ToolchainID]time.Time // toolchains that could not be started, until when they are not offered
	draining bool
	// impatient: it has drained for Options.Grace.
	impatient bool
	closing   bool
	boardSeq  uint64
	boardBuf  []byte        // of publishLocked
	speeds    []job.Speed   // of toolchains, the one used last first
	idle      chan struct{} // made by Drain; closed when nothing runs, waits or is being sent
}

// New makes a server: it clears what dead daemons left, makes the work area,
// starts the guard and the runners, and looks for compilers.
func New(ctx context.Context, o Options) (*Server, error) {
	if o.WorkBase == "" || o.Jobs <= 0 || o.Clients <= 0 || o.Slot <= 0 || o.Heartbeat <= 0 || o.Silence <= 0 || o.Grace <= 0 || o.JobTimeout <= 0 {
		return nil, errors.New("worker: jobs, clients, slot, heartbeat, silence and job-timeout must be positive, and a work directory named")
	}
	if o.WindowTime == 0 {
		o.WindowTime = job.WindowTime
	}
	if o.Proc == "" {
		o.Proc = "/proc"
	}
	s := &Server{o: o, tools: toolchain.Cache{File: o.Compilers}, conns: make(map[*conn]bool), runs: make(map[*task]bool),
		benched: make(map[job.ToolchainID]time.Time), depth: minDepth(o.Jobs), started: time.Now()}
	s.wake = sync.NewCond(&s.mu)
	s.ctx, s.stop = context.WithCancel(context.Background())
	rand.Read(s.boot[:]) // never fails, says its documentation
	s.settings.Store(&o.Settings)
	s.readHostLoad()
	if err := s.open(); err != nil {
		s.release()
		return nil, err
	}
	if err := s.Rescan(ctx); err != nil {
		s.release()
		return nil, err
	}
	s.nextScan = time.Now().Add(rescanTime)
	for i := range o.Jobs {
		r, err := newRunner(s, i)
		if err == nil && i == 0 {
			if err = s.tryTrees(ctx, &r.stand); err != nil {
				r.close()
			}
		}
		if err != nil {
			s.endRunners()
			s.release()
			return nil, err
		}
		s.runners.Go(r.loop)
	}
	s.serving.Go(s.tick)
	return s, nil
}

// open gets the server's resources; release gives back what it got.
func (s *Server) open() error {
	if n, err := removeStale(s.o.WorkBase); err != nil {
		s.o.Log.Warn("old work directories", "err", err)
	} else if n > 0 {
		s.o.Log.Info("removed work directories of daemons that were killed", "count", n)
	}
	var err error
	if s.devNull, err = os.Open(os.DevNull); err != nil {
		return err
	}
	// Beside the credits, one buffer for each result that is still being sent.
	most := 2*s.most() + s.o.Clients
	if s.slots, err = arena.NewPool(arena.Options{Name: "rdistccd-slot", Size: s.o.Slot, Prefault: s.o.Prefault, Max: most}); err != nil {
		return err
	}
	if s.outputs, err = arena.NewPool(arena.Options{Name: "rdistccd-out", Size: outSize, Max: 2 * s.o.Jobs}); err != nil {
		return err
	}
	if s.large, err = newLargeMemory(s.o.Large, max(s.o.Source, s.o.Result), most); err != nil {
		return err
	}
	if s.area, err = newWorkArea(s.o.WorkBase); err != nil {
		return err
	}
	s.guard, err = startGuard(s.area)
	return err
}

func (s *Server) release() {
	s.stop()
	s.serving.Wait()
	if s.area != nil {
		if err := s.area.remove(); err != nil {
			s.o.Log.Error("remove work directory", "err", err)
		}
	}
	if s.guard != nil {
		if err := s.guard.stop(); err != nil {
			s.o.Log.Error("end", "err", err)
		}
	}
	for _, p := range []*arena.Pool{s.slots, s.outputs} {
		if p != nil {
			p.Close()
		}
	}
	s.large.close()
	if s.devNull != nil {
		s.devNull.Close()
	}
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

// admit rejects a peer, or starts its connection.
func (s *Server) admit(req iwarp.ConnRequest) {
	remote := req.Info().Remote
	if r := s.judge(req); r != nil {
		s.o.Log.Warn("connection rejected", "remote", remote.String(), "cause", r.Cause.String(), "detail", r.Detail)
		s.o.Metrics.refused(r.Cause)
		if r.Cause == job.CauseDenied {
			s.o.Metrics.denied()
		}
		if err := req.Reject(r.Append(nil)); err != nil {
			s.o.Log.Debug("reject", "remote", remote.String(), "err", err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastConn++
	c := newConn(s, s.lastConn, remote)
	if g, err := job.ParseGreeting(req.Info().PrivateData); err == nil {
		c.boot = g.Boot
	}
	s.conns[c] = true
	s.serving.Go(func() { c.serve(req) })
}

// judge says why a peer may not come in.
func (s *Server) judge(req iwarp.ConnRequest) *job.Rejection {
	info := req.Info()
	if !s.allowed(info.Remote) {
		return &job.Rejection{Cause: job.CauseDenied, Detail: fmt.Sprintf("%s is in no network of --allow", hostOf(info.Remote))}
	}
	g, err := job.ParseGreeting(info.PrivateData)
	if err != nil {
		return &job.Rejection{Cause: job.CauseMalformed, Detail: err.Error()}
	}
	if g.Version != job.Version {
		return &job.Rejection{Cause: job.CauseVersion, Detail: fmt.Sprintf("the daemon speaks version %d, not %d", job.Version, g.Version)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return &job.Rejection{Cause: job.CauseDraining, Detail: "going down"}
	}
	if len(s.conns) >= s.o.Clients {
		return &job.Rejection{Cause: job.CauseFull, Detail: fmt.Sprintf("%d clients are connected", s.o.Clients)}
	}
	return nil
}

func (s *Server) allowed(remote net.Addr) bool {
	ap, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return false
	}
	ip := ap.Addr().Unmap()
	if ip.IsLoopback() {
		return true
	}
	for _, p := range s.settings.Load().Allow {
		if p.Contains(ip.WithZone("")) {
			return true
		}
	}
	return false
}

func hostOf(a net.Addr) string {
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
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
		if len(c.tasks) > 0 || len(c.sending) > 0 || len(c.offers) > 0 || !s.impatient && c.ready && len(c.credits) > 0 {
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

// runnerDir is where a runner's jobs are compiled.
func (s *Server) runnerDir(i int) string { return filepath.Join(s.area.path, fmt.Sprintf("job%d", i)) }
