package scheduler

import (
	"fmt"
	"time"
)

// Outcome is what became of a picked job.
type Outcome uint8

// Outcomes.
const (
	Unused  Outcome = iota // it was not sent, or was taken back: says nothing about the host
	OK                     // the compiler ran, whatever its exit status
	Refused                // the host did not want it: eligibility, not health
	Gone                   // the connection was lost under it: Lost counts that
	Killed                 // the compiler was killed by a signal or ran out of memory
	Fault                  // the host could not do it: disk, time-out, corrupt result
	Full                   // the host had no room, though it had granted the credit
)

// strikesOut is how many faults, or killed compilers of different sources, it takes to leave
// a connected host alone for a while. Sources must differ: one that kills every compiler must
// not close the farm.
const strikesOut = 3

// Report holds what is known of a job when it ends. Zero fields are unknown.
type Report struct {
	ID     uint64 // as in Started
	Source string // tells jobs apart; looked at when the compiler was Killed
	Failed bool   // OK, but the compiler rejected the source: its time says little

	// The compiler's, on the host.
	Wall, CPU time.Duration
	RSS       uint64 // peak, bytes
	Bytes     uint64 // moved there
	Result    uint64 // bytes that came back
}

// Done ends a job that Pick or Hedges placed on addr. It is called once for each Run, each
// Hedge, and each Local that holds a place here (with LocalHost), unless ShareDone suffices
// for that. Of a job and its duplicate, the one with the answer is OK and comes before the
// other, which is Unused.
func (s *Scheduler) Done(now time.Time, addr string, o Outcome, r Report) {
	h := s.host(addr)
	s.ended(now, h, addr, o, r)
	if h == nil {
		return
	}
	h.moved = now
	switch o {
	case OK:
		h.ok++
		h.failures, h.doubts, h.strikes, h.fulls = 0, 0, nil, 0
		h.stalls /= 2
	case Killed:
		h.failed++
		for _, old := range h.strikes {
			if old == r.Source {
				return
			}
		}
		s.strike(now, h, r.Source, "compilers were killed")
	case Fault:
		h.failed++
		s.strike(now, h, "", "jobs failed")
	case Gone:
		h.failed++
	case Full:
		// Sometimes that is true. But a host that grants credits and takes nothing costs each job a
		// round trip.
		if h.fulls++; h.fulls >= fullsOut && h.state == Up {
			h.fulls = 0
			h.failures++
			h.open = now.Add(s.pause(h.failures))
			h.why = "it takes no job that it has granted a place"
		}
	case Unused, Refused:
	}
}

// fullsOut is how many jobs in a row must be refused for want of room before the host is left
// alone for a while.
const fullsOut = 3

// strike counts a fault of a connected host.
func (s *Scheduler) strike(now time.Time, h *host, source, what string) {
	if h.state != Up {
		return
	}
	h.strikes = append(h.strikes, source)
	// A half-open host had this job as its test.
	if len(h.strikes) < strikesOut && !h.halfOpen() {
		return
	}
	h.strikes = nil
	h.failures++
	h.doubts = 2
	h.open = now.Add(s.pause(h.failures))
	h.why = fmt.Sprintf("its %s", what)
}

// ShareDone ends a job that held a place here, without a report.
func (s *Scheduler) ShareDone() { s.ended(time.Time{}, &s.local, LocalHost, Unused, Report{}) }

// Drain keeps new jobs away from addr until it is called again with on false, whatever
// becomes of the connection or the list. Jobs that run there are finished.
func (s *Scheduler) Drain(addr string, on bool) {
	if on {
		s.drains[addr] = true
	} else {
		delete(s.drains, addr)
	}
	if h := s.hosts[addr]; h != nil {
		s.free(h)
		h.drained = on
		if !on { // a person has looked at it
			h.suspect, h.doubt = time.Time{}, ""
		}
	}
}

// Trusted reports whether addr is known and not in quarantine.
func (s *Scheduler) Trusted(now time.Time, addr string) bool {
	h := s.hosts[addr]
	return h != nil && !now.Before(h.suspect)
}

// Quarantine keeps jobs away from addr for Config.Quarantine, or until it is undrained,
// because its results are in doubt. why is one line for a person. The host is half open
// afterwards.
func (s *Scheduler) Quarantine(now time.Time, addr, why string) {
	if h := s.hosts[addr]; h != nil {
		h.suspect, h.doubt = now.Add(s.c.Quarantine), why
		h.doubts = max(h.doubts, 2)
		s.changed()
	}
}
