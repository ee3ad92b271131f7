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
//
// The files lie in layers, each of which calls the ones before it:
//
//	types        options.go server.go conn.go state.go
//	telling      tell.go board.go shelf.go copies.go arrived.go credits.go offer.go host.go idle.go count.go
//	deciding     fitness.go confinement.go auth.go endings.go
//	doing        queue.go canary.go sandbox.go compilers.go admit.go streams.go answer.go tick.go status.go metrics.go cluster_metrics.go
//	a job's way  accept.go source.go intake.go twins.go runner.go
//	lifetimes    life.go serve.go worker.go
package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/shm"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/images"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

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
	s.openShelves()
	s.openReceived()
	s.serving.Go(s.tick)
	if s.o.Cluster != nil {
		s.serving.Go(func() {
			defer s.rescue(s.o.Log, nil)
			s.o.Cluster.Watch(s.ctx)
		})
	}
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
	// Jobs that came without a slot take one when they run, or when their source is fetched in advance, which
	// each tenant may have one of (lend.Ledger.Fetch).
	most += 2*s.o.Jobs + s.o.Clients
	if s.slots, err = shm.NewPool(shm.Options{Name: "rdistccd-slot", Size: s.o.Slot, Prefault: s.o.Prefault, Max: most, Wipe: true}); err != nil {
		return err
	}
	if s.keepsSlots() {
		if s.copies, err = shm.NewPool(shm.Options{Name: "rdistccd-copy", Size: s.o.Slot, Prefault: min(s.o.Prefault, copyPrefault), Max: most, Wipe: true}); err != nil {
			return err
		}
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
	s.places.Images = images.New(s.area.Path, mostImages)
	return s.places.Open()
}

// mostImages is how many bytes of precompiled headers are kept, mostly in memory. One of gcc's with a few headers of its library has 50 MB.
const mostImages = 1 << 30

// newPlaces returns what all places share: how jobs are run.
func (s *Server) newPlaces() *run.Host {
	return &run.Host{
		Context: s.ctx, Log: s.o.Log, Places: s.o.Jobs, Cluster: s.o.Cluster,
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
	if s.copies != nil {
		s.copies.Close()
	}
	if s.slots != nil {
		s.slots.Close()
	}
	s.large.Close()
	s.machine.Forget()
	s.shelves.Close()
	s.closeReceived()
	if s.keep != nil {
		s.keep.Close()
	}
	s.users.Release()
	if s.places.Images != nil {
		s.places.Images.Close()
	}
	s.places.Close()
}

func (s *Server) endRunners() {
	s.mu.Lock()
	s.closing = true
	s.wake.Broadcast()
	s.mu.Unlock()
	s.runners.Wait()
}

// Serve takes connections from l until Drain or Close, and closes l.
func (s *Server) Serve(l iwarp.Listener) { s.serve(l, "") }

// ServeOnBehalf is Serve for connections that this process itself makes, each on behalf of a client of another protocol, which
// via names. Their address is that client's. They prove nothing, and Settings.Allow does not apply: the caller has decided who
// may send jobs in this way.
func (s *Server) ServeOnBehalf(l iwarp.Listener, via string) { s.serve(l, via) }

func (s *Server) serve(l iwarp.Listener, via string) {
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
			s.admit(req, via)
		}
	})
}

// Drain prepares a graceful end: the server takes no new connections or jobs, tells the clients, and finishes
// what runs or waits. For each credit that a client holds, a job may still be in transit. It is refused on
// arrival, which does not count as an attempt; if the connection were closed instead, it would. Drain returns
// when all results are sent, or the cause of ctx's end. The caller then calls Close.
func (s *Server) Drain(ctx context.Context) error {
	s.mu.Lock()
	if s.drain.idle == nil {
		s.drain.idle = make(chan struct{})
		s.drain.begun = true
		for c := range s.conns {
			c.wantDrain = true
			c.pumpLocked()
		}
		time.AfterFunc(s.o.Grace, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.drain.impatient = true
			s.checkIdleLocked()
		})
		s.publishLocked()
		s.checkIdleLocked()
	}
	idle := s.drain.idle
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close ends everything at once: it kills compilers, drops connections and removes the work area. It returns
// after the last goroutine has ended. After Drain, it closes the connections gracefully.
func (s *Server) Close() {
	s.stop()
	s.mu.Lock()
	graceful := s.drain.idle != nil
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
