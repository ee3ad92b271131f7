package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/fetch"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// errCancelled ends what was asked to end.
var errCancelled = errors.New("cancelled")

// fetch gets the source of a task that the client offered in a window, and queues
// the task. It has a goroutine of its own, of which a client has as many as it
// has credits; the connection waits for it. No core stands idle meanwhile.
func (t *task) fetch(ctx context.Context) {
	c := t.c
	queued := false
	defer func() {
		if !queued {
			c.work.Done()
		}
	}()
	defer c.s.rescue(c.log, c.qp.Abort)
	src, err := t.pull(ctx)
	if queued = err == nil && t.fetched(ctx, src); queued {
		return
	}
	r := &job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}
	if err != nil && ctx.Err() == nil {
		r = failed(err)
		var no *job.Refusal
		if errors.As(err, &no) {
			r = refused(err)
		}
	}
	t.answer(r, 0)
}

// fetched queues a task whose source is here, unless nobody wants it any more.
func (t *task) fetched(ctx context.Context, src *large) bool {
	s := t.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	t.src = src
	if t.c.ended || ctx.Err() != nil {
		return false
	}
	s.enqueueLocked(t)
	return true
}

// pull reads the window into memory of ours. When it returns no Read of it is
// under way any more: the answer that follows ends the window.
func (t *task) pull(ctx context.Context) (pulled *large, err error) {
	c, s := t.c, t.c.s
	w := t.m.Source
	src, err := s.large.get(ctx, c.tenant, int64(w.Len))
	if err != nil {
		return nil, err
	}
	defer func() {
		if pulled == nil {
			src.free()
		}
	}()
	mr, err := c.pd.RegMR(src.mem, iwarp.LocalWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		return nil, fmt.Errorf("register memory for a source: %w", err)
	}
	done := make(chan error, 1)
	x := &fetch.Pull{Sink: mr, STag: iwarp.STag(w.STag), TO: w.TO, Len: w.Len, Done: func(err error) { done <- err }}
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

func (c *conn) startPull(x *fetch.Pull) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if err := c.puller.Start(x); err != nil {
		c.log.Debug("fetch", "err", err)
		c.qp.Abort() // which ends x
	}
}

// content is where body and text lie.
func (t *task) content() []byte {
	if t.plain != nil {
		return t.plain
	}
	if t.src != nil {
		return t.src.mem
	}
	return t.k.buf.Bytes()
}

// dropSource gives back what was fetched or unpacked.
func (t *task) dropSource() {
	t.src.free()
	t.src, t.plain = nil, nil
}
