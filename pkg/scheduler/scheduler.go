// Package scheduler chooses the host of a job. It does no I/O, starts no
// goroutine and is told the time.
//
// Its owner tells it what happens to hosts (Ensure, Connecting, Up, Toolchains,
// Credits, Load, Draining, Lost) and to jobs (Done), and asks Pick. After each
// change it asks Pick again for the jobs that wait, in the order in which they
// came: then nobody overtakes a job that could have had the same host.
//
//	unknown ─▶ connecting ─▶ up ─▶ draining
//	              ▲   │       │        │
//	         Due  │   ▼       ▼        ▼
//	              └── lost (breaker open until a pause is over)
//
// A host that failed twice running is half open when it is back: one job at a
// time, until one went well.
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

// Job is what Pick knows of a job.
type Job struct {
	Hosts     []Host          // eligible by the job's host list, in its order
	Tried     map[string]bool // hosts that failed it already
	Toolchain [16]byte
	Size      uint64    // bytes that must fit the host's slot, 0 = unknown
	Since     time.Time // when it was first asked for; zero = now
	Share     int       // localhost/N: jobs that may run here though a host could take them
	Random    bool      // --randomize
	Tree      bool      // only a host that shows private trees will do
	NoLocal   bool      // RDISTCC_MODE=remote: never a local share, and more patience
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
	Share   bool // Local: it took a place of the local share, ShareDone is due
}

// Reasons of Local, as the documentation lists them.
const (
	ReasonNoHosts   = "no-hosts"
	ReasonLost      = "host-lost"
	ReasonToolchain = "refused:toolchain"
	ReasonDraining  = "refused:draining"
	ReasonFull      = "refused:full"
	ReasonTooBig    = "too-big"
	ReasonShare     = "local-share"
	ReasonDenied    = "denied"
	ReasonPaths     = "not-reproducible:paths" // no host shows private trees
)

// Config of a Scheduler. A zero field takes the default in parentheses.
type Config struct {
	Backoff    time.Duration  // pause after a host's first loss (100 ms); doubles with each further one
	BackoffMax time.Duration  // longest pause (5 s)
	Grace      time.Duration  // how long jobs wait for a host's first connection (1 s)
	Patience   time.Duration  // how long jobs wait for a host that gives no credit (5 s)
	Rand       func() float64 // in [0, 1) (math/rand/v2)
}

// Scheduler knows the hosts of all lists. It is not safe for concurrent use.
type Scheduler struct {
	c      Config
	hosts  map[string]*host
	shared int // jobs that run here by a local share
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
	if c.Rand == nil {
		c.Rand = rand.Float64
	}
	return &Scheduler{c: c, hosts: make(map[string]*host)}
}

// Ensure makes the hosts of a list known; new ones are due at once.
func (s *Scheduler) Ensure(now time.Time, list []Host) {
	for i := range list {
		if addr := list[i].Addr; s.hosts[addr] == nil {
			s.hosts[addr] = &host{addr: addr, firstDue: now, since: now, retry: now}
		}
	}
}

// Forget drops a host that no list names any more. Jobs under way on it may
// still report Done.
func (s *Scheduler) Forget(addr string) { delete(s.hosts, addr) }

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
