// Package attempt is a job on its way to one host and back: what it takes with it, how it is
// registered, written or offered, what the answer means and whether it is believed.
//
//	task attempt outcome       the job, one attempt at it, and what that can come to
//	cargo                      the source as it travels: packed, or made for what the host holds
//	result lacks               the result as it comes back; what the host says that it lacks
//	judge                      what an answer means
//	run answer                 the way there and back, and the words for the wrapper
//
// It does not know who asked for the job, which host is next, or how many attempts there are:
// its caller has a farm.Grant for each, runs it and takes the Outcome.
package attempt

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// errTimeout is why an attempt ends that takes too long.
var errTimeout = errors.New("time limit")

// Attempt is a task on its way to one host and back, with a registration of the
// source and a sink of its own: hosts that race for a task must not write into the
// same memory. One goroutine runs it.
type Attempt struct {
	*Task
	Host *farm.Host  // that it goes to
	Sink *slots.Hold // for its result
	Out  Outcome     // set once Run has returned

	Hedge bool // it is the second of two at the same time; the caller's

	grant    farm.Grant // that it uses
	link     *link.Link // to Host
	fl       *link.Flight
	asked    time.Time // when its credit was asked for
	fetched  time.Time // its result, if that was offered
	sent     uint32    // files whose contents it brought
	abridged bool      // it went with a list that its host is to make whole
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

// New makes ready to bring t to the host of g, with sink for its result. ctx
// ends it early. It holds both memories until Release.
func New(ctx context.Context, t *Task, g farm.Grant, sink *slots.Hold, asked time.Time) *Attempt {
	a := &Attempt{Task: t, grant: g, Host: g.Host, link: g.Link(), Sink: sink, asked: asked}
	a.fl = &link.Flight{ID: t.NextID(), Credit: g.Credit, Total: t.Total(), Build: g.Req.Job.Build}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	if t.Source != nil {
		t.Source.Share()
	}
	return a
}

// Cancel ends the attempt early; Run is still to be waited for.
func (a *Attempt) Cancel() { a.cancel(link.ErrCancelled) }

// Release ends the attempt's part in the memory; after that there is no result.
func (a *Attempt) Release() {
	if a.Source != nil {
		a.Source.Drop()
	}
	a.Sink.Drop()
}

// Compiled reports whether the host has compiled it, though the result does not stand.
func (a *Attempt) Compiled() bool {
	r := a.fl.Result
	return r != nil && (r.Status == job.StatusRan && r.Signal == 0 ||
		r.Status == job.StatusFailed && (r.Cause == job.CauseTooBig || r.Cause == job.CauseUndeclared))
}

// InSink reports whether all of the result lies in the memory that a sink always has.
func (a *Attempt) InSink() bool {
	return a.Out.Result.Window.STag == 0 && trust.Result(a.Out.Result, a.Body, uint64(len(a.Sink.Bytes()))) == nil
}

// Differs says what of the results of a and b differs, or is empty.
func (a *Attempt) Differs(b *Attempt) string {
	return trust.Differ(a.Body, a.Out.Result, a.Sink.Bytes(), b.Out.Result, b.Sink.Bytes())
}
