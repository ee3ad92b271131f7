package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
)

// Rescan looks for compilers anew. If there are others than before, the clients
// are told. It happens by itself every rescanTime, and soon after a job found its
// compiler changed.
func (s *Server) Rescan(ctx context.Context) error {
	s.scan.Lock()
	defer s.scan.Unlock()
	skipped := make(map[string]string)
	news := false
	list, err := s.tools.Discover(ctx, s.settings.Load().Dirs, func(path string, err error) {
		skipped[path] = err.Error()
		if s.skipped[path] != err.Error() {
			news = true
			s.o.Log.Warn("compiler not offered", "path", path, "err", err)
		}
	})
	if err != nil {
		return err
	}
	s.skipped = skipped
	// Clients hold at most a 16-bit number of them.
	list = list[:min(len(list), 1<<16-1)]
	s.mu.Lock()
	if again := time.Now().Add(retryTime); news && s.nextScan.After(again) {
		s.nextScan = again
	}
	list = slices.DeleteFunc(list, func(t toolchain.Toolchain) bool { return time.Now().Before(s.benched[t.ID]) })
	before := s.listed.Swap(&list)
	s.mu.Unlock()
	if before != nil && slices.EqualFunc(*before, list, toolchain.Toolchain.Equal) {
		return nil
	}
	s.show(list)
	for i := range list {
		t := &list[i]
		s.o.Log.Info("toolchain", "id", fmt.Sprintf("%x", t.ID), "path", t.Exec, "family", t.Family, "version", t.Version, "target", t.Target)
	}
	if len(list) == 0 {
		s.o.Log.Warn("no compiler found: every job will be refused", "dirs", s.settings.Load().Dirs)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = make(map[job.ToolchainID]time.Time)
	for c := range s.conns {
		c.listToolchainsLocked()
	}
	return nil
}

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

// toolchainTrust is how long a look at a toolchain's files holds. A compile under
// way may see them change as well, and one look takes some 20 system calls.
const toolchainTrust = 100 * time.Millisecond

// rescanTime is how often compilers are looked for. With nothing changed that is
// a directory and some stats.
const rescanTime = time.Minute

// retryTime is when a compiler is looked at again that told nothing, or nothing
// sensible, the first time: on a machine that has just started it may only be late.
const retryTime = 5 * time.Second

// toolchain finds what an ID stands for.
func (s *Server) toolchain(id job.ToolchainID) (toolchain.Toolchain, error) {
	for _, t := range *s.listed.Load() {
		if t.ID == id {
			return t, nil
		}
	}
	return toolchain.Toolchain{}, refuse(job.CauseToolchain, "no such compiler on the host")
}

// verify refuses a toolchain whose files are not those that gave its ID any more.
// When they were touched they are read again, which takes a second, or several on
// a busy machine: this is for runners, not for a connection's goroutine.
func (s *Server) verify(ctx context.Context, t *toolchain.Toolchain) error {
	s.mu.Lock()
	trusted := time.Since(s.looked[t.ID]) < toolchainTrust
	s.mu.Unlock()
	if trusted {
		return nil
	}
	now, err := s.tools.Identify(ctx, t.Exec)
	if err != nil || now.ID != t.ID {
		s.rescanSoon()
		return refuse(job.CauseToolchain, "%s has changed on the host", t.Exec)
	}
	s.mu.Lock()
	s.looked[t.ID] = time.Now()
	s.mu.Unlock()
	return nil
}
