package scheduler

import (
	"slices"
	"time"
)

// run is a job that Pick or Hedges placed: on a host, or on its way there or back.
type run struct {
	id   uint64
	host string
	job  *Job // nil until Started

	one     time.Duration // time on a core of speed 1
	blind   bool          // one is a guess from nothing
	length  time.Duration // runtime there
	p95     time.Duration // exceeded by 1 in 20 such jobs
	arrive  time.Duration // when it reaches the host
	known   bool          // its length is known
	memory  uint64        // peak, bytes
	begin   time.Duration // when it got a core, roughly; negative: not yet
	late    time.Duration // when it exceeds 19 of 20 such jobs
	copy    bool          // a duplicate
	twin    *run          // the other attempt at the same job
	started bool
	over    bool          // its twin has the answer: this one is being cancelled
	again   time.Duration // no duplicate before then: none would have ended sooner at the last try
}

// runKey identifies a run. A job and its duplicate have the same number, but different hosts.
type runKey struct {
	id   uint64
	host string
}

// place puts j on h, with the times that choose has found.
func (s *Scheduler) place(now time.Time, j *Job, c candidate) {
	t := s.clock(now)
	h := c.h
	r := &run{host: h.addr, one: c.one, blind: c.blind, length: c.length, arrive: c.arrive, begin: -1, memory: j.Cost.Memory, known: j.Cost.Known}
	p95 := j.Cost.P95
	if p95 < c.one {
		p95 = guessP95 * c.one
	}
	r.p95 = max(time.Duration(float64(c.length)*float64(p95)/float64(c.one)), soonest)
	free := s.freeAt(h, t)
	if len(h.runs) < h.cores() && free <= r.arrive {
		r.begin = r.arrive
		r.late = r.begin + s.back(h) + r.p95
	} else { // behind others, whose times may be wrong by half
		r.late = r.arrive + max(free-r.arrive, 0)*2 + s.back(h) + r.p95
	}
	s.hedgeAt = min(s.hedgeAt, r.late)
	h.sent = max(t, h.sent) + h.moves(j.bytes(h))
	h.runs = append(h.runs, r)
	h.plan.ours = min(h.plan.ours, max(free, r.arrive)+r.length)
	h.plan.add(r.arrive, r.length)
	h.moved = now
	if h != &s.local {
		h.credits--
	}
}

// Started tells the scheduler that a job which Pick or Hedges placed on addr is on its way
// there. It is called right after their answer. id is the owner's, the same for a job and its
// duplicates, and comes back in the Report. j must not change before Done.
func (s *Scheduler) Started(now time.Time, id uint64, addr string, j *Job) {
	h := s.host(addr)
	if h == nil {
		return
	}
	var r *run
	for _, x := range h.runs { // in the order in which they were placed
		if !x.started {
			r = x
			break
		}
	}
	if r == nil { // its host was forgotten and listed again
		return
	}
	r.id, r.job, r.started = id, j, true
	s.runs[runKey{id, addr}] = r
	s.builds[j.Build]++
	for i := range j.Hosts {
		if x := s.runs[runKey{id, j.Hosts[i].Addr}]; x != nil && x != r {
			r.copy, r.twin, x.twin = true, x, r
			s.copies++
		}
	}
	if !r.copy {
		s.spare = min(s.spare+1./runsACopy, mostSpare)
	}
}

// ended forgets a run: the one of the report, or the first that was never Started. h is nil if
// the host has been forgotten.
func (s *Scheduler) ended(now time.Time, h *host, addr string, o Outcome, rep Report) {
	k := runKey{rep.ID, addr}
	r := s.runs[k]
	if r != nil {
		delete(s.runs, k)
		if s.builds[r.job.Build]--; s.builds[r.job.Build] <= 0 {
			delete(s.builds, r.job.Build)
		}
	}
	i := -1
	if h != nil {
		i = slices.IndexFunc(h.runs, func(x *run) bool { return x == r || r == nil && !x.started })
	}
	t := s.clock(now)
	if r != nil && r.twin != nil {
		if w := r.twin; o == OK && !w.copy && t > w.late {
			s.stalled(now, w)
		}
		s.copies--
		r.twin.twin, r.twin.copy, r.twin.over = nil, false, o == OK
		s.hedgeAt = min(s.hedgeAt, r.twin.late)
	}
	if i < 0 {
		return
	}
	r = h.runs[i]
	h.runs = slices.Delete(h.runs, i, i+1)
	h.plan.ok = false
	s.free(h)
	if o == OK {
		s.learn(t, h, r, rep)
	}
}
