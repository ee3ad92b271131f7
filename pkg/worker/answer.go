package worker

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/auditlog"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// answer sends the only Result of a task: it writes n bytes from the start of the slot to the sink, then
// sends the message, which invalidates the sink. The slot is freed when both have been sent. A result that is
// offered stays until the client releases it.
func (t *task) answer(r *job.Result, n int) {
	c, s := t.c, t.c.s
	t.job.Drop()
	if t.abort != nil {
		t.abort() // release the context
	}
	r, n = t.show(r, n)
	id, tell := t.conclude(r)
	s.o.Metrics.answered(t, r)
	s.ended.add(t, r)
	t.logAudit(r, n)
	if !tell {
		return // the client is gone; the slot is freed with the connection
	}
	var err error
	if n > 0 {
		err = c.qp.PostSend(&iwarp.SendWR{
			ID: sendID, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More,
			SGL:  []iwarp.SGE{t.result(n)},
			STag: iwarp.STag(t.m.Sink.STag), TO: t.m.Sink.TO,
		})
	}
	if err == nil {
		err = c.qp.PostSend(&iwarp.SendWR{
			ID: id, Op: iwarp.OpSendInv, Flags: iwarp.Inline, Data: job.Append(nil, r),
			InvSTag: iwarp.STag(t.m.Sink.STag),
		})
	}
	if err != nil {
		// The queue has room for every answer, so this means that the QP has ended. If it has not, the client
		// must not be left waiting.
		c.log.Debug("answer", "job", t.m.ID, "err", err)
		c.failed(err)
	}
}

// show registers the first n bytes of the task's memory, from which its result is sent, if its credit had no
// slot. It returns the answer and how many bytes of content it has, which are none if that fails.
func (t *task) show(r *job.Result, n int) (*job.Result, int) {
	if n == 0 || t.k.buf != nil {
		return r, n
	}
	var err error
	if t.k.ownMR, err = t.c.pd.RegMR(t.k.own.Bytes()[:n], 0, &iwarp.MROptions{QP: t.c.qp}); err == nil {
		return r, n
	}
	f := run.Failed(fmt.Errorf("register a result: %w", err))
	f.Queue, f.Wall, f.CPU, f.MaxRSS = r.Queue, r.Wall, r.CPU, r.MaxRSS
	return f, 0
}

// conclude completes an answer, together with the credit that travels with it. id is the work request that
// frees the slot when it completes. tell is false if the client is gone.
func (t *task) conclude(r *job.Result) (id uint64, tell bool) {
	c, s := t.c, t.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.tasks, t.m.ID)
	t.overLocked()
	c.lent.Answered()
	s.missedLocked(t)
	t.yielded(r)
	if r.Status == job.StatusRefused && !t.lent.Yields() {
		c.lent.Tenant().Lapsed(time.Now())
	}
	id = c.nextWRLocked()
	c.sending[id] = t.k
	if t.job.Offered != nil && c.state != connEnded {
		if w, err := t.offerLocked(); err == nil {
			r.Window = w
		} else {
			f := run.Failed(err)
			f.Queue, f.Wall, f.CPU, f.MaxRSS = r.Queue, r.Wall, r.CPU, r.MaxRSS
			*r = *f
		}
	}
	t.job.Offered.Free() // nil if it was offered
	t.job.Offered = nil
	r.ID = t.m.ID
	r.Detail = job.Clip(r.Detail, job.MaxDetail)
	if c.state == connEnded {
		return id, false
	}
	if k := c.nextLocked(); k != nil {
		next := k.onWire()
		r.Next = &next
	}
	r.Load = s.loadLocked()
	s.publishLocked()
	return id, true
}

// auditPeer returns the peer as the audit log records it.
func (c *conn) auditPeer() auditlog.Peer {
	return auditlog.Peer{Tenant: c.lent.Tenant().Name(), Remote: c.remote.String(), Proof: c.proof, Client: c.id, Name: c.name}
}

// logAudit records a task that was answered in the audit log. n bytes of its result went to the client's sink.
func (t *task) logAudit(r *job.Result, n int) {
	j := auditlog.Job{Peer: t.c.auditPeer(), Asked: t.m, Answer: r, Written: n, Language: t.language, Source: t.source, Files: t.files}
	if t.job.Toolchain != nil {
		j.Compiler = t.job.Toolchain.Family + "-" + t.job.Toolchain.Version
	}
	if t.job.Excess != sandbox.ExcessNone {
		j.Excess = t.job.Excess.String()
	}
	t.c.s.o.Audit.Job(&j)
}
