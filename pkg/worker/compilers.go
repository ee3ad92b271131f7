package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// answerTime bounds how long a compiler may take for one question about itself. One that
// takes longer is asked again: after retryTime, then with every scan.
const answerTime = 5 * time.Second

// announceTime is between two lists that clients get while compilers are being
// identified: each costs a runner a new tree.
const announceTime = 200 * time.Millisecond

// Rescan looks for compilers anew, and returns when all have been asked. If there are
// others than before, the clients are told: of new ones as they become known. It happens
// by itself at the start, every rescanTime, and soon after a job found its compiler changed.
func (s *Server) Rescan(ctx context.Context) error { return s.find(ctx, func() {}) }

// find does Rescan. known is called once those are offered that are known from before, for
// which nothing has to be run.
func (s *Server) find(ctx context.Context, known func()) error {
	s.scan.Lock()
	defer s.scan.Unlock()
	a := announcer{s: s}
	defer a.end()
	var once sync.Once
	d, err := s.tools.Discover(ctx, s.settings.Load().Dirs, func(d toolchain.Discovery) {
		s.skip(d.Skipped)
		if d.Left == 0 {
			return // what follows says so
		}
		a.tell(d.List)
		once.Do(known)
	})
	if err != nil {
		return err
	}
	a.end()
	s.tools.Flush()
	for path := range s.skipped {
		if d.Skipped[path] == nil {
			delete(s.skipped, path) // mended, or gone
		}
	}
	s.offer(d.List, false)
	once.Do(known)
	if len(d.List) == 0 && !s.lacking {
		s.o.Log.Warn("no compiler found: every job is refused; install one, or name the directories with compilers in toolchains.dirs", "dirs", s.settings.Load().Dirs)
	}
	s.lacking = len(d.List) == 0
	return nil
}

// announcer offers compilers while they are being identified, each list at most announceTime
// late: the next one to answer may be one that hangs.
type announcer struct {
	s *Server

	mu    sync.Mutex // before Server.mu
	last  time.Time  // when a list was offered
	list  []toolchain.Toolchain
	timer *time.Timer // nil: list has been offered
	ended bool
}

func (a *announcer) tell(list []toolchain.Toolchain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = list
	if wait := announceTime - time.Since(a.last); a.timer == nil && wait > 0 {
		a.timer = time.AfterFunc(wait, a.late)
	} else if a.timer == nil {
		a.offerLocked()
	}
}

func (a *announcer) late() {
	defer a.s.rescue(a.s.o.Log, nil)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.timer = nil; !a.ended {
		a.offerLocked()
	}
}

func (a *announcer) offerLocked() {
	a.last = time.Now()
	a.s.offer(a.list, true)
}

// end offers nothing any more.
func (a *announcer) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
}

// skip logs the compilers that cannot be offered, each once for a reason. The caller holds
// scan.
func (s *Server) skip(list map[string]error) {
	news := false
	for path, err := range list {
		if s.skipped[path] == err.Error() {
			continue
		}
		if s.skipped == nil {
			s.skipped = make(map[string]string)
		}
		s.skipped[path], news = err.Error(), true
		s.o.Log.Warn("compiler not offered", "path", path, "err", err)
	}
	if !news {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if again := time.Now().Add(retryTime); s.nextScan.After(again) {
		s.nextScan = again
	}
}

// offer makes found the toolchains that clients are told of. more: not all have been asked
// yet; then those of the list before stay. One call at a time, within find.
func (s *Server) offer(found []toolchain.Toolchain, more bool) {
	s.mu.Lock()
	before, now := *s.listed.Load(), time.Now()
	benched := func(t toolchain.Toolchain) bool { return now.Before(s.benched[t.ID]) }
	list := slices.DeleteFunc(slices.Clone(found), benched)
	s.mu.Unlock()
	if more {
		for i := range list { // by the name that it has had, as another one makes trees new
			if j := slices.IndexFunc(before, func(t toolchain.Toolchain) bool { return t.ID == list[i].ID }); j >= 0 {
				list[i] = before[j]
			}
		}
		for i := range before {
			if !slices.ContainsFunc(list, func(t toolchain.Toolchain) bool { return t.ID == before[i].ID }) {
				list = append(list, before[i])
			}
		}
	}
	list = list[:min(len(list), 1<<16-1)] // clients hold at most a 16-bit number of them
	changed := !slices.EqualFunc(before, list, toolchain.Toolchain.Equal)
	if changed {
		s.show(list) // before a job can name one
	}
	s.mu.Lock()
	list = slices.DeleteFunc(list, benched) // meanwhile
	s.listed.Store(&list)
	ended := !more && s.identifying
	s.identifying = s.identifying && more
	if changed {
		s.cage.shownAt = now
	}
	if changed || ended {
		for c := range s.conns {
			c.listToolchainsLocked()
		}
		s.wake.Broadcast() // runners have something to prove
	}
	s.mu.Unlock()
	if changed {
		s.learner.Soon()
	}
	for i := range list {
		t := &list[i]
		if !slices.ContainsFunc(before, t.Equal) {
			s.o.Log.Info("toolchain", "id", fmt.Sprintf("%x", t.ID), "path", t.Exec, "family", t.Family, "version", t.Version, "target", t.Target)
		}
	}
	if ended {
		s.o.Log.Info("compilers are known", "toolchains", len(list), "after", time.Since(s.started).Round(time.Millisecond))
		s.tellSandbox()
	}
}

// knownTime is how long the start waits for the compilers that are known from before. Files
// may be on a network that does not answer.
const knownTime = 100 * time.Millisecond

// firstFind looks for compilers beside everything else, and returns once those are offered
// that are known from before, or after knownTime.
func (s *Server) firstFind() {
	known := make(chan struct{})
	s.serving.Go(func() {
		defer s.rescue(s.o.Log, nil)
		var once sync.Once
		ready := func() { once.Do(func() { close(known) }) }
		defer ready()
		defer s.identified()
		if err := s.find(s.ctx, ready); err != nil && s.ctx.Err() == nil {
			s.o.Log.Error("look for compilers", "err", err)
		}
	})
	t := time.NewTimer(knownTime)
	defer t.Stop()
	select {
	case <-known:
	case <-t.C:
	}
}

// identified ends identifying where that has failed: clients need not wait for more.
func (s *Server) identified() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.identifying {
		return
	}
	s.identifying = false
	for c := range s.conns {
		c.listToolchainsLocked()
	}
}

