package connmgr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// maxRefusals bounds how many hosts are asked when each one refuses at once.
const maxRefusals = 8

// Why a flight came to nothing.
var (
	errCancelled = errors.New("cancelled")
	errTimeout   = errors.New("time limit")
)

// outcome of one attempt on one host.
type outcome struct {
	result *job.Result       // the compiler ran and its word stands
	local  *ipc.GoLocal      // otherwise: what the wrapper hears if no other host helps
	blame  scheduler.Outcome // what the scheduler hears
	final  bool              // no other host would do better
}

// compile runs the job of a leased slot on a host, on another one if that meets
// trouble, and gives either the result or the reason why it has to be done here.
// When it returns no host can touch source and sink any more.
func (c *client) compile(f *ipc.Submit) (*ipc.Result, *ipc.GoLocal) {
	total, end := uint64(f.TextOff)+f.TextLen, slotEnd(f)
	if uint64(f.BodyLen) > uint64(f.TextOff) || f.TextOff%job.BodyAlign != 0 || f.BodyOff%job.BodyAlign != 0 ||
		f.TextLen > uint64(c.m.sources.Size()) || end > uint64(c.m.sources.Size()) || f.BodyLen == 0 {
		return nil, &ipc.GoLocal{Reason: "manager", Trouble: true, Code: ipc.ExitProtocol,
			Detail: "the wrapper named a source outside its slot"}
	}
	text, err := c.text(end)
	if err != nil {
		return nil, noSlot(err)
	}
	text = text[f.BodyOff:]
	if c.uid != c.m.uid {
		// Text that changes while it is sent breaks a frame's CRC, and with it the
		// connection for all users' jobs.
		text = bytes.Clone(text)
	}
	body, err := job.ParseBody(text[:f.BodyLen])
	if err != nil {
		return nil, &ipc.GoLocal{Reason: "manager", Trouble: true, Code: ipc.ExitProtocol, Detail: "the wrapper's job: " + err.Error()}
	}
	req := &request{job: c.request(total, f.Tree), ready: make(chan grant, 1)}
	var last *ipc.GoLocal // what the last attempt ran into
	troubles := 0
	for attempt := uint8(1); ; attempt++ {
		asked := time.Now()
		// However long: a full farm is no reason to give up, and a host that gives
		// no credit is the scheduler's to judge.
		g, err := c.m.pick(c.ctx, req)
		if err != nil {
			return nil, interrupted
		}
		if g.link == nil {
			if last != nil {
				c.m.giveBack(g)
				return nil, last
			}
			c.share = g.decision.Share
			return nil, localDecision(g.decision)
		}
		if attempt > 1 {
			c.m.metrics.retries.Inc()
		}
		fl := &flight{id: c.m.ids.Add(1), credit: g.credit, total: total}
		out := c.attempt(g.link, fl, f, text, body)
		c.m.ended(c, g.link.h, out)
		if out.result != nil {
			return c.answer(g.link.h, fl, attempt, fl.began.Sub(asked)), nil
		}
		if c.ctx.Err() != nil {
			return nil, out.local
		}
		c.m.o.Log.Info("attempt failed", "job", c.id, "host", g.link.h.addr, "reason", out.local.Reason, "detail", out.local.Detail)
		last = out.local
		switch out.blame {
		case scheduler.Gone, scheduler.Killed, scheduler.Fault:
			troubles++
		case scheduler.Unused, scheduler.OK, scheduler.Refused:
		}
		if out.final || troubles >= c.m.o.Attempts || attempt >= maxRefusals {
			return nil, last
		}
		req.job.Tried[g.link.h.addr] = true
	}
}

// slotEnd is how far the slot is in use, in bytes.
func slotEnd(f *ipc.Submit) uint64 { return uint64(f.BodyOff) + uint64(f.TextOff) + f.TextLen }

// text is the first n bytes of the slot.
func (c *client) text(n uint64) ([]byte, error) {
	if b := c.source.Bytes(); n <= uint64(len(b)) {
		return b[:n], nil
	}
	return c.source.Extend(int64(n))
}

// interrupted is an answer that nobody will read.
var interrupted = &ipc.GoLocal{Reason: "manager", Detail: "interrupted"}

// timeLimit is how long an attempt may take, from its first byte on.
func (c *client) timeLimit() time.Duration {
	if ms := c.lease.IOTimeoutMS; ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return c.m.o.IOTimeout
}

// request is the job as the scheduler sees it; size is 0 while it is not known.
func (c *client) request(size uint64, tree bool) scheduler.Job {
	return scheduler.Job{
		Hosts: c.list.sched, Tried: make(map[string]bool), Toolchain: c.toolchain.ID, Size: size,
		Since: time.Now(), Share: c.list.Share, Random: c.list.Randomize,
		Tree: tree, NoLocal: c.lease.Mode == ipc.ModeRemote,
	}
}

