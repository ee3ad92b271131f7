package scheduler

import (
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
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
	Memory     uint64 // bytes that its compiles may take together; 0 = unknown

	// Speed is what the host says of its own speed with a toolchain, beside a core
	// of speed 1. What its jobs take says more, once there are some.
	Speed map[[16]byte]float64
}

// Link is what is measured of the way to a host.
type Link struct {
	RTT  time.Duration
	Rate float64 // bytes a second; 0 = unknown
}

// host is one address.
type host struct {
	addr    string
	state   State
	since   time.Time     // of state
	sinceAt time.Duration // the same, of Up
	why     string        // what ended the last connection or attempt
	refused string        // reason that stands for the loss, or empty: reason.HostLost

	firstDue time.Time // when the first connection was asked for
	retry    time.Time // Unknown, Lost: not to be connected before
	began    time.Time // when the last attempt to connect did
	answered time.Time // Connecting: when something took the connection first, and has said nothing since

	// Of the connection, while Up or Draining.
	capacity   Capacity
	toolchains map[[16]byte]bool
	// identifying: further toolchains may follow those that the host announced.
	identifying bool
	credits     int
	moved       time.Time // when a credit came or went, or a job ended
	link        Link
	sent        time.Duration // when all is on its way that was sent

	// Its view of itself, and what follows from it.
	load    Load
	viewed  bool
	loadAt  time.Duration
	others  int     // jobs of other managers
	usual   float64 // others, over the last minutes
	compile float64 // jobs of all, smoothed as a load average is
	foreign float64 // of the load average, what is not compiles

	runs []*run // jobs picked whose Done is due, in that order
	plan plan
	learned

	drained bool      // by hand
	suspect time.Time // in quarantine until then
	doubt   string    // why

	// Health. failures counts attempts and connections that came to nothing since a
	// job went well: it sets the pause. doubts counts those that took jobs with
	// them: two make the host half open. strikes are faults that did not count yet.
	failures int
	doubts   int
	open     time.Time // Up: takes no job before
	strikes  []string  // sources, oldest first
	fulls    int       // jobs running that it had granted and then no room for

	ok, failed uint64 // jobs since the start
}

// changed voids what Pick remembers of its last answers.
func (s *Scheduler) changed() { s.full = s.full[:0] }

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
		h.began = now
		s.changed()
	}
}

// Starting says that something at addr has taken the connection, and not said yet what
// it can do. That stands until Up or Lost, whatever attempts follow.
func (s *Scheduler) Starting(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil && h.state == Connecting && h.answered.IsZero() {
		h.answered = now
		s.changed()
	}
}

// Identifying says whether addr, which is up, may announce further toolchains soon.
func (s *Scheduler) Identifying(addr string, still bool) {
	if h := s.hosts[addr]; h != nil && h.identifying != still {
		h.identifying = still
		s.changed()
	}
}

// Up says that addr is connected. Its credits are none until Credits is called.
func (s *Scheduler) Up(now time.Time, addr string, c Capacity) {
	h := s.host(addr)
	if h == nil {
		return
	}
	h.set(now, Up)
	h.capacity = c
	h.toolchains = make(map[[16]byte]bool)
	h.credits, h.moved = 0, now
	h.refused = ""
	h.open, h.answered = time.Time{}, time.Time{}
	h.identifying = false
	h.sinceAt = s.clock(now)
	h.deepen()
	h.plan.ok = false
	s.changed()
}

// Toolchains adds to what addr can run.
func (s *Scheduler) Toolchains(addr string, ids ...[16]byte) {
	if h := s.hosts[addr]; h != nil && h.toolchains != nil {
		for _, id := range ids {
			h.toolchains[id] = true
		}
		s.free(h)
	}
}

// Credits says how many unspent credits of addr are at hand now.
func (s *Scheduler) Credits(now time.Time, addr string, n int) {
	if h := s.hosts[addr]; h != nil && h.credits != n {
		h.credits, h.moved = max(n, 0), now
		s.free(h)
	}
}

// Load passes on what addr says of itself.
func (s *Scheduler) Load(now time.Time, addr string, l Load) {
	h := s.host(addr)
	if h == nil {
		return
	}
	t := s.clock(now)
	if h.viewed {
		d := (t - h.loadAt).Seconds()
		h.usual += (float64(h.others) - h.usual) * -math.Expm1(-min(d, viewOld.Seconds())/60)
		h.compile += (float64(h.load.Running) - h.compile) * -math.Expm1(-d/60)
	}
	h.load, h.loadAt, h.viewed = l, t, true
	h.others = max(0, l.Running+l.Queued-len(h.runs))
	h.foreign = max(0, l.Average-h.compile)
	h.plan.ok = false
	s.changed()
}

// Link passes on what is measured of the way to addr.
func (s *Scheduler) Link(now time.Time, addr string, l Link) {
	if h := s.hosts[addr]; h != nil {
		h.link = l
		h.deepen()
		s.changed()
	}
}

// host is the one of an address, or nil.
func (s *Scheduler) host(addr string) *host {
	if addr == LocalHost {
		return &s.local
	}
	return s.hosts[addr]
}

// Draining says that addr takes no new job; those that run are finished.
func (s *Scheduler) Draining(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		s.changed()
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
		if h.state == Up && len(h.runs) > 0 {
			h.doubts++
		}
	}
	pause := s.pause(max(h.failures, 1))
	h.refused = ""
	if denied {
		h.refused = reason.Denied
		pause = s.c.BackoffMax // it will not change its mind soon
	}
	h.set(now, Lost)
	h.why, h.answered, h.identifying = why, time.Time{}, false
	if !denied && !s.anyUp() {
		pause = min(pause, s.spread(max(aloneMax, s.c.Backoff)))
	}
	h.retry = now.Add(pause)
	h.toolchains, h.credits, h.strikes, h.fulls = nil, 0, nil, 0
	h.viewed = false
	s.changed()
	return h.retry
}

// aloneMax is the longest pause while no host is up: nothing is done until one is back.
const aloneMax = time.Second

func (s *Scheduler) anyUp() bool {
	for _, h := range s.hosts {
		if h.state == Up {
			return true
		}
	}
	return false
}

// pause after the n-th failure running: doubling, and spread over a quarter to
// each side so that managers that lost a host together do not return together.
func (s *Scheduler) pause(n int) time.Duration {
	d := s.c.Backoff
	for ; n > 1 && d < s.c.BackoffMax; n-- {
		d *= 2
	}
	return s.spread(min(d, s.c.BackoffMax))
}

func (s *Scheduler) spread(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(s.c.Rand()*float64(d)/2)
}
