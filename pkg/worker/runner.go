package worker

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

func newRunner(s *Server, i int) (*runner, error) {
	p, err := s.places.NewPlace(filepath.Join(s.area.Path, fmt.Sprintf("job%d", i)))
	if err != nil {
		return nil, err
	}
	p.Confine, p.Cgroup = s.o.Sandbox != SandboxOff, s.o.Cgroup
	if s.ownUsers {
		p.User = s.users.First + i
	}
	return &runner{s: s, i: i, place: p}, nil
}

func (r *runner) close() {
	if err := r.place.Close(); err != nil {
		r.s.o.Log.Error("end private tree", "err", err)
	}
}

// loop takes tasks until the server closes.
func (r *runner) loop() {
	defer r.close()
	if r.s.places.Trees && r.s.o.Cluster == nil { // now, so that the first job need not wait for it
		if err := r.prepare(r.s.ctx); err != nil && r.s.ctx.Err() == nil {
			r.s.o.Log.Error("private tree", "err", err)
		}
	}
	for {
		switch what, t := r.s.take(r); what {
		case turnEnd:
			return
		case turnTask:
			r.do(t)
		case turnCanary:
			r.canaryNow()
		case turnForget:
			r.forget()
		}
	}
}

// do runs a task, answers it and logs it.
func (r *runner) do(t *task) {
	defer t.c.work.Done()
	defer r.clean()
	defer r.s.rescue(t.c.log, t.c.qp.Abort) // so that the client does not wait for an answer that never comes
	if t.marked != 0 {
		t.c.shelf.Runs(t.marked)
	}
	res, n := r.run(t)
	res.Queue, res.Wall = run.Micros(t.started.Sub(t.queued)), run.Micros(time.Since(t.started))
	r.s.ran(t, res)
	t.shelve(res, n)
	t.share(res, n)
	t.answer(res, n)
	t.log(res, n)
}

// run does a task. It returns what run.Place.Do returns, also if the task met a bug of ours.
func (r *runner) run(t *task) (res *job.Result, n int) {
	defer r.s.rescue(t.c.log, func() {
		t.job.Process.Stop(job.CauseInternal)
		if err := r.place.Abandon(); err != nil {
			r.s.o.Log.Error("end private tree", "err", err)
		}
		res, n = run.Failed(errPanic), 0
	})
	if t.no != nil {
		return run.Refused(t.no), 0
	}
	if err := t.lodge(); err != nil {
		return run.Refused(err), 0
	}
	j := &t.job
	j.Enter = func() error { return r.prepare(r.s.ctx) }
	j.Made = t.made
	if j.Toolchain.Root != "" {
		shown, done, err := r.s.useReceived(t.c, j.Toolchain)
		var no *job.Refusal
		switch {
		case errors.As(err, &no):
			return run.Refused(no), 0
		case err != nil:
			r.s.noted(t, err)
			return run.Failed(err), 0
		}
		defer done()
		j.Enter = func() error { return r.prepareReceived(r.s.ctx, shown) }
	}
	if t.c.via != "" && j.Toolchain.Root == "" {
		j.Enter = func() error { return r.prepareOnBehalf(r.s.ctx, t) }
	}
	j.Trouble = func(err error) { r.s.noted(t, err) }
	j.Limit = r.s.settings.Load().JobTimeout
	if t.m.Timeout != 0 {
		j.Limit = min(j.Limit, time.Duration(t.m.Timeout)*time.Millisecond)
	}
	return r.place.Do(j)
}

// ran learns from a job that has left its core.
func (s *Server) ran(t *task, res *job.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.lend.Ended(&t.lent, t.no != nil, now)
	s.lend.Learn(&t.lent, now.Sub(t.started), res.MaxRSS)
	if res.Status == job.StatusRan && res.Exit == 0 && res.Signal == 0 {
		s.timedLocked(t.m.Toolchain, t.size(), time.Duration(res.CPU)*time.Microsecond)
	}
}

// forget drops what the place's tree keeps.
func (r *runner) forget() {
	if err := r.place.Forget(); err != nil {
		r.s.o.Log.Error("drop kept files", "err", err)
		if err := r.place.Abandon(); err != nil {
			r.s.o.Log.Error("end private tree", "err", err)
		}
	}
}

func (r *runner) clean() {
	if err := r.place.Clean(); err != nil {
		r.s.o.Log.Error("clean up after a job", "err", err)
	}
}

// canaryNow runs a canary on an idle runner. take has counted it in confinement.testing.
func (r *runner) canaryNow() {
	defer func() {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.cage.testing--
		r.s.wake.Broadcast() // another runner may begin its own
	}()
	defer r.s.rescue(r.s.o.Log, func() {
		if err := r.place.Abandon(); err != nil {
			r.s.o.Log.Error("end private tree", "err", err)
		}
	})
	if err := r.test(r.s.ctx, r.s.shown.Load()); err != nil && r.s.ctx.Err() == nil {
		r.s.o.Log.Debug("canary", "runner", r.i, "err", err)
	}
}
