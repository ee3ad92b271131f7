package attempt

import (
	"context"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Run sends the task to the host and receives the result. When it returns, the host can access neither source
// nor sink any more, and the scheduler knows the outcome.
func (a *Attempt) Run() {
	a.Out = a.fly()
	a.cancel(nil)
	a.ended()
}

// ended tells the farm, and the history, the outcome of the attempt.
func (a *Attempt) ended() {
	e := farm.End{Outcome: a.Out.Blame, Report: a.report()}
	if a.Ahead && e.Outcome != scheduler.Gone && e.Outcome != scheduler.Fault {
		a.Farm.Ended(a.grant, farm.End{Outcome: scheduler.Unused, Report: scheduler.Report{ID: a.grant.Req.ID}})
		return
	}
	switch e.Outcome {
	case scheduler.OK:
		e.Result = resultBytes(a.Out.Result)
	case scheduler.Unused:
	default:
		if a.Out.Local != nil && (e.Outcome == scheduler.Refused || e.Outcome == scheduler.Full) {
			e.Refusal = strings.TrimPrefix(a.Out.Local.Detail, a.Host.Addr+" ")
		}
		a.Metrics.Failed(a.Host.Addr)
	}
	speed := a.Farm.Ended(a.grant, e)
	if r := a.Out.Result; r != nil && r.Exit == 0 && r.CPU != 0 {
		a.Learn(a.Task, r, speed)
	}
}

// report returns what the scheduler learns of it.
func (a *Attempt) report() scheduler.Report {
	x := scheduler.Report{ID: a.grant.Req.ID, Source: a.Name}
	if r := a.Out.Result; r != nil {
		x.Failed = r.Exit != 0
		x.Wall, x.CPU = time.Duration(r.Wall)*time.Microsecond, time.Duration(r.CPU)*time.Microsecond
		x.RSS, x.Bytes, x.Result = r.MaxRSS, a.fl.Total, resultBytes(r)
	}
	return x
}

// fly starts the job's flight and waits until it has landed.
func (a *Attempt) fly() Outcome {
	l, fl := a.link, a.fl
	ctx, cancel := context.WithTimeoutCause(a.ctx, a.Limit, errTimeout)
	defer cancel()
	window := min(uint64(a.Memory.Sizes.Sink), l.Welcome().MaxResult)
	slot := min(fl.Credit.Slot.Len, l.Welcome().MaxBody)
	most := max(slot, l.MaxSource(), uint64(l.Welcome().Eager))
	if a.Known == nil && fl.Total > most || window == 0 {
		return a.tooBig(most)
	}
	load, err := a.load(ctx)
	if err != nil {
		return a.notLoaded(ctx, err)
	}
	defer load.drop()
	if fl.Total = uint64(len(load.plain)); fl.Total > most {
		return a.tooBig(most)
	}
	a.sent, fl.Posted = load.files, load.contents.Posted
	a.Carrier = a.choose(uint64(len(load.mem)), slot)
	source, err := a.show(load, a.Carrier)
	if err != nil {
		return a.notRegistered(err)
	}
	defer a.hide()
	fl.Sink, err = a.Memory.Register(a.Sink.Bytes()[:window], iwarp.LocalWrite|iwarp.RemoteWrite, l.QP())
	if err != nil {
		return a.notRegistered(err)
	}
	// By then the Result has invalidated the sink, or the QP is gone.
	defer a.Memory.Dereg(fl.Sink)
	a.Metrics.Carrier(a.Carrier.String())
	if l.CanFetch() && a.Memory.Sizes.Result > a.Memory.Sizes.Sink {
		fl.Fetch = uint64(a.Memory.Sizes.Result)
	}

	m := &job.Job{
		ID: fl.ID, Credit: fl.Credit.ID, Toolchain: a.Farm.Called(l, a.Toolchain),
		BodyLen: load.bodyLen, TextOff: load.textOff, TextLen: uint64(len(load.plain)) - uint64(load.textOff),
		Sink:    job.Window{STag: uint32(fl.Sink.STag()), TO: fl.Sink.Base(), Len: window},
		Source:  source,
		Fetch:   fl.Fetch,
		Timeout: milliseconds(max(a.Limit, time.Millisecond)),
		Memory:  a.Cost.Memory,
		Expect:  milliseconds(a.Cost.Time),
		Digest:  load.sum, Packed: load.packed, Zstd: load.zstd,
		Store: load.contents != nil, Key: a.Result, Join: a.Join && !a.Alone, Base: a.Below, Moved: a.Moved,
	}
	if err := a.pack(m, load, a.Carrier); err != nil {
		return a.notRegistered(err)
	}
	l.Start(fl)
	if fl.Length > 0 {
		a.Farm.OnTheWay(a.grant)
	}
	select {
	case <-fl.Done():
	case <-ctx.Done():
		l.Cancel(fl)
		<-fl.Done() // at the latest when the link is given up, CancelTimeout from now
	}
	load.contents.End(fl.Result != nil && fl.Result.Status == job.StatusRan)
	out := a.judge(ctx, window, load.zstd)
	mem := a.Sink.Bytes()
	if out.Lacks {
		out.lacked = lackedOf(fl.Result, mem[:window])
	}
	if fl.Result != nil && fl.Result.Window.STag != 0 {
		// The host still has the result. If nothing waits for it any more, it is only released.
		fctx := ctx
		if out.Result == nil {
			canceled, cancel := context.WithCancelCause(ctx)
			cancel(link.ErrCancelled)
			fctx = canceled
		}
		if mem, err = a.fetch(fctx); err != nil && out.Result != nil {
			return a.notFetched(ctx, err)
		}
	}
	if out.Result != nil {
		if mem, err = a.unload(ctx, out.Result, mem); err != nil {
			return a.notFetched(ctx, err)
		}
		if no := a.distrust(out.Result, mem); no != nil {
			return *no
		}
		a.holds(out.Result, mem)
	}
	return out
}
