package farm

import (
	"time"
)

// dispatchLocked asks the scheduler about the jobs that take too long on their host, and about all that wait,
// in an order that is fair among builds.
func (f *Farm) dispatchLocked() {
	if len(f.queue.waiting) == 0 && len(f.queue.asking) == 0 && len(f.racing) == 0 {
		return
	}
	now := time.Now()
	next := f.formsLocked(now)
	soon := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	soon(f.hedgesLocked(now)) // before waiting jobs take the places
	f.queue.jobs = f.queue.jobs[:0]
	for _, r := range f.queue.waiting {
		f.queue.jobs = append(f.queue.jobs, &r.Job)
	}
	served := 0
	for _, i := range f.sched.Order(now, f.queue.jobs) {
		r := f.queue.waiting[i]
		g, ok := f.tryLocked(now, r)
		if !ok {
			soon(g.Decision.Until)
			continue
		}
		r.ready <- g
		f.queue.jobs[i] = nil
		served++
	}
	if served > 0 {
		left := f.queue.waiting[:0]
		for i, r := range f.queue.waiting {
			if f.queue.jobs[i] != nil {
				left = append(left, r)
			}
		}
		clear(f.queue.waiting[len(left):])
		f.queue.waiting = left
	}
	clear(f.queue.jobs)
	soon(f.hedgesLocked(now)) // jobs that have just been placed can become late
	if !next.IsZero() {
		f.queue.alarm.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// wake runs when the alarm fires: time alone may have changed the scheduler's decisions.
func (f *Farm) wake() {
	f.mu.Lock()
	f.dispatchLocked()
	f.mu.Unlock()
}
