package scheduler

import "time"

// Bounds for waiting for hosts that are not connected, where no other host can take a job.
const (
	// recheckTime is how long a job that may be done here waits for the outcome of an attempt to
	// connect. A port without a listener, and one with a daemon, answer within a round trip or a
	// few; a machine that is off does not answer at all.
	recheckTime = 100 * time.Millisecond
	recheckRTTs = 4

	// redialEach limits the attempts that jobs ask for: one host each time.
	redialEach = 10 * time.Millisecond

	// strictPace is the interval at which a host is tried again for a job that waits for it;
	// deniedPace is the same for a host that refused this machine.
	strictPace = 500 * time.Millisecond
	deniedPace = time.Second
)

// asked returns the time from which j counts how long it waits for hosts to come back.
func (j *Job) asked(now time.Time) time.Time {
	asked := j.Since
	if asked.IsZero() {
		asked = now
	}
	if j.Strict && !j.Asked.IsZero() {
		asked = j.Asked
	}
	return later(asked, j.Lost)
}

// strictEnd returns how long j, which may not be done here, waits for a host that can come up.
func (s *Scheduler) strictEnd(now time.Time, j *Job) time.Time { return j.asked(now).Add(s.c.Strict) }

// recheck returns how long to wait for the outcome of an attempt to connect h.
func (h *host) recheck() time.Duration { return recheckTime + recheckRTTs*h.link.RTT }

// absent notes in w until when h, which is not connected, is worth waiting for, or in no that
// it is not.
func (s *Scheduler) absent(now time.Time, h *host, j *Job, w *waiting, no *objections) {
	asked := j.asked(now)
	var end time.Time // how long jobs that could be done here wait
	switch {
	case h.state == Lost:
		if s.stale(now, h, j) {
			w.stale, end = true, later(asked, h.since).Add(h.recheck())
		}
	case h.why == "":
		if first := h.firstDue.Add(s.c.Grace); now.Before(first) {
			w.add(first)
			return
		}
	default: // otherwise all jobs of a build would pay for more
		end = h.began.Add(h.recheck())
	}
	if !h.answered.IsZero() {
		end = later(end, h.answered.Add(s.c.Grace))
	}
	if j.Strict && h.refused == "" {
		end = later(end, s.returnEnd(now, h, j))
		if at := s.redialAt(h, j, asked); h.state == Lost && now.Before(at) {
			w.look(at)
		}
	}
	if now.Before(end) {
		w.back(end)
	} else {
		no.lost(h)
	}
}

// stale reports whether what is known of a lost host is so old that j justifies another attempt.
func (s *Scheduler) stale(now time.Time, h *host, j *Job) bool {
	if h.state != Lost || h.drained || h.refused != "" && !j.Strict {
		return false
	}
	asked := j.asked(now)
	if !j.Strict && !now.Before(later(asked, h.since).Add(h.recheck())) {
		return false
	}
	return !now.Before(s.redialAt(h, j, asked))
}

// redialAt returns when j, which came at asked, wants a lost host to be tried again. An attempt
// made since then need not be repeated, except for a job that goes on waiting.
func (s *Scheduler) redialAt(h *host, j *Job, asked time.Time) time.Time {
	all := time.Duration(len(j.Hosts)) * redialEach
	pause := max(s.c.Backoff, all)
	switch {
	case h.refused != "":
		pause = max(pause, deniedPace)
	case j.NoBackoff:
		pause = 0
	}
	if h.began.Before(asked) {
		return h.began.Add(pause)
	}
	if j.Strict && h.refused == "" {
		return h.began.Add(max(strictPace, all))
	}
	return h.began.Add(neverAgain)
}

// neverAgain is longer than any job waits. Added to a monotonic time it does not overflow.
const neverAgain = 100 * 365 * 24 * time.Hour

// redial makes the lost hosts of j due for an attempt where that is worthwhile.
func (s *Scheduler) redial(now time.Time, j *Job) {
	for _, h := range s.resolve(j.Hosts) {
		if h != nil && s.stale(now, h, j) && h.retry.After(now) {
			h.retry = now
		}
	}
}
