package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/rdmaread"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// errCancelled is the error of a fetch that was cancelled.
var errCancelled = errors.New("cancelled")

// awaitLocked makes a task wait until its source may be fetched.
func (s *Server) awaitLocked(t *task) {
	t.newTurn()
	s.lend.Await(t.c.lent, &t.lent)
	s.fetchLocked()
	s.publishLocked()
}

// errSlowFetch ends a fetch that takes longer than the job may.
var errSlowFetch = errors.New("its source could not be fetched in the time of a compile")

// fetchLocked begins to fetch the sources whose turn it is.
func (s *Server) fetchLocked() {
	for j := s.lend.Fetch(); j != nil; j = s.lend.Fetch() {
		t := j.Owner.(*task)
		limit := s.settings.Load().JobTimeout
		if t.m.Timeout != 0 {
			limit = min(limit, time.Duration(t.m.Timeout)*time.Millisecond)
		}
		ctx, cancel := context.WithTimeoutCause(s.ctx, limit, errSlowFetch)
		t.abort = cancel
		go t.bring(ctx) // waited for by conn.work
	}
}

// missedLocked makes room for another fetch if t's source does not come, or came for nothing.
func (s *Server) missedLocked(t *task) {
	if t.pulled {
		s.lend.Missed(&t.lent)
		s.fetchLocked()
	}
}

// lodge gives a task memory for its source and its result if its credit brought none that only it can reach.
func (t *task) lodge() error {
	if t.job.Source.Slot != nil {
		return nil
	}
	s := t.c.s
	pool := s.slots
	if t.k.buf != nil {
		pool = s.copies // its slot stays open
	}
	buf, err := pool.TryGet(uint32(t.c.id))
	if err != nil {
		return fmt.Errorf("memory for a job: %w", err)
	}
	if buf == nil {
		return job.Refuse(job.CauseFull, "no memory for another job now (buffers.slot)")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t.k.own, t.job.Source.Slot = buf, buf.Bytes()[:s.slots.Size()]
	return nil
}

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
	n := 0
	if r == nil {
		r, n = t.joined(ctx)
	}
	if queued = r == nil && t.here(ctx); queued {
		return
	}
	switch {
	case errors.Is(context.Cause(ctx), errSlowFetch):
		r, n = run.Failed(job.Refuse(job.CauseTimeout, "%v", errSlowFetch)), 0
	case r == nil || ctx.Err() != nil:
		r, n = &job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}, 0
	}
	if r.Cause == job.CauseLacks {
		n = t.tellLacking(r)
	}
	t.answer(r, n)
	if r.Joined {
		t.log(r, n)
	}
}

// fetch fetches the source if it is in a window. It returns an answer if the job ends here, nil otherwise.
func (t *task) fetch(ctx context.Context) *job.Result {
	if t.m.Source.STag == 0 {
		return nil
	}
	err := t.pull(ctx)
	if err == nil {
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

// pull reads the window, into memory like a slot if it was the task's turn, otherwise into large memory.
func (t *task) pull(ctx context.Context) error {
	if t.pulled {
		if err := t.lodge(); err != nil {
			return err
		}
		return t.readInto(ctx, t.job.Source.Slot[:t.m.Source.Len])
	}
	src, err := t.c.s.large.Get(ctx, t.c.allowance, int64(t.m.Source.Len))
	if err != nil {
		return err
	}
	if err := t.readInto(ctx, src.Mem); err != nil {
		src.Free()
		return err
	}
	t.job.Source.Fetched(src)
	t.c.s.o.Metrics.window("source")
	return nil
}

// readInto reads the window into mem. When it returns, no Read of the window is under way any more, and the
// client can change nothing in mem: the answer that follows ends the window.
func (t *task) readInto(ctx context.Context, mem []byte) error {
	c, s := t.c, t.c.s
	w := t.m.Source
	if !s.o.Device.Attr().ReadRight {
		clear(mem) // on this device the peer can read it
	}
	mr, err := c.pd.RegMR(mem, iwarp.LocalWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		return fmt.Errorf("register memory for a source: %w", err)
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
	return errors.Join(err, mr.Dereg())
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
