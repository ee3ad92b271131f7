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

// LocalHost stands for this machine's own cores. It is up from the Up with its
// Capacity on, needs no Ensure, and is in no list: Job.Local lets a job run here.
const LocalHost = "localhost"

// Cost is what a job is expected to take.
type Cost struct {
	Time   time.Duration // of a core of speed 1; 0 = nobody can tell
	P95    time.Duration // not exceeded by 19 of 20 such jobs; 0 = unknown
	Memory uint64        // peak, bytes; 0 = unknown
	Known  bool          // from compiles of the same source, not from its size
}

// Job is what Pick knows of a job.
type Job struct {
	Hosts     []Host          // eligible by the job's host list, in its order; the array is never changed
	Tried     map[string]bool // hosts that failed it already
	Again     map[string]bool // those of Tried that were lost under it, and may have it again where there is no other way
	Toolchain [16]byte
	Size      uint64    // bytes that must fit the host's slot, 0 = unknown
	Since     time.Time // when it was first asked for; zero = now
	Lost      time.Time // when its last host was lost; zero = none was
	Share     int       // localhost/N: jobs that may run here though a host could take them
	Random    bool      // --randomize
	Tree      bool      // only a host that shows private trees will do
	NoLocal   bool      // RDISTCC_MODE=remote: never a local share
	Strict    bool      // it may not be done here because of trouble: it waits for hosts that can come up
	Asked     time.Time // Strict: when its command came; zero = Since
	NoBackoff bool      // what a lost host was like before the job came says nothing

	Cost  Cost
	Bytes uint64 // to be moved to a host that has nothing of it
	// Held is how many of Bytes a host has already, by its address. The map does not change.
	Held  map[string]uint64
	Build uint64 // jobs of one build have one number: builds share the hosts evenly
	Local bool   // it may run here if it is expected to be done earlier

	note note // Pick's
}

// Verdict of Pick.
type Verdict uint8

// Verdicts.
const (
	Run   Verdict = iota // on Decision.Host: one of its credits is taken, Done is due
	Wait                 // ask again when something changed, at Decision.Until at the latest
	Local                // no host will do: Decision.Reason
)

// Decision is Pick's answer.
type Decision struct {
	Verdict Verdict
	Host    string
	Reason  string // one of the documented words
	Detail  string // one line for a person
	Until   time.Time
	Share   bool          // Local: it took a place here, ShareDone is due
	Gone    bool          // Wait: there is nothing to wait for but hosts that are not there, or not ready
	Redial  bool          // Gone: Due has some that are to be connected for it
	Finish  time.Duration // Run, or Local with Share: when its result is expected, from now on
}

// Config of a Scheduler. A zero field takes the default in parentheses.
type Config struct {
	Backoff    time.Duration  // pause after a host's first loss (100 ms); doubles with each further one
	BackoffMax time.Duration  // longest pause (5 s)
	Grace      time.Duration  // how long jobs wait for a host's first connection (1 s)
	Patience   time.Duration  // how long jobs wait for a host that gives no credit (5 s)
	Strict     time.Duration  // how long a Strict one waits for that, and for a host that can come up (1 min)
	Quarantine time.Duration  // how long a host is left alone whose results are in doubt (1 h)
	Rand       func() float64 // in [0, 1) (math/rand/v2)
}

// Scheduler knows the hosts of all lists. It is not safe for concurrent use.
type Scheduler struct {
	c      Config
	began  time.Time
	hosts  map[string]*host
	lists  map[*Host][]*host // what lists stand for, by their first entry
	local  host              // this machine
	drains map[string]bool   // addresses that are drained by hand, listed or not

	runs    map[runKey]*run
	builds  map[uint64]int // runs of each build
	copies  int            // runs that are duplicates
	spare   float64        // duplicates that jobs have earned and not needed
	typical typical
	hedgeAt time.Duration // when Hedges is to look again
	probed  time.Duration // when a host was tried last just to hear of it

	// Pick's and Order's memory.
	round              uint64 // of asking for all that wait; changes with Order or the time
	roundAt            time.Duration
	full               []fullList
	freed, freedBefore []*host // that may have got a place, in this round and in the last
	found              []candidate
	order              []int
}

// New makes a Scheduler that knows no host.
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

// Ensure makes the hosts of a list known; new ones are due at once.
func (s *Scheduler) Ensure(now time.Time, list []Host) {
	for i := range list {
		if addr := list[i].Addr; s.hosts[addr] == nil {
			clear(s.lists)
			s.changed()
			s.hosts[addr] = &host{addr: addr, firstDue: now, since: now, retry: now, drained: s.drains[addr]}
		}
	}
}

// Forget drops a host that no list names any more. Jobs under way on it may
// still report Done.
func (s *Scheduler) Forget(addr string) {
	delete(s.hosts, addr)
	clear(s.lists)
	s.changed()
}

// Due lists the hosts that are to be connected now, the longest due first, and
// says when the next one will be: zero when none is. The caller says Connecting
// for each that it takes on.
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
