// Package attempt makes one attempt at a job on one host: it sends the source, receives the result, and
// decides what the answer means and whether to believe it.
//
//	task attempt outcome       the job, one attempt at it, and its possible outcomes
//	cargo                      the source as it is sent: packed, or only what the host lacks
//	result lacks               the result as it is received; the contents that the host says it lacks
//	judge                      what an answer means
//	run answer                 the whole attempt, and the result for the wrapper
//
// It does not know where the job came from, which host is next, or how many attempts there are. Its caller
// has a farm.Grant for each attempt, runs it and uses the Outcome.
package attempt

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
)

// errTimeout ends an attempt that takes too long.
var errTimeout = errors.New("time limit")

// Attempt is one attempt at a task on one host. It has a registration of the source and a sink of its own,
// because hosts that race for a task must not write to the same memory. One goroutine runs it.
type Attempt struct {
	*Task
	Host *farm.Host  // the host that it uses
	Sink *slots.Hold // for its result
	Out  Outcome     // set once Run has returned

	Carrier job.Carrier // how the source travels; set by Run
	Alone   bool        // the host has to compile it, whatever it has; set by the caller
	Hedge   bool        // it is the second of two at the same time; set by the caller
	Ahead   bool        // nothing waits for it, so what it takes, or a refusal, says nothing of its host; set by the caller

	grant    farm.Grant // that it uses
	link     *link.Link // to Host
	fl       *link.Flight
	message  *slots.Message // carries the source, if it travels eager
	asked    time.Time      // when its credit was asked for
	fetched  time.Time      // when its result had been fetched, if it was offered
	sent     uint32         // files whose contents it has sent
	abridged bool           // it has sent an abridged list, which the host has to complete
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// New prepares an attempt at t on the host of g, with sink for its result. ctx ends it early. It holds the
// memory of both until Release.
func New(ctx context.Context, t *Task, g farm.Grant, sink *slots.Hold, asked time.Time) *Attempt {
	a := &Attempt{Task: t, grant: g, Host: g.Host, link: g.Link(), Sink: sink, asked: asked}
	a.fl = &link.Flight{ID: t.NextID(), Credit: g.Credit, Total: t.Total(), Build: g.Req.Job.Build}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if t.Source != nil {
		t.Source.Share()
	}
	return a
}

// Cancel ends the attempt early. The caller still has to wait for Run.
func (a *Attempt) Cancel() { a.cancel(link.ErrCancelled) }

// Release releases the attempt's memory. After that, its result is no longer valid.
func (a *Attempt) Release() {
	if a.Source != nil {
		a.Source.Drop()
	}
	a.Sink.Drop()
}

// Compiled reports whether the host has compiled the task, although the result was not accepted.
func (a *Attempt) Compiled() bool {
	r := a.fl.Result
	return r != nil && (r.Status == job.StatusRan && r.Signal == 0 ||
		r.Status == job.StatusFailed && (r.Cause == job.CauseTooBig || r.Cause == job.CauseUndeclared))
}

// InSink reports whether all of the result is in the part of the sink that is not counted as large memory.
func (a *Attempt) InSink() bool {
	return a.Out.Result.Window.STag == 0 && trust.Result(a.Out.Result, a.Body, uint64(len(a.Sink.Bytes()))) == nil
}

// Differs returns what differs between the results of a and b, or "".
func (a *Attempt) Differs(b *Attempt) string {
	return trust.Differ(a.Body, a.Out.Result, a.Sink.Bytes(), b.Out.Result, b.Sink.Bytes())
}
