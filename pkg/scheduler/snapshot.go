package scheduler

import (
	"slices"
	"strings"
	"time"
)

// Status is what is known of a host, for display.
type Status struct {
	Addr       string
	State      State
	Since      time.Duration // time in State
	Why        string        // what ended the last connection or attempt, or empty
	Retry      time.Duration // until the next attempt, or until it takes jobs again; 0 = not waiting
	HalfOpen   bool          // takes one job at a time until one goes well
	Jobs       int           // compiles at a time that the host runs
	Credits    int           // unspent, held here
	Running    int           // jobs from here
	Toolchains int
	Load       Load
	LoadAge    time.Duration
	OK, Failed uint64 // jobs since the start

	Drained    bool          // by hand
	Quarantine time.Duration // until that ends; 0 = none
	Doubt      string        // reason for the quarantine
	Link       Link
	Speed      float64 // learned, relative to a core of speed 1; 0 = not yet
}

// Snapshot returns the status of all hosts, sorted by address.
func (s *Scheduler) Snapshot(now time.Time) []Status {
	out := make([]Status, 0, len(s.hosts))
	for _, h := range s.hosts {
		st := Status{
			Addr: h.addr, State: h.state, Since: now.Sub(h.since), Why: h.why, HalfOpen: h.halfOpen(),
			Jobs: h.capacity.Jobs, Credits: h.credits, Running: len(h.runs), Toolchains: len(h.toolchains),
			Load: h.load, OK: h.ok, Failed: h.failed,
			Drained: h.drained, Doubt: h.doubt, Quarantine: max(h.suspect.Sub(now), 0), Link: h.link, Speed: s.shown(h),
		}
		switch h.state {
		case Unknown, Lost:
			st.Retry = max(h.retry.Sub(now), 0)
		case Up:
			st.Retry = max(h.open.Sub(now), 0)
		case Connecting, Draining:
		}
		if h.viewed {
			st.LoadAge = s.clock(now) - h.loadAt
		}
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Addr, b.Addr) })
	return out
}

// Live returns how many jobs the hosts of a list take at a time now: the best argument for
// make -j, including what is on the way to distant hosts. Hosts that are not connected count
// as none.
func (s *Scheduler) Live(list []Host) int {
	n := 0
	for i := range list {
		if h := s.hosts[list[i].Addr]; h != nil && h.state == Up && !h.drained {
			n += h.places(&list[i])
			if list[i].Slots == 0 {
				n += h.deep
			}
		}
	}
	return n
}
