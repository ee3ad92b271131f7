package worker

import (
	"math"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// client is a manager: all connections that come from one start of it, as credits and
// cores are divided among managers and not among connections.
//
// All of it is guarded by Server.mu.
type client struct {
	boot   [16]byte
	conns  []*conn // that have introduced themselves, in order of arrival
	weight int     // > 0
	demand int     // places it has use for; -1 = it did not say
	builds int     // that it has going, as it says
	share  int     // credits that it may hold

	// Waiting jobs, the first one next. pass is the core time that it has had, in
	// seconds divided by its part, and not less than that of those who wait: whoever has
	// least of it is served next.
	queue []*task
	runs  int // its jobs that run
	pass  float64
}

// joinLocked finds the client of a connection that introduces itself. Who tells no
// boot number is a client by itself.
func (s *Server) joinLocked(c *conn, m *job.Hello) {
	weight := min(max(1, int(m.Weight)), maxWeight)
	if c.boot != ([16]byte{}) {
		for _, cl := range s.clients {
			if cl.boot == c.boot {
				cl.conns = append(cl.conns, c)
				cl.weight = weight
				c.client = cl
				return
			}
		}
	}
	c.client = &client{boot: c.boot, conns: []*conn{c}, weight: weight, demand: -1, pass: s.vtime}
	s.clients = append(s.clients, c.client)
}

// maxWeight bounds what a manager can say of itself: nobody gets everything.
const maxWeight = 100

// maxBuilds is how many builds of one manager count.
const maxBuilds = 8

// part is what it gets when there is not enough for all: so much for each of its
// builds, that those of one manager do not go slower than those of many.
func (cl *client) part() int { return cl.weight * max(1, min(cl.builds, maxBuilds)) }

// leaveLocked takes a connection that has ended, with nothing under way, from its client.
func (s *Server) leaveLocked(c *conn) {
	cl := c.client
	if cl == nil {
		return // it said nothing
	}
	cl.conns = slices.DeleteFunc(cl.conns, func(x *conn) bool { return x == c })
	if len(cl.conns) == 0 {
		s.clients = slices.DeleteFunc(s.clients, func(x *client) bool { return x == cl })
	}
}

// demanded takes a client's word on how much work it has.
func (c *conn) demanded(m *job.Demand) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.client.demand, c.client.builds = int(m.Jobs), int(m.Builds)
	c.s.rebalanceLocked()
}

// heldLocked counts against the share.
func (cl *client) heldLocked() int {
	n := 0
	for _, c := range cl.conns {
		n += c.heldLocked()
	}
	return n
}

// activeLocked says whether it builds.
func (cl *client) activeLocked(now time.Time) bool {
	if cl.demand > 0 {
		return true
	}
	for _, c := range cl.conns {
		if len(c.tasks) > 0 || !c.lastJob.IsZero() && now.Sub(c.lastJob) < activeTime {
			return true
		}
	}
	return false
}

// mostLocked is how many credits it can hold, by its own word.
func (cl *client) mostLocked() int {
	n := 0
	for _, c := range cl.conns {
		if c.want == 0 {
			return unlimited
		}
		n += c.want
	}
	return n
}

// emptiestLocked is the connection that a further credit goes to; nil when each has
// what it can hold.
func (cl *client) emptiestLocked() *conn {
	var best *conn
	for _, c := range cl.conns {
		if (c.want == 0 || c.heldLocked() < c.want) && !c.ended && (best == nil || c.heldLocked() < best.heldLocked()) {
			best = c
		}
	}
	return best
}

// lackingLocked says whether some connection can take no job at all.
func (cl *client) lackingLocked() bool {
	return slices.ContainsFunc(cl.conns, func(c *conn) bool { return c.heldLocked() == 0 && !c.ended })
}

// recallLocked asks for n unspent credits, from where there are most, and sends what
// else is due.
func (cl *client) recallLocked(n int) {
	for _, c := range cl.conns {
		c.toRecall = 0
	}
	for ; n > 0; n-- {
		var most *conn
		for _, c := range cl.conns {
			if left := len(c.credits) - c.toRecall; left > 0 && c.toRecall < math.MaxUint16 && (most == nil || left > len(most.credits)-most.toRecall) {
				most = c
			}
		}
		if most == nil {
			break
		}
		most.toRecall++
	}
	for _, c := range cl.conns {
		c.pumpLocked()
	}
}

// enqueueLocked gives t to the runners.
func (s *Server) enqueueLocked(t *task) {
	cl := t.c.client
	if len(cl.queue) == 0 && cl.runs == 0 {
		cl.pass = max(cl.pass, s.vtime) // no claims from when it wanted nothing
	}
	cl.queue = append(cl.queue, t)
	s.queued++
	s.wake.Signal()
	s.publishLocked()
}

// dequeueLocked takes t out of the queue, if it is there still.
func (s *Server) dequeueLocked(t *task) bool {
	cl := t.c.client
	i := slices.Index(cl.queue, t)
	if i < 0 {
		return false
	}
	cl.queue = slices.Delete(cl.queue, i, i+1)
	s.queued--
	return true
}

// nextTaskLocked is what a free core does next: the first job of the client that has
// had least of the cores for its part. One that has no memory here now is passed
// over; one that nothing is to be waited for, or that has waited for long, is
// returned all the same, with its refusal. Nil: nothing can be done now.
func (s *Server) nextTaskLocked(now time.Time) *task {
	var best *client
	for _, cl := range s.clients {
		if len(cl.queue) == 0 || best != nil && best.pass <= cl.pass {
			continue
		}
		t := cl.queue[0]
		if err := s.roomForLocked(t, now); err != nil {
			if s.running > 0 && now.Sub(t.queued) < memoryWait {
				continue
			}
			t.no = err
		}
		best = cl
	}
	if best == nil {
		return nil
	}
	t := best.queue[0]
	s.dequeueLocked(t)
	s.vtime = max(s.vtime, best.pass)
	t.charge = s.meanWall
	if t.m.Expect > 0 {
		t.charge = time.Duration(t.m.Expect) * time.Millisecond
	}
	best.chargeLocked(t.charge)
	best.runs++
	t.started, t.oomKills = now, s.host.Load().oomKills
	s.running++
	s.worked = true
	s.runs[t] = true
	s.lowQueue = min(s.lowQueue, s.queued)
	return t
}

// ranLocked ends what nextTaskLocked began: the job has left its core.
func (s *Server) ranLocked(t *task, now time.Time) {
	cl := t.c.client
	took := now.Sub(t.started)
	cl.chargeLocked(took - t.charge)
	cl.runs--
	s.running--
	delete(s.runs, t)
	if t.no == nil {
		s.meanWall += (took - s.meanWall) / 8
	}
}

func (cl *client) chargeLocked(d time.Duration) {
	cl.pass += d.Seconds() / float64(cl.part())
}
