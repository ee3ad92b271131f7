package worker

import (
	"context"
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/offered"
)

// openCompilers makes the list of compilers and the learner of their headers. It does not look for compilers
// yet.
func (s *Server) openCompilers() {
	rescue := func() { s.rescue(s.o.Log, nil) }
	s.compilers = offered.New(offered.Options{
		Log: s.o.Log, File: s.o.Compilers, Answer: s.o.Answer, Dirs: func() []string { return s.settings.Load().Dirs },
		Show: s.show, Changed: s.compilersChanged, Rescue: rescue, Sent: s.o.Accept != AcceptNone && s.o.Received.Quota > 0,
	})
	s.learner = files.NewLearner(files.Learner{
		Machine: &s.machine, Log: s.o.Log, Busy: s.busy, Compilers: s.compilers.List, Ask: s.compilers.Ask, Rescue: rescue,
	})
}

// compilersChanged tells clients about the new list, and makes runners pass a canary with what their trees
// show now.
func (s *Server) compilersChanged(other, ended bool) {
	s.mu.Lock()
	if other {
		s.cage.shownAt = time.Now()
	}
	for c := range s.conns {
		c.listToolchainsLocked()
	}
	s.wake.Broadcast()
	s.mu.Unlock()
	if other {
		s.learner.Soon()
	}
	if ended {
		s.tellSandbox()
	}
}

// Rescan looks for compilers again, and returns when all have been asked. It tells the clients if the list
// has changed. The server does this by itself at the start, every minute, and soon after a job has found its
// compiler changed.
func (s *Server) Rescan(ctx context.Context) error { return s.compilers.Rescan(ctx) }

// Look looks for compilers again, in the background.
func (s *Server) Look() { s.serving.Go(s.rescan) }

func (s *Server) rescan() {
	defer s.rescue(s.o.Log, nil)
	if err := s.Rescan(s.ctx); err != nil && s.ctx.Err() == nil {
		s.o.Log.Error("look for compilers", "err", err)
	}
}
