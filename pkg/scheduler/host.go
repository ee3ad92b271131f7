package scheduler

import (
	"maps"
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// State is the state of a host.
type State uint8

// States.
const (
	Unknown    State = iota // listed, never connected
	Connecting              // an attempt to connect is under way
	Up                      // connected: takes jobs
	Draining                // connected: finishes what it has
	Lost                    // not connected; another attempt follows after a pause
)

var stateNames = [...]string{"unknown", "connecting", "up", "draining", "lost"}

func (s State) String() string { return stateNames[s] }

// Load is a host's view of its own load.
type Load struct {
	Running, Queued int     // compiles of all managers
	Average         float64 // one-minute load average
	MemoryFree      uint64  // bytes
}

// Capacity is what a host said of itself when it was connected.
type Capacity struct {
	Jobs       int    // compiles at a time
	MaxBody    uint64 // bytes of a source and its arguments; 0 = unknown
	Toolchains int    // how many IDs Toolchains will report
	Tree       bool   // it can show private trees
	Equipped   bool   // it may be sent toolchains that it lacks
	Memory     uint64 // bytes that its compiles may use together; 0 = unknown

	// Speed is what the host claims as its speed with a toolchain, relative to a core of speed 1.
	// The times of its jobs say more, once there are some.
	Speed map[[16]byte]float64
}

// Link is what is measured of the path to a host.
type Link struct {
	RTT  time.Duration
	Rate float64 // bytes per second; 0 = unknown
}

// host is one address.
type host struct {
	addr    string
	state   State
	since   time.Time     // when state was entered
	sinceAt time.Duration // the same for Up
	why     string        // what ended the last connection or attempt
	refused string        // reason that stands for the loss; empty: reason.HostLost

	coming map[[16]byte]delivery // the toolchains that it is being sent, or cannot be sent

	firstDue time.Time // when the first connection was asked for
	retry    time.Time // Unknown, Lost: no attempt to connect before then
	began    time.Time // when the last attempt to connect began
	answered time.Time // Connecting: since when a peer has accepted the connection without saying anything

	// Per connection, valid while Up or Draining.
	capacity   Capacity
	toolchains map[[16]byte]bool
	// identifying means that toolchains may follow beyond those that the host announced.
	identifying bool
	credits     int
	moved       time.Time // when a credit last came or went, or a job ended
	link        Link
	sent        time.Duration // when everything sent so far will have left

	// The host's view of itself, and what follows from it.
	load    Load
	viewed  bool
	loadAt  time.Duration
	others  int     // jobs of other managers
	usual   float64 // others, over the last minutes
	compile float64 // compiles of all managers, smoothed like a load average
	foreign float64 // part of the load average that is not compiles

	runs []*run // jobs picked whose Done is due, in the order picked
	plan plan
	learned

	drained bool      // by hand
	suspect time.Time // in quarantine until then
	doubt   string    // why

	// Health. failures counts the failed attempts and connections since a job last went well; it
	// sets the pause. doubts counts those that took jobs with them; two make the host half open.
	// strikes are the faults that have not closed the host yet.
	failures int
	doubts   int
	open     time.Time // Up: takes no job before then
	strikes  []string  // sources, oldest first
	fulls    int       // jobs in a row for which it had granted a credit and then had no room

	ok, failed uint64 // jobs since the start
}

// changed discards what Pick remembers of its last answers.
func (s *Scheduler) changed() { s.full = s.full[:0] }

func (h *host) set(now time.Time, s State) {
	h.state, h.since = s, now
}

// capable reports whether all toolchains that the host announced are known.
func (h *host) capable() bool { return len(h.toolchains) >= h.capacity.Toolchains }

// halfOpen reports whether the host is on probation: one job at a time.
func (h *host) halfOpen() bool { return h.doubts >= 2 }

// Connecting tells the scheduler that an attempt to connect addr began.
func (s *Scheduler) Connecting(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil {
		h.set(now, Connecting)
		h.began = now
		s.changed()
	}
}

// Starting tells the scheduler that something at addr has accepted the connection but not yet
// said what it can do. That stands until Up or Lost, whatever attempts follow.
func (s *Scheduler) Starting(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil && h.state == Connecting && h.answered.IsZero() {
		h.answered = now
		s.changed()
	}
}

// Identifying tells the scheduler whether addr, which is up, may announce further toolchains
// soon.
func (s *Scheduler) Identifying(addr string, still bool) {
	if h := s.hosts[addr]; h != nil && h.identifying != still {
		h.identifying = still
		s.changed()
	}
}

// Up tells the scheduler that addr is connected. It has no credits until Credits is called.
func (s *Scheduler) Up(now time.Time, addr string, c Capacity) {
	h := s.host(addr)
	if h == nil {
		return
	}
	h.set(now, Up)
	h.capacity = c
	h.toolchains = make(map[[16]byte]bool)
	maps.DeleteFunc(h.coming, func(_ [16]byte, d delivery) bool { return d.refused }) // it may have been told otherwise since
	h.credits, h.moved = 0, now
	h.refused = ""
	h.open, h.answered = time.Time{}, time.Time{}
	h.identifying = false
	h.sinceAt = s.clock(now)
	h.deepen()
	h.plan.ok = false
	s.changed()
}

// Toolchains adds to the toolchains that addr can run.
func (s *Scheduler) Toolchains(addr string, ids ...[16]byte) {
	if h := s.hosts[addr]; h != nil && h.toolchains != nil {
		for _, id := range ids {
			h.toolchains[id] = true
			delete(h.coming, id)
		}
		s.free(h)
	}
}

// Lacks says that addr no longer has a toolchain.
func (s *Scheduler) Lacks(addr string, id [16]byte) {
	if h := s.hosts[addr]; h != nil {
		delete(h.toolchains, id)
	}
}

// Credits sets how many unspent credits of addr are at hand.
func (s *Scheduler) Credits(now time.Time, addr string, n int) {
	if h := s.hosts[addr]; h != nil && h.credits != n {
		h.credits, h.moved = max(n, 0), now
		s.free(h)
	}
}

// Load passes on addr's view of its own load.
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

// Link passes on what is measured of the path to addr.
func (s *Scheduler) Link(now time.Time, addr string, l Link) {
	if h := s.hosts[addr]; h != nil {
		h.link = l
		h.deepen()
		s.changed()
	}
}

// host returns the host with an address, or nil.
func (s *Scheduler) host(addr string) *host {
	if addr == LocalHost {
		return &s.local
	}
	return s.hosts[addr]
}

// Draining tells the scheduler that addr takes no new job. Jobs that run there are finished.
func (s *Scheduler) Draining(now time.Time, addr string) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		s.changed()
		h.set(now, Draining)
	}
}

// Lost tells the scheduler that the connection to addr has ended, or could not be made. why is
// one line for a person. denied distinguishes a host that refuses this manager from one that is
// not there. Lost returns when to try again; Due says the same.
//
// Jobs that were under way there still report Done, as Gone, and do so after Lost.
func (s *Scheduler) Lost(now time.Time, addr, why string, denied bool) time.Time {
	h := s.hosts[addr]
	if h == nil {
		return now
	}
	// The end of a connection that lasted is no sign of a bad host.
	if (h.state == Up || h.state == Draining) && now.Sub(h.since) > s.c.BackoffMax {
		h.failures = 0
	}
	// A host that drained and then left did what it announced.
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

// aloneMax is the longest pause while no host is up: no job runs remotely until one is back.
const aloneMax = time.Second

func (s *Scheduler) anyUp() bool {
	for _, h := range s.hosts {
		if h.state == Up {
			return true
		}
	}
	return false
}

// pause returns the pause after the n-th failure in a row. It doubles, with up to a quarter of
// jitter either way, so that managers that lost a host together do not return together.
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
