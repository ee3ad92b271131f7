package attempt

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/trust"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// judge returns the outcome of a flight that has ended. zstd is set if its result may be packed.
func (a *Attempt) judge(ctx context.Context, window uint64, zstd bool) Outcome {
	l, fl, h := a.link, a.fl, a.Host.Addr
	if ctx.Err() != nil && (fl.Result == nil || fl.Result.Status != job.StatusRan) {
		if errors.Is(context.Cause(ctx), errTimeout) {
			return Outcome{Blame: scheduler.Killed, Final: true, Local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: h,
				Detail: h + " took longer than the time limit"}}
		}
		return Outcome{Final: true, Local: Interrupted}
	}
	if fl.Err != nil {
		return Outcome{Blame: scheduler.Gone, Local: lostHost(h, fl.Err.Error())}
	}
	r := fl.Result
	switch r.Status {
	case job.StatusRefused:
		if r.Cause == job.CauseFull && a.Known != nil && len(a.Known.Images) == 0 {
			// Its store may be what is full, so bring all files. What an image is made of can only be there.
			a.whole.Store(true)
		}
		return refusal(h, r)
	case job.StatusFailed:
		if r.Cause == job.CauseDigest {
			a.Metrics.Damaged("source")
		}
		return failure(h, r)
	}
	if r.Window.STag != 0 {
		window = r.Window.Len
	}
	err := trust.Packed(r, window, zstd)
	if r.Packed != 0 {
		window = uint64(max(a.Memory.Sizes.Sink, a.Memory.Sizes.Result))
	}
	if err == nil {
		err = trust.Result(r, a.Body, window)
	}
	if err != nil {
		// Nothing else that it says can be trusted either.
		l.Fail(err)
		return Outcome{Blame: scheduler.Fault, Local: lostHost(h, err.Error())}
	}
	if r.Signal != 0 {
		return Outcome{Blame: scheduler.Killed, Died: true, Local: lostHost(h, fmt.Sprintf("its compiler was killed by signal %d", r.Signal))}
	}
	return Outcome{Result: r, Blame: scheduler.OK}
}

// distrust checks the contents of a successful result against what the local compiler could have made; so far
// only its numbers have been checked. mem has the unpacked result. It returns nil, or an Outcome if the
// result is not accepted.
func (a *Attempt) distrust(r *job.Result, mem []byte) *Outcome {
	what, err := trust.Contents(r, mem, a.Body, a.Modules, a.Object)
	if err == nil && a.Known != nil {
		what, err = "compiled module", a.Known.CheckModule(r, mem)
	}
	if err == nil {
		return nil
	}
	l, h := a.link, a.Host.Addr
	if errors.Is(err, trust.ErrInode) {
		return &Outcome{Final: true, Blame: scheduler.Unused, Local: &ipc.GoLocal{Reason: reason.NotReproducible + "inode", Host: h,
			Detail: "the " + what + " of " + h + " has " + err.Error()}}
	}
	if !errors.Is(err, outputs.ErrForged) {
		a.Log.Info("a result is not taken: compiled here to be sure", "job", a.ID, "source", a.Name, "host", h, "what", "its "+what, "err", err)
		a.Metrics.Distrusted("doubt")
		return &Outcome{Final: true, Blame: scheduler.Unused, Local: &ipc.GoLocal{Reason: reason.Doubt + strings.ReplaceAll(what, " ", "-"), Host: h,
			Detail: "the " + what + " of " + h + " has " + err.Error()}}
	}
	a.Metrics.Distrusted("forged")
	err = errors.New("its " + what + " is " + err.Error())
	l.Fail(err)
	return &Outcome{Blame: scheduler.Fault, Local: lostHost(h, err.Error())}
}
