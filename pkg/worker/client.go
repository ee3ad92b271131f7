package worker

import (
	"math"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// client is a manager: all connections that come from one start of it, as a tenant's
// credits and cores are divided among managers and not among connections. The boot
// number that makes it one is the peer's word: it counts among the tenant's own.
//
// All of it is guarded by Server.mu.
type client struct {
	tenant *tenant
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
	t := c.tenant
	if c.boot != ([16]byte{}) {
		for _, cl := range t.clients {
			if cl.boot == c.boot {
				cl.conns = append(cl.conns, c)
				cl.weight = weight
				c.client = cl
				return
			}
		}
	}
	c.client = &client{tenant: t, boot: c.boot, conns: []*conn{c}, weight: weight, demand: -1, pass: t.vtime}
	t.clients = append(t.clients, c.client)
	s.clients = append(s.clients, c.client)
}

// maxWeight bounds what a manager can say of itself: nobody gets everything of its
// tenant's part, and nothing of others'.
const maxWeight = 100

// maxBuilds is how many builds of one manager count.
const maxBuilds = 8

// part is what it gets when there is not enough for all: so much for each of its
// builds, that those of one manager do not go slower than those of many.
func (cl *client) part() int { return cl.weight * max(1, min(cl.builds, maxBuilds)) }

// leaveLocked takes a connection that has ended, with nothing under way, from its client.
func (s *Server) leaveLocked(c *conn) {
	cl, t := c.client, c.tenant
	t.conns--
	t.left = time.Now()
	if cl == nil {
		return // it said nothing
	}
	cl.conns = slices.DeleteFunc(cl.conns, func(x *conn) bool { return x == c })
	if len(cl.conns) == 0 {
		same := func(x *client) bool { return x == cl }
		s.clients = slices.DeleteFunc(s.clients, same)
		t.clients = slices.DeleteFunc(t.clients, same)
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
			return shares.Unlimited
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
	now := time.Now()
	for _, c := range cl.conns {
		if c.toRecall > 0 {
			c.askedLocked(c.toRecall, now)
		}
		c.pumpLocked()
	}
}

// enqueueLocked gives t to the runners.
func (s *Server) enqueueLocked(t *task) {
	cl, tn := t.c.client, t.c.client.tenant
	if len(cl.queue) == 0 && cl.runs == 0 {
		cl.pass = max(cl.pass, tn.vtime) // no claims from when it wanted nothing
	}
	if tn.queued == 0 && tn.runs == 0 {
		tn.pass = max(tn.pass, s.vtime)
	}
	cl.queue = append(cl.queue, t)
	tn.queued++
	tn.width = max(tn.width, tn.queued+tn.runs)
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
	cl.tenant.queued--
	s.queued--
	return true
}

// nextTaskLocked is what a free core does next: a job of the tenant that has had least
// of the cores, and of its clients the first job of the one that has had least for
// its part. One that has no memory here now is passed over; one that nothing is to be
// waited for, or that has waited for long, is returned all the same, with its refusal.
// Nil: nothing can be done now.
func (s *Server) nextTaskLocked(now time.Time) *task {
	var best *client
	p := s.partsLocked(now)
	for _, tn := range s.tenants {
		if tn.queued == 0 || best != nil && best.tenant.pass <= tn.pass || !s.mayRunLocked(tn, p, now) {
			continue
		}
		if cl := s.nextOfLocked(tn, now); cl != nil {
			best = cl
		}
	}
	if best == nil {
		return nil
	}
	tn := best.tenant
	t := best.queue[0]
	s.dequeueLocked(t)
	s.vtime, tn.vtime = max(s.vtime, tn.pass), max(tn.vtime, best.pass)
	// Until it is known what the job took it counts as much as the tenant's jobs do: who
	// says that his are short gets no more cores meanwhile.
	t.charge = s.meanWall
	if tn.meanWall > 0 {
		t.charge = tn.meanWall
	}
	t.charge = max(t.charge, time.Duration(t.m.Expect)*time.Millisecond)
	best.chargeLocked(t.charge)
	best.runs++
	tn.runs++
	t.started, t.oomKills = now, s.host.Load().oomKills
	s.running++
	s.worked = true
	s.runs[t] = true
	s.lowQueue = min(s.lowQueue, s.queued)
	return t
}

// nextOfLocked is the client of a tenant whose first job is next.
func (s *Server) nextOfLocked(tn *tenant, now time.Time) (best *client) {
	for _, cl := range tn.clients {
		if len(cl.queue) == 0 || best != nil && best.pass <= cl.pass {
			continue
		}
		t := cl.queue[0]
		t.no = nil
		if err := s.roomForLocked(t, now); err != nil {
			if s.running > 0 && now.Sub(t.queued) < memoryWait {
				continue
			}
			t.no = err
		}
		best = cl
	}
	return best
}

// ranLocked ends what nextTaskLocked began: the job has left its core.
func (s *Server) ranLocked(t *task, now time.Time) {
	cl := t.c.client
	took := now.Sub(t.started)
	cl.chargeLocked(took - t.charge)
	cl.runs--
	cl.tenant.runs--
	if t.yields {
		cl.tenant.yielding--
	}
	s.running--
	delete(s.runs, t)
	if t.no == nil {
		cl.tenant.ended = now
		s.meanWall += (took - s.meanWall) / 8
	}
}

func (cl *client) chargeLocked(d time.Duration) {
	cl.pass += d.Seconds() / float64(cl.part())
	cl.tenant.pass += d.Seconds()
}