// Look looks for compilers anew, beside everything else.
func (s *Server) Look() { s.serving.Go(s.rescan) }

// benchTime is how long a toolchain that cannot be started is not offered.
const benchTime = 30 * time.Second

// withdrawLocked takes a toolchain from the list; a scan after benchTime may bring it
// back.
func (s *Server) withdrawLocked(id job.ToolchainID) {
	until := time.Now().Add(benchTime)
	s.benched[id] = until
	if s.nextScan.After(until) {
		s.nextScan = until
	}
	list := slices.DeleteFunc(slices.Clone(*s.listed.Load()), func(t toolchain.Toolchain) bool { return t.ID == id })
	s.listed.Store(&list)
	s.o.Log.Warn("toolchain withdrawn: it cannot be started", "id", fmt.Sprintf("%x", id))
	for c := range s.conns {
		c.listToolchainsLocked()
	}
}

// rescanSoon makes the next tick look for compilers.
func (s *Server) rescanSoon() {
	s.mu.Lock()
	s.nextScan = time.Time{}
	s.mu.Unlock()
}

// Toolchains are those that the server offers.
func (s *Server) Toolchains() []toolchain.Toolchain { return *s.listed.Load() }

// Identifying reports whether compilers are still being identified since the start.
func (s *Server) Identifying() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.identifying
}

// names are what people call the compilers of a list, each family and version once.
func names(list []toolchain.Toolchain) (out []string) {
	for i := range list {
		if name := job.Clip(list[i].Name(), job.MaxVersion); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out[:min(len(out), job.MaxNames)]
}

// rescanTime is how often compilers are looked for. With nothing changed that is
// a directory and some stats.
const rescanTime = time.Minute

// retryTime is when a compiler is looked at again that told nothing, or nothing
// sensible, the first time: on a machine that has just started it may only be late.
const retryTime = 5 * time.Second

// toolchain finds what an ID stands for.
func (s *Server) toolchain(id job.ToolchainID) (*toolchain.Toolchain, error) {
	list := *s.listed.Load()
	for i := range list {
		if list[i].ID == id {
			return &list[i], nil
		}
	}
	if s.Identifying() {
		return nil, job.Refuse(job.CauseToolchain, "the host has just started: it has not found this compiler yet")
	}
	return nil, job.Refuse(job.CauseToolchain, "no such compiler on the host")
}

// verify refuses a toolchain whose files are not those that gave its ID any more.
// When they were touched they are read again, which takes a second, or several on
// a busy machine: this is for runners, not for a connection's goroutine.
func (s *Server) verify(ctx context.Context, t *toolchain.Toolchain) error {
	now, err := s.tools.Identify(ctx, t.Exec)
	if err != nil || now.ID != t.ID {
		s.rescanSoon()
		return job.Refuse(job.CauseToolchain, "%s has changed on the host", t.Exec)
	}
	return nil
}
