package scheduler

import "time"

// Pace changes, from now on, the pauses after losses and how long jobs wait for hosts that can
// come up. It reads only those fields of c, and a field that is 0 leaves the current value.
// Pauses that have begun stay as they are.
func (s *Scheduler) Pace(c Config) {
	for _, d := range []struct {
		at *time.Duration
		to time.Duration
	}{{&s.c.Backoff, c.Backoff}, {&s.c.BackoffMax, c.BackoffMax}, {&s.c.Grace, c.Grace}, {&s.c.Strict, c.Strict}} {
		if d.to != 0 {
			*d.at = d.to
		}
	}
}

// Resize changes how many jobs LocalHost takes at a time. Those that run stay.
func (s *Scheduler) Resize(jobs int) {
	s.local.capacity.Jobs = jobs
	s.local.deepen()
	s.local.plan.ok = false
	s.changed()
}
