package lend

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// Job is a job as far as its turn on a core goes.
type Job struct {
	Owner   any           // whatever the caller knows it by
	Arrived time.Time     // when it came
	Expect  time.Duration // how long it takes, as its client says; 0: it did not
	Memory  uint64        // bytes that it takes, the same

	client  *Client // set by Enqueue
	state   state
	started time.Time     // when a core took it
	charge  time.Duration // that its client was charged with then
	yields  bool          // it is being ended for another tenant's
}

// state is where a job is.
type state uint8

const (
	coming  state = iota // not in a queue yet, or taken out of it
	waiting              // in its client's queue
	running              // on a core
	over                 // it has left its core
)

// Waits reports whether the job waits for a core.
func (j *Job) Waits() bool { return j.state == waiting }

// Runs reports whether the job has a core.
func (j *Job) Runs() bool { return j.state == running }

// Yields reports whether the job was ended for another tenant's.
func (j *Job) Yields() bool { return j.yields }

// Act is what a caller is to do for a core.
type Act uint8

// Acts.
const (
	Idle  Act = iota // nothing can be done now
	Start            // the job takes the core
	Look             // say how much memory is free (Looked), then ask again
	Drop             // drop contents of that many bytes and say how much is free then (Looked), or say that there are fewer (Kept); then ask again
)

// Turn is what a core does next.
type Turn struct {
	Act   Act
	Job   *Job         // of Start
	No    *job.Refusal // of Start: not nil, the job is not run but refused
	Bytes int64        // of Drop
}

// Enqueue puts a job of the connection's into the queue.
func (l *Ledger) Enqueue(c *Conn, j *Job) {
	cl, t := c.client, c.tenant
	if len(cl.queue) == 0 && cl.runs == 0 {
		cl.pass = max(cl.pass, t.vtime) // no claims from when it wanted nothing
	}
	if t.queued == 0 && t.runs == 0 {
		t.pass = max(t.pass, l.vtime)
	}
	j.client, j.state = cl, waiting
	cl.queue = append(cl.queue, j)
	t.queued++
	t.width = max(t.width, t.queued+t.runs)
	l.queued++
}

// Dequeue takes a job out of the queue, and reports whether it was there.
func (l *Ledger) Dequeue(j *Job) bool {
	if j.state != waiting {
		return false
	}
	cl := j.client
	i := slices.Index(cl.queue, j)
	cl.queue = slices.Delete(cl.queue, i, i+1)
	cl.tenant.queued--
	l.queued--
	j.state = coming
	return true
}

// Next returns what a free core does: a job of the tenant that has had least
// of the cores, and of its clients the first job of the one that has had least for
// its part. One that has no memory here now is passed over; one that nothing is to be
// waited for, or that has waited for long, is returned all the same, with its refusal.
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

// nextOf returns the client of a tenant whose first job is next, and why that one is
// refused, if it is; nil: none can be. Unless first is Idle it has to be done before.
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
	// Until it is known what the job took it counts as much as the tenant's jobs do: a client
	// that says that its jobs are short gets no more cores meanwhile.
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

// Ended takes a job from its core. Refused says that it did not run.
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

// Charge counts core time that the connection's client has had beside its jobs' turns.
func (c *Conn) Charge(d time.Duration) { c.client.charge(d) }
