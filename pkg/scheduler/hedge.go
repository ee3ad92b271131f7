package scheduler

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Hedge is a running job that deserves a duplicate on another host. It is as if Pick had
// said Run: one of the host's credits is taken, and Started and Done are due.
type Hedge struct {
	ID   uint64
	Host string
}

// Duplicates. A job is late at soonest after it began, and after guessP95 times its prediction
// if no percentile is known. At most someCopies run at a time, plus one for every runsACopy
// jobs that run; or as many as started jobs have earned and not needed, up to mostSpare, since
// a host that stalls leaves many jobs behind at once.
const (
	soonest    = 500 * time.Millisecond
	guessP95   = 3
	someCopies = 2
	runsACopy  = 20
	mostSpare  = 50
	hedgeAgain = 250 * time.Millisecond
	mostMisses = 4 // jobs examined each time without finding a place
	never      = time.Duration(math.MaxInt64)
)

// Hedges returns the jobs that take longer than 19 of 20 comparable ones and would end sooner
// on another host that has a place, within the budget of duplicates. The first answer wins, and
// the owner cancels the other attempt. next is when to ask again, zero when no running job can
// become late.
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
		// The next free place may do, or the passing time may change the verdict.
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

// second returns where a duplicate of r would end before r. free reports whether there was any
// place at all.
func (s *Scheduler) second(now time.Time, t time.Duration, r *run) (c candidate, free bool) {
	// A late job is assumed to need at least half as long again as it has had; a long job needs as
	// long again, there and elsewhere.
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

// blamed reports whether r's host is to blame for r being late: r's length is known, or the
// host has answered no job since r arrived.
func (s *Scheduler) blamed(r *run) bool {
	h := s.hosts[r.host]
	return r.known || h == nil || h.heard <= r.arrive
}

// stalled notes that r was overtaken by its duplicate. A host that stalls several jobs gets
// fewer of them, and then none for a while.
func (s *Scheduler) stalled(now time.Time, r *run) {
	h := s.hosts[r.host]
	if h == nil || !s.blamed(r) {
		return
	}
	h.stalls++
	h.plan.ok = false
	// A half-open host had r as its test.
	if (h.stalls >= stallsOut || h.halfOpen()) && h.state == Up {
		h.stalls = 1
		h.failures++
		h.doubts = max(h.doubts, 2)
		h.open = now.Add(s.pause(h.failures))
		h.why = "its jobs do not end"
		for _, x := range h.runs { // those will not end either
			x.late = min(x.late, s.clock(now))
			s.hedgeAt = min(s.hedgeAt, x.late)
		}
	}
}

// stallsOut is how many jobs in a row must be overtaken for that.
const stallsOut = 3
