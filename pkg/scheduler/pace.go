package scheduler

import "time"

// Pace changes the pauses after losses and the wait for first connections, from now on;
// 0 leaves one as it is. Pauses that have begun stay.
func (s *Scheduler) Pace(backoff, backoffMax, grace time.Duration) {
	for _, d := range []struct {
		at *time.Duration
		to time.Duration
	}{{&s.c.Backoff, backoff}, {&s.c.BackoffMax, backoffMax}, {&s.c.Grace, grace}} {
		if d.to != 0 {
			*d.at = d.to
		}
	}
}

// Resize changes how many jobs LocalHost takes at a time; those that run stay.
func (s *Scheduler) Resize(jobs int) {
	s.local.capacity.Jobs = jobs
	s.local.deepen()
	s.local.plan.ok = false
	s.changed()
}
