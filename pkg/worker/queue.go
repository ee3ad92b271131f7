package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// newTurn makes t a job that the ledger has yet to see.
func (t *task) newTurn() {
	t.lent = lend.Job{Owner: t, Arrived: t.queued, Expect: time.Duration(t.m.Expect) * time.Millisecond, Memory: t.m.Memory}
	if t.c.s.o.Cluster != nil {
		t.lent.Memory = 0 // of this host it takes none
	}
}

// enqueueLocked queues t for the runners.
func (s *Server) enqueueLocked(t *task) {
	if !t.pulled { // otherwise it has waited there for its source
		t.newTurn()
	}
	s.lend.Enqueue(t.c.lent, &t.lent)
	s.wake.Signal()
	s.publishLocked()
}

// nextTaskLocked returns the next task for a free core, to run or, if task.no is set, to refuse. It returns
// nil if there is nothing to do now.
func (s *Server) nextTaskLocked(now time.Time) *task {
	for {
		switch turn := s.lend.Next(now); turn.Act {
		case lend.Idle:
			return nil
		case lend.Look:
			s.lookAtMemoryLocked(now)
		case lend.Drop:
			if n := s.dropContentsLocked(turn.Bytes); n >= turn.Bytes {
				s.lookAtMemoryLocked(now)
			} else {
				s.lend.Kept(n, now)
			}
		case lend.Start:
			t := turn.Job.Owner.(*task)
			t.no, t.started, t.job.OOMKills = turn.No, now, s.load.Load().oomKills
			return t
		}
	}
}

// lookAtMemoryLocked reads how much memory is free and tells the ledger.
func (s *Server) lookAtMemoryLocked(now time.Time) {
	h := *s.load.Load()
	h.memoryFree = s.readMemory()
	s.load.Store(&h)
	s.lend.Looked(h.memoryFree, now)
}

// dropContentsLocked drops that many bytes of contents that clients have sent, if there are as many. It
// returns how many bytes there were, or 0 if none could be dropped.
func (s *Server) dropContentsLocked(bytes int64) int64 {
	if s.keep == nil {
		return 0
	}
	has := s.keep.Stats().Bytes
	if has >= bytes && s.keep.Shrink(bytes) <= 0 {
		return 0
	}
	return has
}

// awaitPauseLocked wakes the runners when the first pause ends for which cores are kept idle.
func (s *Server) awaitPauseLocked(now time.Time) {
	if s.awaiting {
		return
	}
	left := s.lend.PauseLeft(now)
	if left == 0 {
		return
	}
	s.awaiting = true
	time.AfterFunc(left, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.awaiting = false
		s.wake.Broadcast()
	})
}

// yieldLocked returns the tasks that have to give up their cores to other tenants. The caller stops their
// programs, without the lock.
func (s *Server) yieldLocked(now time.Time) (victims []*task) {
	for _, j := range s.lend.Yields(now) {
		t := j.Owner.(*task)
		victims = append(victims, t)
		s.o.Metrics.limited(limitYield)
		s.o.Log.Info("a job gives its place to another client", "job", t.m.ID, "client", t.c.id, "ran", now.Sub(t.started))
	}
	return victims
}

// yielded turns the answer of a job that had to give up its core into a refusal.
func (t *task) yielded(r *job.Result) {
	if t.lent.Yields() && r.Status == job.StatusFailed && r.Cause == job.CauseCancelled {
		r.Status, r.Cause, r.Detail = job.StatusRefused, job.CauseFull, "gave its place to another client"
	}
}

// take waits until r has something to do and returns what.
func (s *Server) take(r *runner) (turn, *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closing {
		if r.place.Stale() {
			return turnForget, nil
		}
		if t := s.nextTaskLocked(time.Now()); t != nil {
			t.place = r.i + 1
			s.fetchLocked() // the next source: t leaves a place for it
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

// find returns the connection's tasks with these IDs. It removes those that are queued from the queue.
func (c *conn) find(ids []uint64) (queued, running []*task) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	defer c.s.fetchLocked()
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
		t.overLocked()
		c.lent.Answered()
		t.job.Drop()
		c.sending[c.nextWRLocked()] = t.k // freed with the connection
		c.work.Done()
	}
	return running
}

// stop ends a task that is not in the queue, whether it fetches, waits or runs.
func (t *task) stop(why job.Cause) {
	if t.abort != nil {
		t.abort()
	}
	t.job.Process.Stop(why)
}
