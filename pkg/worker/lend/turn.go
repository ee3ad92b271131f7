package lend

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Job is a job as the Ledger sees it: something that waits for a core and then uses it.
type Job struct {
	Owner   any // the caller's own object for it
	Arrived time.Time
	Expect  time.Duration // wall time that the client predicts; 0: no prediction
	Memory  uint64        // bytes that the client predicts; 0: no prediction

	client  *Client // set by Enqueue
	state   state
	started time.Time     // when it got a core
	charge  time.Duration // what its client was charged with at that time
	yields  bool          // it is being ended for a job of another tenant
	ahead   bool          // it counts in Tenant.ahead
}

// state says where a job is.
type state uint8

const (
	coming  state = iota // not in a queue yet, or removed from it
	waiting              // in its client's queue
	away                 // in its client's queue, until its source may be fetched
	running              // on a core
	over                 // it has left its core
)

// Waits reports whether the job waits for a core, or for its source to be fetched.
func (j *Job) Waits() bool { return j.state == waiting || j.state == away }

// Runs reports whether the job has a core.
func (j *Job) Runs() bool { return j.state == running }

// Yields reports whether the job is being ended, or was, for a job of another tenant.
func (j *Job) Yields() bool { return j.yields }

// Act says what the caller has to do for a core.
type Act uint8

// Acts.
const (
	Idle  Act = iota // nothing to do now
	Start            // run the job
	Look             // report how much memory is free (Looked), then call Next again
	// Drop means to drop Turn.Bytes of contents and report how much memory is free then (Looked), or to
	// report that there are not as many (Kept). Then call Next again.
	Drop
)

// Turn is what a core does next.
type Turn struct {
	Act   Act
	Job   *Job         // for Start
	No    *job.Refusal // for Start: if not nil, refuse the job instead of running it
	Bytes int64        // for Drop
}

// Enqueue adds a job of the connection to its client's queue.
func (l *Ledger) Enqueue(c *Conn, j *Job) {
	l.queue(c, j)
	j.state = waiting
	c.client.queue = append(c.client.queue, j)
}

// queue counts a job that comes into a queue of its client.
func (l *Ledger) queue(c *Conn, j *Job) {
	cl, t := c.client, c.tenant
	if len(cl.queue)+len(cl.away) == 0 && cl.runs == 0 {
		cl.pass = max(cl.pass, t.vtime) // time without jobs earns nothing
	}
	if t.queued == 0 && t.runs == 0 {
		t.pass = max(t.pass, l.vtime)
	}
	j.client = cl
	t.queued++
	t.width = max(t.width, t.queued+t.runs)
	l.queued++
}

// Dequeue removes a job from its queue, and reports whether it was there.
func (l *Ledger) Dequeue(j *Job) bool {
	if !j.Waits() {
		return false
	}
	cl := j.client
	from := &cl.queue
	if j.state == away {
		from = &cl.away
	}
	i := slices.Index(*from, j)
	*from = slices.Delete(*from, i, i+1)
	j.landed()
	cl.tenant.queued--
	l.queued--
	j.state = coming
	return true
}

// Next returns what a free core does next: the first job of the client that has used the least core time for
// its part, among the clients of the tenant that has used the least core time. A job for which there is no
// memory now is passed over. If no other job runs, or it has waited for memoryWait, Next returns it
// nevertheless, with a refusal.
func (l *Ledger) Next(now time.Time) Turn {
	var best *Client
	var no *job.Refusal
	p := l.parts(now)
	for _, t := range l.tenants {
		if t.queued == 0 || best != nil && best.tenant.pass <= t.pass || !l.mayRun(t, p, now) {
			continue
		}
		cl, why, first := l.nextOf(t, now)
		if first.Act != Idle {
			return first
		}
		if cl != nil {
			best, no = cl, why
		}
	}
	if best == nil {
		return Turn{}
	}
	return Turn{Act: Start, Job: l.start(best, now), No: no}
}

// nextOf returns the client of a tenant whose first job is next, or nil if no job can run. no is why that job
// is refused, if it is. If first is not Idle, the caller has to do that before it can be known.
func (l *Ledger) nextOf(t *Tenant, now time.Time) (best *Client, no *job.Refusal, first Turn) {
	for _, cl := range t.clients {
		if len(cl.queue) == 0 || best != nil && best.pass <= cl.pass {
			continue
		}
		j := cl.queue[0]
		why, first := l.roomFor(j, now)
		if first.Act != Idle {
			return nil, nil, first
		}
		if why != nil && len(l.running) > 0 && now.Sub(j.Arrived) < memoryWait {
			continue
		}
		best, no = cl, why
	}
	return best, no, Turn{}
}

// start gives a core to the first job of a client.
func (l *Ledger) start(cl *Client, now time.Time) *Job {
	j, t := cl.queue[0], cl.tenant
	l.Dequeue(j)
	l.vtime, t.vtime = max(l.vtime, t.pass), max(t.vtime, cl.pass)
	// Until it is known what the job took, it counts as the tenant's average at least, so that a client gets
	// no more cores by claiming that its jobs are short.
	j.charge = l.meanWall
	if t.meanWall > 0 {
		j.charge = t.meanWall
	}
	j.charge = max(j.charge, j.Expect)
	cl.charge(j.charge)
	cl.runs++
	t.runs++
	j.state, j.started = running, now
	l.running = append(l.running, j)
	l.depth.worked = true
	l.depth.lowQueue = min(l.depth.lowQueue, l.queued)
	return j
}

// Ended records that a job has left its core. refused means that it did not run.
func (l *Ledger) Ended(j *Job, refused bool, now time.Time) {
	cl, t := j.client, j.client.tenant
	took := now.Sub(j.started)
	cl.charge(took - j.charge)
	cl.runs--
	t.runs--
	if j.yields {
		t.yielding--
	}
	i := slices.Index(l.running, j)
	l.running = slices.Delete(l.running, i, i+1)
	j.state = over
	if !refused {
		t.ended = now
		l.meanWall += (took - l.meanWall) / 8
	}
}

// Charge counts core time that the connection's client has used in addition to that of its jobs.
func (c *Conn) Charge(d time.Duration) { c.client.charge(d) }
