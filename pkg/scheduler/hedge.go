package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Hedge is a running job that is worth a duplicate on another host. As if Pick had
// said Run: one of the host's credits is taken, Started and Done are due.
type Hedge struct {
	ID   uint64
	Host string
}

// Duplicates: a job is late soonest after it began, and by guessP95 times its
// prediction where there is no percentile. At most someCopies at a time, and
// one more for so many jobs that run; or one for so many that were started, as far as
// none was needed for those: a host that stalls leaves many at once.
const (
	soonest    = 500 * time.Millisecond
	guessP95   = 3
	someCopies = 2
	runsACopy  = 20
	mostSpare  = 50
	hedgeAgain = 250 * time.Millisecond
	mostMisses = 4 // jobs that are looked at each time without finding a place
	never      = time.Duration(math.MaxInt64)
)

// Hedges lists the jobs that are later than 19 of 20 of their like, and for which
// another host has a place where they would end sooner, within the budget of
// duplicates. Whoever answers first wins, and the owner cancels the other. next is
// when to ask again, zero when nothing that runs can become late.
//
// After J. Dean, L. A. Barroso: The Tail at Scale, CACM 56(2), 2013.
func (s *Scheduler) Hedges(now time.Time) (list []Hedge, next time.Time) {
	t := s.clock(now)
	if t < s.hedgeAt {
		if s.hedgeAt == never {
			return nil, time.Time{}
		}
		return nil, s.began.Add(s.hedgeAt)
	}
	var late []*run
	s.hedgeAt = never
	for _, r := range s.runs {
		switch {
		case r.twin != nil || r.over || s.hosts[r.host] == nil || len(r.job.Hosts) < 2:
		case r.late > t:
			s.hedgeAt = min(s.hedgeAt, r.late)
		default:
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *run) int { return cmp.Or(cmp.Compare(a.late, b.late), cmp.Compare(a.id, b.id)) })
	budget := max(someCopies+len(s.runs)/runsACopy-s.copies, int(s.spare))
	at := s.hedgeAt
	misses := 0
	for _, r := range late {
		if budget > 0 && misses < mostMisses && r.again <= t {
			c, free := s.second(now, t, r)
			if c.h != nil {
				s.place(now, r.job, c)
				list = append(list, Hedge{ID: r.id, Host: c.h.addr})
				budget--
				s.spare = max(s.spare-1, 0)
				continue
			}
			misses++
			if free {
				r.again = t + hedgeAgain
			}
		}
		// The first place that comes free may be it, or some time will tell.
		s.hedgeAt, at = t, min(at, t+hedgeAgain)
	}
	if len(list) == len(late) {
		s.hedgeAt = at // what was placed here has its twin
	}
	if at != never {
		next = s.began.Add(at)
	}
	return list, next
}

// second is where a duplicate of r would end before r; free says whether there was
// any place.
func (s *Scheduler) second(now time.Time, t time.Duration, r *run) (c candidate, free bool) {
	// What is late takes half as long again as it has taken, at least; a long job,
	// there and elsewhere, as long again.
	j := *r.job
	elapsed := t - max(r.arrive, r.begin)
	left := elapsed / 2
	there := s.length(s.hosts[r.host], t, time.Second, j.Toolchain).Seconds()
	if s.blamed(r) { // by what is known of its host by now
		left = max(left, time.Duration(float64(r.one)*there)-elapsed)
	} else {
		left = elapsed
		j.Cost.Time = max(s.time(&j), time.Duration(float64(elapsed+left)/there))
	}
	var w waiting
	var no objections
	c, later := s.choose(now, &j, r.host, false, &w, &no)
	if c.h == nil {
		return c, false
	}
	if c.finish > t+left || later.h != nil && later.finish+c.length/worthIt < c.finish {
		return candidate{}, true
	}
	return c, true
}

// blamed says whether it is the host of r that is late, not just r: it is known how
// long r takes, or the host has had no answer to anything since r came.
func (s *Scheduler) blamed(r *run) bool {
	h := s.hosts[r.host]
	return r.known || h == nil || h.heard <= r.arrive
}

// stalled counts that r was overtaken by its duplicate. A host that lets several
// jobs lie gets fewer of them, and then none for a while.
func (s *Scheduler) stalled(now time.Time, r *run) {
	h := s.hosts[r.host]
	if h == nil || !s.blamed(r) {
		return
	}
	h.stalls++
	h.plan.ok = false
	// Half open means that r was the test.
	if (h.stalls >= stallsOut || h.halfOpen()) && h.state == Up {
		h.stalls = 1
		h.failures++
		h.doubts = max(h.doubts, 2)
		h.open = now.Add(s.pause(h.failures))
		h.why = "its jobs do not end"
		for _, x := range h.runs { // nor will these
			x.late = min(x.late, s.clock(now))
			s.hedgeAt = min(s.hedgeAt, x.late)
		}
	}
}

// stallsOut is how many jobs running must be overtaken for that.
const stallsOut = 3
