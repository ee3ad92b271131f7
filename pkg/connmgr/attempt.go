package connmgr

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/link"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// errTimeout is why an attempt ends that takes too long.
var errTimeout = errors.New("time limit")

// attempt is a task on its way to one host and back, with a registration of the
// source and a sink of its own: hosts that race for a task must not write into the
// same memory. One goroutine runs it.
type attempt struct {
	*task
	grant   farm.Grant // that it uses
	at      *farm.Host // of grant
	link    *link.Link // to at
	fl      *link.Flight
	fetched time.Time // its result, if that was offered
	sink    *slots.Hold
	asked   time.Time // when its credit was asked for
	hedge   bool      // the second of two at the same time; the race's
	sent    uint32    // files whose contents it brought
	// abridged: with a list that its host is to make whole
	abridged bool
	ctx      context.Context
	cancel   context.CancelCauseFunc
	out      outcome // once run has ended
}

// outcome of one attempt on one host.
type outcome struct {
	result *job.Result       // the compiler ran and its word stands
	local  *ipc.GoLocal      // otherwise: what the wrapper hears if no other host helps
	blame  scheduler.Outcome // what the scheduler hears
	final  bool              // no other host would do better
	died   bool              // the compiler was killed, or had not enough memory
	lacks  bool              // the host has not a content that it was believed to have
	lacked []job.ContentID   // which; nil: it does not say
}

// run brings the task to the host and the result back. When it returns the host can
// touch neither source nor sink any more, and the scheduler knows.
func (a *attempt) run() {
	a.out = a.fly()
	a.cancel(nil)
	a.ended()
}

// ended tells the farm, and the history, what the attempt came to.
func (a *attempt) ended() {
	e := farm.End{Outcome: a.out.blame, Report: a.report()}
	switch e.Outcome {
	case scheduler.OK:
		e.Result = resultBytes(a.out.result)
	case scheduler.Unused:
	default:
		if a.out.local != nil && (e.Outcome == scheduler.Refused || e.Outcome == scheduler.Full) {
			e.Refusal = strings.TrimPrefix(a.out.local.Detail, a.at.Addr+" ")
		}
		a.m.metrics.Failed(a.at.Addr)
	}
	a.m.learn(a, a.m.farm.Ended(a.grant, e))
}

// report is what the scheduler learns of it.
func (a *attempt) report() scheduler.Report {
	x := scheduler.Report{ID: a.grant.Req.ID, Source: a.name}
	if r := a.out.result; r != nil {
		x.Failed = r.Exit != 0
		x.Wall, x.CPU = time.Duration(r.Wall)*time.Microsecond, time.Duration(r.CPU)*time.Microsecond
		x.RSS, x.Bytes, x.Result = r.MaxRSS, a.fl.Total, resultBytes(r)
	}
	return x
}

// release ends the attempt's part in the memory; after that there is no result.
func (a *attempt) release() {
	if a.source != nil {
		a.source.Drop()
	}
	a.sink.Drop()
}

// fly puts the job on its way and waits until it has landed.
func (a *attempt) fly() outcome {
	l, fl := a.link, a.fl
	ctx, cancel := context.WithTimeoutCause(a.ctx, a.limit, errTimeout)
	defer cancel()
	window := min(uint64(a.m.o.SinkSize), l.Welcome().MaxResult)
	slot := min(fl.Credit.Slot.Len, l.Welcome().MaxBody)
	if a.known == nil && fl.Total > max(slot, l.MaxSource()) || window == 0 {
		return a.tooBig(max(slot, l.MaxSource()))
	}
	load, err := a.load(ctx)
	if err != nil {
		return a.notLoaded(ctx, err)
	}
	defer load.drop()
	if fl.Total = uint64(len(load.plain)); fl.Total > max(slot, l.MaxSource()) {
		return a.tooBig(max(slot, l.MaxSource()))
	}
	a.sent, fl.Posted = load.files, load.contents.Posted
	// Written into the slot, or offered: then by the Result the daemon's Reads are
	// over, or the QP is gone.
	var access iwarp.Access
	var bound iwarp.QP
	if fl.Length = uint64(len(load.mem)); fl.Length > slot {
		fl.Length, access, bound = 0, iwarp.RemoteRead, l.QP()
	}
	if fl.Source, err = a.m.memory.Register(load.mem, access, bound); err != nil {
		return a.notRegistered(err)
	}
	defer a.m.memory.Dereg(fl.Source)
	fl.Sink, err = a.m.memory.Register(a.sink.Bytes()[:window], iwarp.LocalWrite|iwarp.RemoteWrite, l.QP())
	if err != nil {
		return a.notRegistered(err)
	}
	// By now the sink is shut by the Result, or the QP is gone.
	defer a.m.memory.Dereg(fl.Sink)
	var source job.Window
	if fl.Length == 0 {
		source = job.Window{STag: uint32(fl.Source.STag()), TO: fl.Source.Base(), Len: uint64(len(load.mem))}
		a.m.metrics.Fetched("source")
	}
	if l.CanFetch() && a.m.o.Result > a.m.o.SinkSize {
		fl.Fetch = uint64(a.m.o.Result)
	}

	fl.Msg = job.Append(nil, &job.Job{
		ID: fl.ID, Credit: fl.Credit.ID, Toolchain: a.toolchain,
		BodyLen: load.bodyLen, TextOff: load.textOff, TextLen: uint64(len(load.plain)) - uint64(load.textOff),
		Sink:    job.Window{STag: uint32(fl.Sink.STag()), TO: fl.Sink.Base(), Len: window},
		Source:  source,
		Fetch:   fl.Fetch,
		Timeout: milliseconds(max(a.limit, time.Millisecond)),
		Memory:  a.cost.Memory,
		Expect:  milliseconds(a.cost.Time),
		Digest:  load.sum, Packed: load.packed, Zstd: load.zstd,
		Store: load.contents != nil,
	})
	l.Start(fl)
	if fl.Length > 0 {
		a.m.farm.OnTheWay(a.grant)
	}
	select {
	case <-fl.Done():
	case <-ctx.Done():
		l.Cancel(fl)
		<-fl.Done() // at the latest when the link is given up, CancelTimeout from now
	}
	load.contents.End(fl.Result != nil && fl.Result.Status == job.StatusRan)
	out := a.judge(ctx, window, load.zstd)
	mem := a.sink.Bytes()
	if out.lacks {
		out.lacked = lackedOf(fl.Result, mem[:window])
	}
	if fl.Result != nil && fl.Result.Window.STag != 0 {
		// The result is still there. What nobody wants any more is only released.
		fctx := ctx
		if out.result == nil {
			canceled, cancel := context.WithCancelCause(ctx)
			cancel(link.ErrCancelled)
			fctx = canceled
		}
		if mem, err = a.fetch(fctx); err != nil && out.result != nil {
			return a.notFetched(ctx, err)
		}
	}
	if out.result != nil {
		if mem, err = a.unload(ctx, out.result, mem); err != nil {
			return a.notFetched(ctx, err)
		}
		if no := a.distrust(out.result, mem); no != nil {
			return *no
		}
	}
	return out
}

