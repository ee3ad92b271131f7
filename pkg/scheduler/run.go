package scheduler

import (
	"cmp"
	"slices"
	"time"
)

// run is a job that is at a host, or on its way there and back.
type run struct {
	id        uint64
	host      string
	job       *Job
	started   time.Time
	late      time.Time // past its 95th percentile from then on
	duplicate bool
	twin      *run // the other attempt at the same job
}

// A job and its duplicate have one number, and different hosts.
type runKey struct {
	id   uint64
	host string
}

// Started says that a job which Pick or Hedges placed on addr is on its way there:
// at once after their word. id is the owner's, the same for a job and its
// duplicates, and comes back in the Report. j is not changed before Done.
func (s *Scheduler) Started(now time.Time, id uint64, addr string, j *Job) {
	h := s.host(addr)
	if h == nil {
		return
	}
	r := &run{id: id, host: addr, job: j, started: now}
	p95 := j.Cost.P95
	if p95 == 0 {
		p95 = guessP95 * s.time(j)
	}
	r.late = now.Add(max(h.way(j.Bytes)+time.Duration(float64(p95)/h.speedWith(j.Toolchain)), soonest))
	s.runs[runKey{id, addr}] = r
	h.runs = append(h.runs, r)
	s.builds[j.Build]++
	for _, other := range s.runs {
		if other.id == id && other != r {
			r.duplicate, r.twin, other.twin = true, other, r
			s.hedges++
		}
	}
}

// ended forgets a run; h is nil if the host is.
func (s *Scheduler) ended(_ time.Time, h *host, addr string, o Outcome, rep Report) {
	k := runKey{rep.ID, addr}
	r := s.runs[k]
	if r == nil {
		return
	}
	delete(s.runs, k)
	if s.builds[r.job.Build]--; s.builds[r.job.Build] <= 0 {
		delete(s.builds, r.job.Build)
	}
	if r.twin != nil {
		s.hedges--
		r.twin.twin, r.twin.duplicate = nil, false
	}
	if h == nil {
		return
	}
	if i := slices.Index(h.runs, r); i >= 0 {
		h.runs = slices.Delete(h.runs, i, i+1)
	}
	if o == OK {
		s.learn(h, r, rep)
	}
}

// Hedge is a running job that is worth a duplicate on another host. As if Pick had
// said Run: one of the host's credits is taken, Started and Done are due.
type Hedge struct {
	ID   uint64
	Host string
}

// Duplicates: a job is late soonest after it began, and by guessP95 times its
// prediction where there is no percentile. At most this many at a time: some, and
// one for so many jobs that run.
const (
	soonest     = 500 * time.Millisecond
	guessP95    = 3
	someHedges  = 1
	runsAHedge  = 20
	hedgeAgain  = 250 * time.Millisecond
	neverHedged = 2 // hosts that must be in a list for it
)

// Hedges lists the jobs that are later than 19 of 20 of their like, and for which
// another host has a place, within the budget of duplicates. Whoever answers first
// wins, and the owner cancels the other. next is when to ask again, zero when
// nothing that runs can become late.
//
// After J. Dean, L. A. Barroso: The Tail at Scale, CACM 56(2), 2013.
func (s *Scheduler) Hedges(now time.Time) (list []Hedge, next time.Time) {
	budget := someHedges + len(s.runs)/runsAHedge - s.hedges
	var late []*run
	for _, r := range s.runs {
		switch {
		case r.twin != nil || r.host == LocalHost || len(r.job.Hosts) < neverHedged:
		case r.late.After(now):
			if next.IsZero() || r.late.Before(next) {
				next = r.late
			}
		default:
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *run) int { return cmp.Or(a.late.Compare(b.late), cmp.Compare(a.id, b.id)) })
	left := 0
	for _, r := range late {
		h := s.second(now, r)
		if budget <= 0 || h == nil {
			left++
			continue
		}
		budget--
		s.take(now, h)
		list = append(list, Hedge{ID: r.id, Host: h.addr})
	}
	if again := now.Add(hedgeAgain); left > 0 && (next.IsZero() || again.Before(next)) {
		next = again
	}
	return list, next
}

// second is the host for a duplicate of r, or nil.
func (s *Scheduler) second(now time.Time, r *run) *host {
	var w waiting
	var no objections
	return s.choose(now, r.job, r.host, &w, &no)
}
