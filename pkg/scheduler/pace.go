package scheduler

import "time"

// Pace changes the pauses after losses and how long jobs wait for hosts that can come up,
// from now on; a field of c that is 0 leaves its own as it is, and others are not looked
// at. Pauses that have begun stay.
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

// Resize changes how many jobs LocalHost takes at a time; those that run stay.
func (s *Scheduler) Resize(jobs int) {
	s.local.capacity.Jobs = jobs
	s.local.deepen()
	s.local.plan.ok = false
	s.changed()
}
