package attempt

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Outcome is what one attempt on one host has come to.
type Outcome struct {
	Result *job.Result       // the compiler ran, and its result is accepted
	Local  *ipc.GoLocal      // otherwise: the answer for the wrapper if no other host helps
	Blame  scheduler.Outcome // what the scheduler is told
	Final  bool              // no other host would do better
	Died   bool              // the compiler was killed, or did not have enough memory
	Lacks  bool              // the host lacks a content that it was believed to hold
	lacked []unit.ContentID  // the missing contents; nil: the host does not say
}

// Interrupted is the answer for a wrapper that is gone.
var Interrupted = &ipc.GoLocal{Reason: reason.Manager, Detail: "Interrupted"}

// NoSlot returns the answer if there is no memory for a job.
func NoSlot(err error) *ipc.GoLocal {
	return &ipc.GoLocal{Reason: reason.NoSlot, Trouble: true, Code: reason.ExitGeneral, Detail: "no shared memory for the source: " + err.Error()}
}

func lostHost(h, why string) *ipc.GoLocal {
	return &ipc.GoLocal{Reason: reason.HostLost, Trouble: true, Code: reason.ExitConnect, Host: h, Detail: h + " lost (" + why + ")"}
}

// refusal is the outcome where a host does not want this job: another one may.
func refusal(h string, r *job.Result) Outcome {
	no := &ipc.GoLocal{Reason: reason.Policy, Trouble: true, Host: h, Code: reason.ExitDenied, Detail: refusalDetail(h, r)}
	blame := scheduler.Refused
	switch r.Cause {
	case job.CauseToolchain:
		no.Reason, no.Trouble, no.Code = reason.Toolchain, false, reason.ExitNoCompiler
	case job.CauseFull:
		no.Reason, no.Code = reason.Full, reason.ExitConnect
		blame = scheduler.Full
	case job.CauseMemory:
		no.Reason, no.Code = reason.Memory, reason.ExitConnect
	case job.CauseSandbox:
		no.Reason, no.Code = reason.Sandbox, reason.ExitConnect
	case job.CauseDraining:
		no.Reason, no.Code = reason.Draining, reason.ExitConnect
	case job.CauseTooBig:
		no.Reason, no.Trouble = reason.TooBig, false
	case job.CauseDenied:
		no.Reason = reason.Denied
	case job.CauseLacks:
		return Outcome{Blame: scheduler.Unused, Lacks: true, Local: no}
	case job.CauseTree:
		no.Reason, no.Trouble = reason.Paths, false
	}
	return Outcome{Blame: blame, Local: no}
}

func refusalDetail(h string, r *job.Result) string {
	s := h + " refused the job (" + r.Cause.String() + ")"
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// failure is the outcome of a job that a host began and could not finish.
func failure(h string, r *job.Result) Outcome {
	why := r.Cause.String()
	if r.Detail != "" {
		why += ": " + r.Detail
	}
	switch r.Cause {
	case job.CauseTooBig:
		return Outcome{Final: true, Local: &ipc.GoLocal{Reason: reason.TooBig, Host: h, Detail: "the result does not fit its buffer on the way from " + h}}
	case job.CauseUndeclared:
		// No fault of the host's but a gap in the option table: any host would find the same.
		return Outcome{Final: true, Local: &ipc.GoLocal{Reason: "not-reproducible:outputs", Host: h, Detail: "the compiler on " + h + " made a file that was not foreseen: " + r.Detail}}
	case job.CauseTimeout:
		return Outcome{Blame: scheduler.Killed, Final: true, Local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
			Detail: h + " ended the compile at its time limit"}}
	case job.CauseMemory:
		return Outcome{Blame: scheduler.Killed, Died: true, Local: lostHost(h, "its compiler had not enough memory")}
	case job.CauseLimit: // most likely because of the source
		return Outcome{Blame: scheduler.Killed, Died: true, Local: lostHost(h, "it ended the compiler: "+cmp.Or(r.Detail, "a limit"))}
	}
	return Outcome{Blame: scheduler.Fault, Local: &ipc.GoLocal{Reason: reason.HostLost, Trouble: true, Code: reason.ExitConnect, Host: h,
		Detail: h + " could not finish the job (" + why + ")"}}
}