// attempt puts the job on its way over l and waits until it has landed.
func (c *client) attempt(l *link, fl *flight, f *ipc.Submit, text []byte, body *job.Body) outcome {
	h := l.h
	limit := c.timeLimit()
	ctx, cancel := context.WithTimeoutCause(c.ctx, limit, errTimeout)
	defer cancel()
	window := min(uint64(c.m.o.SinkSize), l.welcome.MaxResult)
	slot := min(fl.credit.Slot.Len, l.welcome.MaxBody)
	if fl.total > max(slot, l.maxSource()) || window == 0 {
		l.keepCredit(fl.credit)
		return outcome{blame: scheduler.Unused, local: &ipc.GoLocal{Reason: "too-big", Host: h.addr,
			Detail: fmt.Sprintf("the source takes %d bytes, %s takes %d", fl.total, h.addr, max(slot, l.maxSource()))}}
	}
	// Written into the slot, or offered: then by the Result the daemon's Reads are
	// over, or the QP is gone.
	var access iwarp.Access
	var bound iwarp.QP
	if fl.length = fl.total; fl.total > slot {
		fl.length, access, bound = 0, iwarp.RemoteRead, l.qp
	}
	var err error
	if fl.src, err = c.register(text, access, bound); err != nil {
		return c.notRegistered(l, fl, err)
	}
	defer c.dereg(fl.src)
	fl.sink, err = c.register(c.sink.Bytes()[:window], iwarp.LocalWrite|iwarp.RemoteWrite, l.qp)
	if err != nil {
		return c.notRegistered(l, fl, err)
	}
	// By now the sink is shut by the Result, or the QP is gone.
	defer c.dereg(fl.sink)
	var source job.Window
	if fl.length == 0 {
		source = job.Window{STag: uint32(fl.src.STag()), TO: fl.src.Base(), Len: fl.total}
		c.m.metrics.windows.WithLabelValues("source").Inc()
	}
	if l.puller.Can() && c.m.o.Result > c.m.o.SinkSize {
		fl.fetch = uint64(c.m.o.Result)
	}

	fl.done = make(chan struct{})
	fl.msg = job.Append(nil, &job.Job{
		ID: fl.id, Credit: fl.credit.ID, Toolchain: c.toolchain.ID,
		BodyLen: f.BodyLen, TextOff: f.TextOff, TextLen: f.TextLen,
		Sink:    job.Window{STag: uint32(fl.sink.STag()), TO: fl.sink.Base(), Len: window},
		Source:  source,
		Fetch:   fl.fetch,
		Timeout: uint32(min(max(limit.Milliseconds(), 1), 1<<32-1)),
	})
	c.m.mu.Lock()
	l.startLocked(fl)
	c.m.mu.Unlock()
	select {
	case <-fl.done:
	case <-ctx.Done():
		c.m.mu.Lock()
		l.cancelLocked(fl)
		c.m.mu.Unlock()
		<-fl.done // at the latest when the link is given up, CancelTimeout from now
	}
	out := c.judge(ctx, l, fl, body, window)
	if fl.result == nil || fl.result.Window.STag == 0 {
		return out
	}
	// The result is still there. What nobody wants any more is only released.
	if out.result == nil {
		canceled, cancel := context.WithCancelCause(ctx)
		cancel(errCancelled)
		ctx = canceled
	}
	if err := c.fetch(ctx, l, fl); err != nil && out.result != nil {
		return c.notFetched(ctx, l, err)
	}
	return out
}

func (c *client) register(mem []byte, a iwarp.Access, qp iwarp.QP) (iwarp.MR, error) {
	return c.m.pd.RegMR(mem, a, &iwarp.MROptions{QP: qp})
}

// notRegistered is the end of an attempt that did not spend its credit.
func (c *client) notRegistered(l *link, fl *flight, err error) outcome {
	l.keepCredit(fl.credit)
	select {
	case <-l.dead: // a QP that is gone takes no registration
		return outcome{blame: scheduler.Gone, local: lostHost(l.h.addr, l.err().Error())}
	default:
		return outcome{final: true, local: noSlot(err)}
	}
}

// keepCredit takes back a credit that an attempt did not spend.
func (l *link) keepCredit(c job.Credit) {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.h.link == l {
		l.addCreditLocked(c)
	}
}

func (c *client) dereg(mr iwarp.MR) {
	if err := mr.Dereg(); err != nil {
		c.m.o.Log.Warn("end a memory registration", "job", c.id, "err", err)
	}
}

// answer makes the wrapper's result of a flight that landed well.
func (c *client) answer(h *host, fl *flight, attempt uint8, credit time.Duration) *ipc.Result {
	r := fl.result
	out := &ipc.Result{
		Host: h.addr, Exit: r.Exit, Signal: r.Signal,
		Stdout: ipc.Segment(r.Stdout), Stderr: ipc.Segment(r.Stderr),
		CreditUS:  microseconds(credit),
		QueueUS:   r.Queue,
		CompileUS: r.Wall,
		BytesOut:  fl.total,
		BytesIn:   resultBytes(r),
		Attempts:  attempt,
	}
	for i := range r.Files {
		out.Files = append(out.Files, ipc.File{Index: r.Files[i].Index, Segment: ipc.Segment(r.Files[i].Segment)})
	}
	// The answer can be here before the completion of the Write that it answers.
	wrote, answered := fl.wrote, fl.answered
	if fl.length == 0 {
		wrote = fl.began // it was fetched: the daemon counts that as waiting
	}
	if answered.Before(wrote) {
		wrote = answered
	}
	if !fl.fetched.IsZero() {
		answered = fl.fetched
	}
	out.WriteUS = microseconds(wrote.Sub(fl.began))
	out.ReturnUS = microseconds(answered.Sub(wrote) - time.Duration(r.Queue)*time.Microsecond - time.Duration(r.Wall)*time.Microsecond)
	c.record.note(out)
	return out
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

func closeFD(fd int) { _ = unix.Close(fd) } // EINTR and EIO mean nothing for a memfd
