package scheduler

import (
	"fmt"
	"time"
)

// Outcome is what became of a picked job.
type Outcome uint8

// Outcomes.
const (
	Unused  Outcome = iota // it was not sent, or taken back: says nothing of the host
	OK                     // the compiler ran, whatever it answered
	Refused                // the host did not want it: eligibility, not health
	Gone                   // the connection was lost under it: Lost counts that
	Killed                 // the compiler was killed by a signal or ran out of memory
	Fault                  // the host could not do it: disk, time-out, broken result
	Full                   // the host had no room, though it had granted the credit
)

// strikesOut is after how many faults, or killed compilers of different sources,
// a connected host is left alone for a while: one source that kills every compiler
// must not close the farm.
const strikesOut = 3

// Report is what is known of a job when it ends. A zero field is unknown.
type Report struct {
	ID     uint64 // as in Started
	Source string // tells jobs apart; looked at when the compiler was Killed
	Failed bool   // OK, but the compiler objected to the source: its time says little

	// Of the compiler, on the host.
	Wall, CPU time.Duration
	RSS       uint64 // peak, bytes
	Bytes     uint64 // moved there
	Result    uint64 // bytes that came back
}

// Done ends a job that Pick or Hedges placed on addr. It is called once for each
// Run, each Hedge, and each Local that holds a place here and reports more than
// ShareDone does (with LocalHost). Of a job and its duplicate, the one that has an
// answer is OK, and comes before the other, which is Unused.
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
		// Now and then it is the truth. One that grants and takes nothing costs each
		// job a way there and back.
		if h.fulls++; h.fulls >= fullsOut && h.state == Up {
			h.fulls = 0
			h.failures++
			h.open = now.Add(s.pause(h.failures))
			h.why = "it takes no job that it has granted a place"
		}
	case Unused, Refused:
	}
}

// fullsOut is how many jobs running must be refused for want of room until the host
// is left alone for a while.
const fullsOut = 3

// strike counts a fault of a connected host.
func (s *Scheduler) strike(now time.Time, h *host, source, what string) {
	if h.state != Up {
		return
	}
	h.strikes = append(h.strikes, source)
	// Half open means that this job was the test.
	if len(h.strikes) < strikesOut && !h.halfOpen() {
		return
	}
	h.strikes = nil
	h.failures++
	h.doubts = 2
	h.open = now.Add(s.pause(h.failures))
	h.why = fmt.Sprintf("its %s", what)
}

// ShareDone ends a job that held a place here.
func (s *Scheduler) ShareDone() { s.ended(time.Time{}, &s.local, LocalHost, Unused, Report{}) }

// Drain keeps new jobs away from addr until it is called again, whatever becomes
// of the connection or the list; those that run there are finished.
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

// Quarantine keeps jobs away from addr for Config.Quarantine, or until it is
// undrained: its results are in doubt. why is one line for a person. Then it is
// half open.
func (s *Scheduler) Quarantine(now time.Time, addr, why string) {
	if h := s.hosts[addr]; h != nil {
		h.suspect, h.doubt = now.Add(s.c.Quarantine), why
		h.doubts = max(h.doubts, 2)
		s.changed()
	}
}
