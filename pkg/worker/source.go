package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/large"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// errCancelled is the error of a fetch that was cancelled.
var errCancelled = errors.New("cancelled")

// bring gets what a task needs before it can be queued, and queues it: its source, if the client offered that
// in a window, and the contents that it names. It runs in a goroutine of its own, so no core is idle
// meanwhile. A client has at most as many of these goroutines as credits, and the connection waits for them.
func (t *task) bring(ctx context.Context) {
	c := t.c
	queued := false
	defer func() {
		if !queued {
			c.work.Done()
		}
	}()
	defer t.tookIn() // in any case, because later tasks wait for it
	defer c.s.rescue(c.log, c.qp.Abort)
	r := t.fetch(ctx)
	if r == nil && t.m.Store {
		r = t.takeIn(ctx)
	}
	if queued = r == nil && t.here(ctx); queued {
		return
	}
	if r == nil || ctx.Err() != nil {
		r = &job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}
	}
	n := 0
	if r.Cause == job.CauseLacks {
		n = t.tellLacking(r)
	}
	t.answer(r, n)
}

// fetch fetches the source if it is in a window. It returns an answer if the job ends here, nil otherwise.
func (t *task) fetch(ctx context.Context) *job.Result {
	if t.m.Source.STag == 0 {
		return nil
	}
	src, err := t.pull(ctx)
	if err == nil {
		t.job.Source.Fetched(src)
		return nil
	}
	var no *job.Refusal
	if errors.As(err, &no) {
		return run.Refused(err)
	}
	return run.Failed(err)
}

// here queues a task that has all that it needs. It reports false if the task was cancelled or its connection
// ended.
func (t *task) here(ctx context.Context) bool {
	s := t.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.c.state == connEnded || ctx.Err() != nil {
		return false
	}
	s.enqueueLocked(t)
	return true
}

// pull reads the window into large memory. When it returns, no Read of the window is under way any more: the
// answer that follows ends the window.
func (t *task) pull(ctx context.Context) (pulled *large.Part, err error) {
	c, s := t.c, t.c.s
	w := t.m.Source
	src, err := s.large.Get(ctx, c.allowance, int64(w.Len))
	if err != nil {
		return nil, err
	}
	defer func() {
		if pulled == nil {
			src.Free()
		}
	}()
	mr, err := c.pd.RegMR(src.Mem, iwarp.LocalWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		return nil, fmt.Errorf("register memory for a source: %w", err)
	}
	done := make(chan error, 1)
	x := &rdmaread.Pull{Sink: mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: w.Len, Done: func(err error) { done <- err }}
	c.startPull(x)
	select {
	case err = <-done:
	case <-ctx.Done():
		s.mu.Lock()
		c.puller.Stop(x)
		s.mu.Unlock()
		if err = <-done; err == nil {
			err = errCancelled
		}
	}
	err = errors.Join(err, mr.Dereg())
	if err != nil {
		return nil, err
	}
	s.o.Metrics.window("source")
	return src, nil
}

// startPull starts x, or ends the QP if that fails, which ends x.
func (c *conn) startPull(x *rdmaread.Pull) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.puller.Start(x); err != nil {
		c.log.Debug("fetch", "err", err)
		c.qp.Abort() // which ends x
	}
}