// tooBig returns the outcome if the source is larger than most, the largest that the host takes.
func (a *Attempt) tooBig(most uint64) Outcome {
	a.Farm.Unspent(a.grant)
	return Outcome{Blame: scheduler.Unused, Local: &ipc.GoLocal{Reason: reason.TooBig, Host: a.Host.Addr,
		Detail: fmt.Sprintf("the source takes %d bytes, %s takes %d", a.fl.Total, a.Host.Addr, most)}}
}

// notLoaded returns the outcome if the source could not be prepared.
func (a *Attempt) notLoaded(ctx context.Context, err error) Outcome {
	a.Farm.Unspent(a.grant)
	select {
	case <-a.link.Dead():
		return Outcome{Blame: scheduler.Gone, Local: lostHost(a.Host.Addr, a.link.Err().Error())}
	default:
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
		return Outcome{Blame: scheduler.Unused, Final: true, Local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: a.Host.Addr,
			Detail: "the time limit passed before the job was sent to " + a.Host.Addr}}
	case ctx.Err() != nil:
		return Outcome{Blame: scheduler.Unused, Final: true, Local: Interrupted}
	case errors.Is(err, errTooBig):
		return Outcome{Blame: scheduler.Unused, Final: true, Local: &ipc.GoLocal{Reason: reason.TooBig, Detail: err.Error()}}
	}
	if errors.Is(err, errNoImages) {
		return Outcome{Blame: scheduler.Refused, Local: &ipc.GoLocal{Reason: known.Image, Host: a.Host.Addr, Detail: a.Host.Addr + ": " + err.Error()}}
	}
	return Outcome{Blame: scheduler.Unused, Final: true, Local: &ipc.GoLocal{Reason: known.Changed}}
}

// notRegistered returns the outcome if memory could not be registered. The credit was not spent.
func (a *Attempt) notRegistered(err error) Outcome {
	l := a.link
	a.Farm.Unspent(a.grant)
	select {
	case <-l.Dead(): // a QP that is gone takes no registration
		return Outcome{Blame: scheduler.Gone, Local: lostHost(a.Host.Addr, l.Err().Error())}
	default:
		return Outcome{Final: true, Local: NoSlot(err)}
	}
}

// notFetched is the end of an attempt whose result the host has, and which did not come over.
func (a *Attempt) notFetched(ctx context.Context, err error) Outcome {
	h := a.Host.Addr
	switch {
	case errors.Is(err, errTimeout):
		return Outcome{Blame: scheduler.Killed, Final: true, Local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
			Detail: h + " took longer than the time limit"}}
	case ctx.Err() != nil:
		return Outcome{Final: true, Local: Interrupted}
	case errors.Is(err, errDigest):
		a.Metrics.Damaged("result")
		return Outcome{Blame: scheduler.Fault, Local: lostHost(h, err.Error())}
	case errors.Is(err, errNoRoom):
		return Outcome{Final: true, Local: &ipc.GoLocal{Reason: reason.TooBig, Host: h, Detail: "the result of " + h + ": " + err.Error()}}
	}
	return Outcome{Blame: scheduler.Gone, Local: lostHost(h, err.Error())}
}

// errTooBig: the job is larger than any that may be sent.
var errTooBig = errors.New("the source and what it reads are too big")

// errNoImages: the host cannot be told what a precompiled header is made of.
var errNoImages = errors.New("it keeps too little to make a precompiled header")

// errDigest: the result received is not the one that the host made.
var errDigest = errors.New("the result is not the one that it sent: its digest differs")

// errNoRoom: there is no local memory to fetch a result into.
var errNoRoom = errors.New("no memory for a large result (buffers.large)")
