package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

// task is a job under way: queued, running, answered. Exactly one goroutine answers it: the connection's (if
// it is refused, or cancelled in the queue), that of bring, or a runner.
type task struct {
	c      *conn
	m      *job.Job
	k      *credit // its slot belongs to this task alone
	job    run.Job // what runs
	queued time.Time

	before []chan struct{} // taken of earlier tasks of this connection that use the store
	taken  chan struct{}   // closed once the contents that it brings are kept; nil: it does not use the store

	abort context.CancelFunc // ends bring; nil if the task is queued at once

	no      *job.Refusal // why it is not run
	started time.Time    // when it got a core
	lent    lend.Job     // its turn on a core; guarded by Server.mu

	lacks []unit.ContentID // contents that it names and this host lacks: it is refused

	// owned by the goroutine that has the task, set from the body
	source, language string
	files            int // number of files in the sources form; 0 for the text form

	shown atomic.Pointer[string] // source, for Status; nil: not read yet
}

var (
	errDraining    = errors.New("draining")
	errNoToolchain = errors.New("no compiler found")
)

// job handles a Job message: it queues the job, has bring do so, or answers with a refusal. An error ends the
// connection.
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
		t.job.Toolchain, err = s.compilers.Find(m.Toolchain)
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
	if m.Source.STag != 0 || m.Store {
		if m.Store {
			t.before, t.taken = slices.Clone(c.taking), make(chan struct{})
			c.taking = append(c.taking, t.taken)
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
	t.job.Asked, t.job.Source.Slot, t.job.Read = m, t.k.buf.Bytes()[:t.k.mr.Len()], t.read
	t.job.Tenant, t.job.Allowance, t.job.Fetches = c.keeps, c.allowance, c.peerReads
	c.tasks[m.ID] = t
	c.lent.Came(t.queued)
	c.jobs++
	if s.draining {
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
	t.shown.Store(&t.source)
}

// size returns how many bytes of source the task's compiler is given.
func (t *task) size() uint64 {
	if t.job.Files == nil {
		return t.m.TextLen
	}
	return t.job.Files.Size()
}

// stop ends a task that is not in the queue, whether it fetches, waits or runs.
func (t *task) stop(why job.Cause) {
	if t.abort != nil {
		t.abort()
	}
	t.job.Process.Stop(why)
}

// check checks the message's numbers against the slot or window, and the protocol.
func (t *task) check() error {
	m, slot := t.m, uint64(t.k.mr.Len())
	room := slot
	if m.Source.STag != 0 {
		room = m.Source.Len
		n := uint64(m.TextOff) + m.TextLen
		if m.Packed != 0 {
			n = m.Packed
		}
		switch {
		case room > t.c.maxSource():
			return job.Refuse(job.CauseTooBig, "a source of %d bytes: at most %d", room, t.c.maxSource())
		case room != n:
			return job.Refuse(job.CauseMalformed, "a window of %d bytes for a text of %d at %d", room, m.TextLen, m.TextOff)
		}
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
		t.answer(&job.Result{Status: job.StatusFailed, Cause: job.CauseCancelled}, 0)
		c.work.Done()
	}
}

// find returns the connection's tasks with these IDs. It removes those that are queued from the queue.
func (c *conn) find(ids []uint64) (queued, running []*task) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, id := range ids {
		t := c.tasks[id]
		if t == nil {
			continue // answered: the Result is in transit
		}
		if c.s.lend.Dequeue(&t.lent) {
			queued = append(queued, t)
		} else {
			running = append(running, t)
		}
	}
	return queued, running
}

// dropLocked removes the tasks of a connection that has ended from the queue, and returns those that were not
// in it.
func (s *Server) dropLocked(c *conn) []*task {
	var running []*task
	for id, t := range c.tasks {
		if !s.lend.Dequeue(&t.lent) {
			running = append(running, t)
			continue
		}
		delete(c.tasks, id)
		c.lent.Answered()
		t.job.Drop()
		c.sending[c.nextWRLocked()] = t.k // freed with the connection
		c.work.Done()
	}
	return running
}

// turn is what a runner does next.
type turn uint8

const (
	turnEnd    turn = iota // the server closes
	turnTask               // do a task
	turnCanary             // run a canary, because it is idle
	turnForget             // drop what its tree keeps
)

// take waits until r has something to do and returns what.
func (s *Server) take(r *runner) (turn, *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closing {
		if r.place.Stale() {
			return turnForget, nil
		}
		if t := s.nextTaskLocked(time.Now()); t != nil {
			s.publishLocked()
			return turnTask, t
		}
		if s.lend.Queued() == 0 {
			if s.canaryForLocked(r) {
				s.cage.testing++
				return turnCanary, nil
			}
			s.starvedLocked()
		} else {
			s.awaitPauseLocked(time.Now())
		}
		s.wake.Wait()
	}
	return turnEnd, nil
}

// nextWRLocked returns the ID for the next work request that sends a result.
func (c *conn) nextWRLocked() uint64 {
	c.lastWR++
	return sendID | c.lastWR
}

// answer sends the only Result of a task: it writes n bytes from the start of the slot to the sink, then
// sends the message, which invalidates the sink. The slot is freed when both have been sent. A result that is
// offered stays until the client releases it.
func (t *task) answer(r *job.Result, n int) {
	c, s := t.c, t.c.s
	t.job.Drop()
	if t.abort != nil {
		t.abort() // release the context
	}
	id, tell := t.conclude(r)
	s.o.Metrics.answered(t, r)
	t.logAudit(r, n)
	if !tell {
		return // the client is gone; the slot is freed with the connection
	}
	var err error
	if n > 0 {
		err = c.qp.PostSend(&iwarp.SendWR{
			ID: sendID, Op: iwarp.OpWrite, Flags: iwarp.Unsignaled | iwarp.More,
			SGL:  []iwarp.SGE{{Addr: t.k.mr.Base(), Length: uint32(n), LKey: t.k.mr.STag()}},
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
		c.qp.Abort()
	}
}

// conclude completes an answer, together with the credit that travels with it. id is the work request that
// frees the slot when it completes. tell is false if the client is gone.
func (t *task) conclude(r *job.Result) (id uint64, tell bool) {
	c, s := t.c, t.c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(c.tasks, t.m.ID)
	c.lent.Answered()
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