// tooBig is the end of an attempt whose source is larger than the host's most.
func (a *attempt) tooBig(most uint64) outcome {
	a.m.farm.Unspent(a.grant)
	return outcome{blame: scheduler.Unused, local: &ipc.GoLocal{Reason: reason.TooBig, Host: a.at.Addr,
		Detail: fmt.Sprintf("the source takes %d bytes, %s takes %d", a.fl.Total, a.at.Addr, most)}}
}

// notLoaded is the end of an attempt whose source could not be made.
func (a *attempt) notLoaded(ctx context.Context, err error) outcome {
	a.m.farm.Unspent(a.grant)
	select {
	case <-a.link.Dead():
		return outcome{blame: scheduler.Gone, local: lostHost(a.at.Addr, a.link.Err().Error())}
	default:
	}
	switch {
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout):
		return outcome{blame: scheduler.Unused, final: true, local: &ipc.GoLocal{Reason: reason.Timeout, Trouble: true, Code: reason.ExitTimeout, Host: a.at.Addr,
			Detail: "the time limit passed before the job was sent to " + a.at.Addr}}
	case ctx.Err() != nil:
		return outcome{blame: scheduler.Unused, final: true, local: interrupted}
	case errors.Is(err, errTooBig):
		return outcome{blame: scheduler.Unused, final: true, local: &ipc.GoLocal{Reason: reason.TooBig, Detail: err.Error()}}
	}
	return outcome{blame: scheduler.Unused, final: true, local: &ipc.GoLocal{Reason: known.Changed}}
}

// notRegistered is the end of an attempt that did not spend its credit.
func (a *attempt) notRegistered(err error) outcome {
	l := a.link
	a.m.farm.Unspent(a.grant)
	select {
	case <-l.Dead(): // a QP that is gone takes no registration
		return outcome{blame: scheduler.Gone, local: lostHost(a.at.Addr, l.Err().Error())}
	default:
		return outcome{final: true, local: noSlot(err)}
	}
}

// answer makes the wrapper's result of an attempt that went well, the n-th.
func (a *attempt) answer(n uint8) *ipc.Result {
	fl := a.fl
	r := fl.Result
	out := &ipc.Result{
		Host: a.at.Addr, Exit: r.Exit, Signal: r.Signal,
		Stdout: ipc.Segment(r.Stdout), Stderr: ipc.Segment(r.Stderr),
		CreditUS:  microseconds(fl.Began.Sub(a.asked)),
		QueueUS:   r.Queue,
		CompileUS: r.Wall,
		BytesOut:  fl.Total,
		BytesIn:   resultBytes(r),
		SentFiles: a.sent,
		Attempts:  n,
	}
	for i := range r.Files {
		out.Files = append(out.Files, ipc.File{Index: r.Files[i].Index, Segment: ipc.Segment(r.Files[i].Segment)})
	}
	// The answer can be here before the completion of the Write that it answers.
	wrote, answered := fl.Wrote, fl.Answered
	if fl.Length == 0 {
		wrote = fl.Began // it was fetched: the daemon counts that as waiting
	}
	if answered.Before(wrote) {
		wrote = answered
	}
	if !a.fetched.IsZero() {
		answered = a.fetched
	}
	out.WriteUS = microseconds(wrote.Sub(fl.Began))
	out.ReturnUS = microseconds(answered.Sub(wrote) - time.Duration(r.Queue)*time.Microsecond - time.Duration(r.Wall)*time.Microsecond)
	return out
}

func milliseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Milliseconds(), 0), 1<<32-1))
}

func microseconds(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

// resultBytes is what a result put into the sink.
func resultBytes(r *job.Result) uint64 {
	n := r.Stdout.Len + r.Stderr.Len
	for i := range r.Files {
		n += r.Files[i].Len
	}
	return n
}
