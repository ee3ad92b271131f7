package connmgr

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// judge says what a flight that has ended means; zstd: its result may be packed.
func (a *attempt) judge(ctx context.Context, window uint64, zstd bool) outcome {
	l, fl, h := a.link, a.fl, a.at.Addr
	if ctx.Err() != nil && (fl.Result == nil || fl.Result.Status != job.StatusRan) {
		if errors.Is(context.Cause(ctx), errTimeout) {
			return outcome{blame: scheduler.Killed, final: true, local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
				Detail: h + " took longer than the time limit"}}
		}
		return outcome{final: true, local: interrupted}
	}
	if fl.Err != nil {
		return outcome{blame: scheduler.Gone, local: lostHost(h, fl.Err.Error())}
	}
	r := fl.Result
	switch r.Status {
	case job.StatusRefused:
		if r.Cause == job.CauseFull && a.known != nil {
			a.whole.Store(true) // its store may be what is full
		}
		return refusal(h, r)
	case job.StatusFailed:
		if r.Cause == job.CauseDigest {
			a.m.metrics.Damaged("source")
		}
		return failure(h, r)
	}
	if r.Window.STag != 0 {
		window = r.Window.Len
	}
	err := trust.Packed(r, window, zstd)
	if r.Packed != 0 {
		window = uint64(max(a.m.o.SinkSize, a.m.o.Result))
	}
	if err == nil {
		err = trust.Result(r, a.body, window)
	}
	if err != nil {
		// What else it says cannot be trusted either.
		l.Fail(err)
		return outcome{blame: scheduler.Fault, local: lostHost(h, err.Error())}
	}
	if r.Signal != 0 {
		return outcome{blame: scheduler.Killed, died: true, local: lostHost(h, fmt.Sprintf("its compiler was killed by signal %d", r.Signal))}
	}
	return outcome{result: r, blame: scheduler.OK}
}

func lostHost(h, why string) *ipc.GoLocal {
	return &ipc.GoLocal{Reason: reason.HostLost, Trouble: true, Code: reason.ExitConnect, Host: h, Detail: h + " lost (" + why + ")"}
}

// refusal is a host that does not want this job: another one may.
func refusal(h string, r *job.Result) outcome {
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
		return outcome{blame: scheduler.Unused, lacks: true, local: no}
	case job.CauseTree:
		no.Reason, no.Trouble = reason.Paths, false
	}
	return outcome{blame: blame, local: no}
}

func refusalDetail(h string, r *job.Result) string {
	s := h + " refused the job (" + r.Cause.String() + ")"
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	return s
}

// notFetched is a result that the host has and that did not come over.
func (a *attempt) notFetched(ctx context.Context, err error) outcome {
	h := a.at.Addr
	switch {
	case errors.Is(err, errTimeout):
		return outcome{blame: scheduler.Killed, final: true, local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
			Detail: h + " took longer than the time limit"}}
	case ctx.Err() != nil:
		return outcome{final: true, local: interrupted}
	case errors.Is(err, errDigest):
		a.m.metrics.Damaged("result")
		return outcome{blame: scheduler.Fault, local: lostHost(h, err.Error())}
	case errors.Is(err, errNoRoom):
		return outcome{final: true, local: &ipc.GoLocal{Reason: reason.TooBig, Host: h, Detail: "the result of " + h + ": " + err.Error()}}
	}
	return outcome{blame: scheduler.Gone, local: lostHost(h, err.Error())}
}

// failure is a job that a host began and could not finish.
func failure(h string, r *job.Result) outcome {
	why := r.Cause.String()
	if r.Detail != "" {
		why += ": " + r.Detail
	}
	switch r.Cause {
	case job.CauseTooBig:
		return outcome{final: true, local: &ipc.GoLocal{Reason: reason.TooBig, Host: h, Detail: "the result does not fit its buffer on the way from " + h}}
	case job.CauseUndeclared:
		// Nobody's fault: a gap in the option table. Any host would find the same.
		return outcome{final: true, local: &ipc.GoLocal{Reason: "not-reproducible:outputs", Host: h, Detail: "the compiler on " + h + " made a file that was not foreseen: " + r.Detail}}
	case job.CauseTimeout:
		return outcome{blame: scheduler.Killed, final: true, local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
			Detail: h + " ended the compile at its time limit"}}
	case job.CauseMemory:
		return outcome{blame: scheduler.Killed, died: true, local: lostHost(h, "its compiler had not enough memory")}
	case job.CauseLimit: // the source's doing, as far as anybody knows
		return outcome{blame: scheduler.Killed, died: true, local: lostHost(h, "it ended the compiler: "+cmp.Or(r.Detail, "a limit"))}
	}
	return outcome{blame: scheduler.Fault, local: &ipc.GoLocal{Reason: reason.HostLost, Trouble: true, Code: reason.ExitConnect, Host: h,
		Detail: h + " could not finish the job (" + why + ")"}}
}
