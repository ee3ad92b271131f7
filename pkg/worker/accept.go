package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// job handles a Job message: it queues the job, has bring do so now or when its turn has come, or answers with
// a refusal. An error ends the connection.
func (c *conn) job(m *job.Job, w *iwarp.WC) error {
	s := c.s
	t := &task{c: c, m: m, queued: time.Now()}
	no, err := t.accept(w)
	if err != nil {
		return err
	}
	if err = t.check(); err == nil && no != nil {
		err = no
	}
	if err == nil {
		t.job.Toolchain, err = c.compiler(m.Toolchain)
	}
	if err == nil {
		err = t.takeSource()
	}
	if err == nil && m.Store && s.keep == nil {
		if err = run.ErrNoTrees; s.places.Trees {
			err = job.Refuse(job.CauseMalformed, "this host keeps no contents, and has said so")
		}
	}
	if err != nil {
		t.answer(run.Refused(err), 0)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// The task must not outlive the connection, which waits for it.
	c.work.Add(1)
	t.mark()
	if m.Source.STag != 0 || m.Store {
		if m.Store {
			t.before, t.taken = slices.Clone(c.taking), make(chan struct{})
			c.taking = append(c.taking, t.taken)
		}
		if t.pulled = m.Source.STag != 0 && c.pulls() && m.Source.Len <= uint64(s.slots.Size()); t.pulled {
			s.awaitLocked(t)
			return nil
		}
		ctx, cancel := context.WithCancel(s.ctx)
		t.abort = cancel
		go t.bring(ctx) // waited for by c.work
		return nil
	}
	s.enqueueLocked(t)
	return nil
}

// accept makes t one of its connection's tasks, in place of the credit. no is why the host does not do it; an
// error ends the connection.
func (t *task) accept(w *iwarp.WC) (no *job.Refusal, err error) {
	c, s, m := t.c, t.c.s, t.m
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.k, err = c.spendLocked(m.Credit, w); err != nil {
		return nil, err
	}
	if c.tasks[m.ID] != nil || c.offers[m.ID] != nil || m.Sink.STag == 0 {
		return nil, errors.Join(fmt.Errorf("job %d has a number in use, or no sink", m.ID), t.k.free())
	}
	t.job.Asked, t.job.Read = m, t.read
	if t.k.buf != nil && !c.kept.use { // otherwise takeSource or lodge gives it memory that the client cannot reach
		t.job.Source.Slot = t.k.bytes()
	}
	if m.Carried != nil {
		t.job.Source.Brought(m.Carried, s.carried.give)
	}
	t.job.Owner = c.lent.Tenant().Name()
	t.job.Tenant, t.job.Allowance, t.job.Fetches = c.keeps, c.allowance, c.peerReads
	t.job.Sum = m.Key != [32]byte{} && c.shelf.shared()
	c.tasks[m.ID] = t
	c.lent.Came(t.queued)
	c.jobs++
	s.o.Metrics.carried(m.Carrier())
	if s.drain.begun {
		return job.Refuse(job.CauseDraining, "going down"), nil
	}
	if no := s.lend.Closed(); no != nil {
		return no, nil
	}
	return c.admissibleLocked(), nil
}

// read records the parts of a task's body that logs and Status show.
func (t *task) read(b *job.Body) {
	t.source, t.language, t.files = b.Name, b.Language, len(b.Files)
	if t.job.Sum {
		t.body = b
	}
	t.shown.Store(&t.source)
}

// check checks the message's numbers against the slot, the window or what came with it, and the protocol.
func (t *task) check() error {
	m, slot := t.m, uint64(t.c.s.slots.Size())
	room := slot
	n := uint64(m.TextOff) + m.TextLen
	if m.Packed != 0 {
		n = m.Packed
	}
	switch {
	case m.Carried != nil && m.Source.STag != 0:
		return job.Refuse(job.CauseMalformed, "a source in a window, and one in the message")
	case m.Carried != nil:
		if room = uint64(len(m.Carried)); room != n {
			return job.Refuse(job.CauseMalformed, "%d bytes carried for a text of %d at %d", room, m.TextLen, m.TextOff)
		}
	case m.Source.STag != 0:
		switch room = m.Source.Len; {
		case room > t.c.maxSource():
			return job.Refuse(job.CauseTooBig, "a source of %d bytes: at most %d", room, t.c.maxSource())
		case room != n:
			return job.Refuse(job.CauseMalformed, "a window of %d bytes for a text of %d at %d", room, m.TextLen, m.TextOff)
		}
	case t.k.buf == nil:
		return job.Refuse(job.CauseMalformed, "a bare credit, and no source in a window or the message")
	}
	if m.Packed != 0 {
		if m.Packed > room {
			return job.Refuse(job.CauseMalformed, "a source of %d packed bytes in a slot of %d", m.Packed, room)
		}
		// The bounds for the unpacked source.
		room = max(slot, uint64(min(t.c.s.o.Source, t.c.s.large.Max())))
	}
	switch {
	case m.BodyLen == 0 || m.BodyLen > job.MaxBodyLen,
		uint64(m.TextOff) != uint64(job.TextOffset(int(m.BodyLen))),
		uint64(m.TextOff) > room || m.TextLen > room-uint64(m.TextOff):
		return job.Refuse(job.CauseMalformed, "body of %d bytes and text of %d at %d in a slot of %d", m.BodyLen, m.TextLen, m.TextOff, room)
	}
	return nil
}

// cancel ends jobs of this connection. It answers queued ones at once; running ones are answered by their
// runner once the compiler has ended.
func (c *conn) cancel(ids []uint64) {
	queued, running := c.find(ids)
	c.s.o.Metrics.cancelled(len(queued), len(running), max(0, len(ids)-len(queued)-len(running)))
	for _, t := range running {
		t.stop(job.CauseCancelled)
	}
	for _, t := range queued {
		if t.taken != nil {
			t.tookIn() // it may not have been fetched yet
		}
		t.answer(&job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}, 0)
		c.work.Done()
	}
}

// admissibleLocked returns why another job of the connection's tenant may not wait here, or nil if it may.
func (c *conn) admissibleLocked() *job.Refusal {
	if !c.s.lend.Crowded(c.lent.Tenant()) {
		return nil
	}
	c.s.o.Metrics.limited(limitQueued)
	return job.Refuse(job.CauseFull, "%d jobs of this client wait here already (limits.client-queued)", c.s.o.ClientQueued)
}
