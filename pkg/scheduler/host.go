package scheduler

import (
	"fmt"
	"time"
)

// State of a host.
type State uint8

// States.
const (
	Unknown    State = iota // listed, never connected
	Connecting              // an attempt is under way
	Up                      // connected: takes jobs
	Draining                // connected: finishes what it has
	Lost                    // not connected; another attempt follows after a pause
)

var stateNames = [...]string{"unknown", "connecting", "up", "draining", "lost"}

func (s State) String() string { return stateNames[s] }

// Load is a host's own view of itself.
type Load struct {
	Running, Queued int     // compiles of all managers
	Average         float64 // one-minute load average
	MemoryFree      uint64  // bytes
}

// Capacity is what a host said when it was connected.
type Capacity struct {
	Jobs       int    // compiles at a time
	MaxBody    uint64 // bytes of a source and its arguments; 0 = unknown
	Toolchains int    // how many Toolchains will name
	Tree       bool   // it can show private trees
}

// host is one address.
type host struct {
	addr    string
	state   State
	since   time.Time // of state
	why     string    // what ended the last connection or attempt
	refused string    // reason that stands for the loss, or empty: ReasonLost

	firstDue time.Time // when the first connection was asked for
	retry    time.Time // Unknown, Lost: not to be connected before

	// Of the connection, while Up or Draining.
	capacity   Capacity
	toolchains map[[16]byte]bool
	credits    int
	moved      time.Time // when a credit came or went, or a job ended
	load       Load
	loadAt     time.Time
	others     int // of the jobs that load speaks of, those of other managers

	running int // jobs picked whose Done is due

	// Health. failures counts attempts and connections that came to nothing since a
	// job went well: it sets the pause. doubts counts those that took jobs with
	// them: two make the host half open. strikes are faults that did not count yet.
	failures int
	doubts   int
	open     time.Time // Up: takes no job before
	strikes  []string  // sources, oldest first

	ok, failed uint64 // jobs since the start
}

func (h *host) set(now time.Time, s State) {
	h.state, h.since = s, now
}

// capable says that all toolchains that the host announced are known.
func (h *host) capable() bool { return len(h.toolchains) >= h.capacity.Toolchains }

// halfOpen says that the host has to prove itself: one job at a time.
func (h *host) halfOpen() bool { return h.doubts >= 2 }

// Connecting says that an attempt to connect addr began.
func (s *Scheduler) Connecting(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil {
		h.set(now, Connecting)
	}
}

// Up says that addr is connected. Its credits are none until Credits is called.
func (s *Scheduler) Up(now time.Time, addr string, c Capacity) {
	h := s.hosts[addr]
	if h == nil {
		return
	}
	h.set(now, Up)
	h.capacity = c
	h.toolchains = make(map[[16]byte]bool)
	h.credits, h.moved = 0, now
	h.refused = ""
	h.open = time.Time{}
}

// Toolchains adds to what addr can run.
func (s *Scheduler) Toolchains(addr string, ids ...[16]byte) {
	if h := s.hosts[addr]; h != nil && h.toolchains != nil {
		for _, id := range ids {
			h.toolchains[id] = true
		}
	}
}

// Credits says how many unspent credits of addr are at hand now.
func (s *Scheduler) Credits(now time.Time, addr string, n int) {
	if h := s.hosts[addr]; h != nil && h.credits != n {
		h.credits, h.moved = max(n, 0), now
	}
}

// Load passes on what addr says of itself.
func (s *Scheduler) Load(now time.Time, addr string, l Load) {
	if h := s.hosts[addr]; h != nil {
		h.load, h.loadAt = l, now
		h.others = max(0, l.Running+l.Queued-h.running)
	}
}

// Draining says that addr takes no new job; those that run are finished.
func (s *Scheduler) Draining(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		h.set(now, Draining)
	}
}

// Lost says that the connection to addr has ended, or could not be made. why is
// one line for a person. denied tells a host that does not want this manager from
// one that is not there. It returns when to try again; Due says the same.
//
// Jobs that were under way there still report Done, as Gone, and after this.
func (s *Scheduler) Lost(now time.Time, addr, why string, denied bool) time.Time {
	h := s.hosts[addr]
	if h == nil {
		return now
	}
	// A connection that lasted is no sign of a bad host when it ends.
	if (h.state == Up || h.state == Draining) && now.Sub(h.since) > s.c.BackoffMax {
		h.failures = 0
	}
	// A host that drained and went did as it said.
	if h.state != Draining {
		h.failures++
		if h.state == Up && h.running > 0 {
			h.doubts++
		}
	}
	pause := s.pause(max(h.failures, 1))
	h.refused = ""
	if denied {
		h.refused = ReasonDenied
		pause = s.c.BackoffMax // it will not change its mind soon
	}
	h.set(now, Lost)
	h.why = why
	h.retry = now.Add(pause)
	h.toolchains, h.credits, h.strikes = nil, 0, nil
	return h.retry
}

// pause after the n-th failure running: doubling, and spread over a quarter to
// each side so that managers that lost a host together do not return together.
func (s *Scheduler) pause(n int) time.Duration {
	d := s.c.Backoff
	for ; n > 1 && d < s.c.BackoffMax; n-- {
		d *= 2
	}
	d = min(d, s.c.BackoffMax)
	return d*3/4 + time.Duration(s.c.Rand()*float64(d)/2)
}

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
)

// strikesOut is after how many faults, or killed compilers of different sources,
// a connected host is left alone for a while: one source that kills every compiler
// must not close the farm.
const strikesOut = 3

// Done ends a job that Pick placed on addr; source tells jobs apart and is only
// looked at when one was Killed. It is called once for each Run.
func (s *Scheduler) Done(now time.Time, addr string, o Outcome, source string) {
	h := s.hosts[addr]
	if h == nil {
		return
	}
	h.running = max(h.running-1, 0) // may be of a host forgotten and listed again
	h.moved = now
	switch o {
	case OK:
		h.ok++
		h.failures, h.doubts, h.strikes = 0, 0, nil
	case Killed:
		h.failed++
		for _, old := range h.strikes {
			if old == source {
				return
			}
		}
		s.strike(now, h, source, "compilers were killed")
	case Fault:
		h.failed++
		s.strike(now, h, "", "jobs failed")
	case Gone:
		h.failed++
	case Unused, Refused:
	}
}

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

// ShareDone ends a job that runs here by the local share.
func (s *Scheduler) ShareDone() { s.shared = max(s.shared-1, 0) }
