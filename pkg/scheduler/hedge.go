package scheduler

import (
	"cmp"
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
// one more for so many jobs that run.
const (
	soonest    = 500 * time.Millisecond
	guessP95   = 3
	someCopies = 2
	runsACopy  = 20
	hedgeAgain = 250 * time.Millisecond
)

// Hedges lists the jobs that are later than 19 of 20 of their like, and for which
// another host has a place where they would end sooner, within the budget of
// duplicates. Whoever answers first wins, and the owner cancels the other. next is
// when to ask again, zero when nothing that runs can become late.
//
// After J. Dean, L. A. Barroso: The Tail at Scale, CACM 56(2), 2013.
func (s *Scheduler) Hedges(now time.Time) (list []Hedge, next time.Time) {
	t := s.clock(now)
	var late []*run
	var soonest time.Duration = -1
	for _, r := range s.runs {
		switch {
		case r.twin != nil || r.host == LocalHost || len(r.job.Hosts) < 2:
		case r.late > t:
			if soonest < 0 || r.late < soonest {
				soonest = r.late
			}
		default:
			late = append(late, r)
		}
	}
	slices.SortFunc(late, func(a, b *run) int { return cmp.Or(cmp.Compare(a.late, b.late), cmp.Compare(a.id, b.id)) })
	budget := someCopies + len(s.runs)/runsACopy - s.copies
	left := 0
	for _, r := range late {
		if budget <= 0 || !s.second(now, t, r, &list) {
			left++
			continue
		}
		budget--
	}
	if again := t + hedgeAgain; left > 0 && (soonest < 0 || again < soonest) {
		soonest = again
	}
	if soonest >= 0 {
		next = s.began.Add(soonest)
	}
	return list, next
}

// second places a duplicate of r, if it would end before r.
func (s *Scheduler) second(now time.Time, t time.Duration, r *run, list *[]Hedge) bool {
	var w waiting
	var no objections
	c, _ := s.choose(now, r.job, r.host, &w, &no)
	// What is late takes about half as long again as it has taken, at least.
	if c.h == nil || c.finish > t+(t-r.arrive)/2 {
		return false
	}
	s.place(now, r.job, c)
	*list = append(*list, Hedge{ID: r.id, Host: c.h.addr})
	return true
}

// stalled counts that a job of h was overtaken by its duplicate. A host that lets
// several jobs lie gets fewer of them, and then none for a while.
func (s *Scheduler) stalled(now time.Time, h *host) {
	if h == nil {
		return
	}
	h.stalls++
	h.plan.ok = false
	if h.stalls >= stallsOut && h.state == Up {
		h.stalls = 1
		h.failures++
		h.doubts = max(h.doubts, 2)
		h.open = now.Add(s.pause(h.failures))
		h.why = "its jobs do not end"
	}
}

// stallsOut is how many jobs running must be overtaken for that.
const stallsOut = 3
