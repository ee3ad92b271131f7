package scheduler

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Host is one entry of a host list.
type Host struct {
	Addr  string // host:port; the key
	Slots int    // jobs at a time that the list allows; 0 = as many as granted
}

// LocalHost stands for this machine's own cores. It is up from the call of Up with its Capacity
// on, needs no Ensure, and is in no list: Job.Local lets a job run here.
const LocalHost = "localhost"

// Cost is the expected cost of a job.
type Cost struct {
	Time   time.Duration // on a core of speed 1; 0 = unknown
	P95    time.Duration // exceeded by 1 in 20 such jobs; 0 = unknown
	Memory uint64        // peak, bytes; 0 = unknown
	Known  bool          // from compiles of the same source, not from its size
}

// Job holds what Pick knows of a job.
type Job struct {
	Hosts     []Host          // eligible by the job's host list, in its order; the array never changes
	Tried     map[string]bool // hosts that have failed it
	Again     map[string]bool // those of Tried that were lost under it, and may have it again if no other host will do
	Toolchain [16]byte
	Size      uint64    // bytes that must fit into the host's slot; 0 = unknown
	Since     time.Time // when it was first asked for; zero = now
	Lost      time.Time // when its last host was lost; zero = none was
	Share     int       // localhost/N: how many jobs may run here though a host could take them
	Random    bool      // --randomize
	Tree      bool      // only a host that shows private trees will do
	NoLocal   bool      // RDISTCC_MODE=remote: never a local share
	Strict    bool      // trouble must not make it run here: it waits for hosts that can come up
	Asked     time.Time // Strict: when its command came; zero = Since
	NoBackoff bool      // the state of a lost host before the job came does not count

	Cost  Cost
	Bytes uint64 // to be moved to a host that holds none of it
	// Held says how many of Bytes each host holds already, by address. The map does not change.
	Held  map[string]uint64
	Build uint64 // ID of its build: builds share the hosts evenly
	Name  uint64 // stands for what its result depends on, see Weight; 0 = nothing does
	Local bool   // it may run here if it is expected to finish earlier

	note note // Pick's
}

// Verdict is the kind of a Decision.
type Verdict uint8

// Verdicts.
const (
	Run   Verdict = iota // on Decision.Host: one of its credits is taken, and Done is due
	Wait                 // ask again when something changed, at Decision.Until at the latest
	Local                // no host will do: Decision.Reason
)

// Decision is Pick's answer.
type Decision struct {
	Verdict Verdict
	Host    string
	Reason  string // one of the documented reasons
	Detail  string // one line for a person
	Until   time.Time
	Share   bool          // Local: it took a place here, and ShareDone is due
	Gone    bool          // Wait: only for hosts that are not connected, or not ready
	Redial  bool          // Gone: Due has hosts to connect for it
	Stalled time.Duration // Local, for a strict job: so long no host has been sent more of its toolchain
	Finish  time.Duration // Run, or Local with Share: when its result is expected, counted from now
}

// Config holds a Scheduler's settings. A zero field takes the default in parentheses.
type Config struct {
	Backoff    time.Duration  // pause after a host's first loss (100 ms); doubles with each further one
	BackoffMax time.Duration  // longest pause (5 s)
	Grace      time.Duration  // how long jobs wait for a host's first connection (1 s)
	Patience   time.Duration  // how long jobs wait for a host that grants no credit (5 s)
	Strict     time.Duration  // how long a Strict job waits for that, and for a host that can come up (1 min)
	Quarantine time.Duration  // how long a host with dubious results is left alone (1 h)
	Rand       func() float64 // in [0, 1) (math/rand/v2)
}

// Scheduler knows the hosts of all lists. It is not safe for concurrent use.
type Scheduler struct {
	c      Config
	began  time.Time
	hosts  map[string]*host
	lists  map[*Host][]*host // hosts of each list, by the list's first entry
	local  host              // this machine
	drains map[string]bool   // addresses that are drained by hand, listed or not

	runs    map[runKey]*run
	builds  map[uint64]int // runs of each build
	copies  int            // runs that are duplicates
	spare   float64        // duplicates that jobs have earned and not used
	typical typical
	hedgeAt time.Duration // when Hedges must look again
	probed  time.Duration // when a host was last probed

	// Memory of Pick and Order.
	round              uint64 // number of the current round of asking for all waiting jobs; changes with Order or the time
	roundAt            time.Duration
	full               []fullList
	freed, freedBefore []*host // hosts that may have got a place, in this round and in the last
	found              []candidate
	order              []int
}

// New returns a Scheduler that knows no host.
func New(c Config) *Scheduler {
	fill := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	fill(&c.Backoff, 100*time.Millisecond)
	fill(&c.BackoffMax, 5*time.Second)
	fill(&c.Grace, time.Second)
	fill(&c.Patience, 5*time.Second)
	fill(&c.Strict, time.Minute)
	fill(&c.Quarantine, time.Hour)
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return &Scheduler{
		c: c, hosts: make(map[string]*host), runs: make(map[runKey]*run), builds: make(map[uint64]int),
		drains: make(map[string]bool), lists: make(map[*Host][]*host), local: host{addr: LocalHost},
	}
}

// Ensure makes the hosts of a list known. New ones are due at once.
func (s *Scheduler) Ensure(now time.Time, list []Host) {
	for i := range list {
		if addr := list[i].Addr; s.hosts[addr] == nil {
			clear(s.lists)
			s.changed()
			s.hosts[addr] = &host{addr: addr, firstDue: now, since: now, retry: now, drained: s.drains[addr]}
		}
	}
}

// Forget drops a host that no list names any more. Jobs under way on it may still report Done.
func (s *Scheduler) Forget(addr string) {
	delete(s.hosts, addr)
	clear(s.lists)
	s.changed()
}

// Due returns the hosts to connect now, longest due first, and when the next one will be due:
// zero for never. The caller reports Connecting for each host that it takes on.
func (s *Scheduler) Due(now time.Time) (addrs []string, next time.Time) {
	var due []*host
	for _, h := range s.hosts {
		if h.state != Unknown && h.state != Lost {
			continue
		}
		if !h.retry.After(now) {
			due = append(due, h)
		} else if next.IsZero() || h.retry.Before(next) {
			next = h.retry
		}
	}
	slices.SortFunc(due, func(a, b *host) int {
		if c := a.retry.Compare(b.retry); c != 0 {
			return c
		}
		return strings.Compare(a.addr, b.addr)
	})
	for _, h := range due {
		addrs = append(addrs, h.addr)
	}
	return addrs, next
}
