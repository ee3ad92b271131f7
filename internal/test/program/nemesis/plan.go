package main

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/relay"
)

// kind is what a strike does.
type kind int

const (
	killDaemon kind = iota
	stopDaemon
	termDaemon
	killCompiler
	stopCompiler
	killManager
	stopManager
	termManager
	killWrapper
	interruptWrapper
	resetLink
	cutLink
	flipLink
	strandLink
	holdLink
	delayLink
	throttleLink
	fillHost
	fillHere
	flipStored
	cutStored
	dropStored
	fillStore
	lockStore
	removeStore
	killStore
	shortMemory
	numKinds
)

// kinds has for each kind its name, what it strikes, and how long it lasts.
var kinds = [numKinds]struct {
	name        string
	at          place
	least, most time.Duration // until it is over, or what was ended is restarted
}{
	killDaemon:       {"daemon killed", atHost, 200 * time.Millisecond, 2 * time.Second},
	stopDaemon:       {"daemon stopped", atHost, 300 * time.Millisecond, 7 * time.Second},
	termDaemon:       {"daemon ended", atHost, 100 * time.Millisecond, time.Second},
	killCompiler:     {"compiler killed", atHost, 0, 0},
	stopCompiler:     {"compiler stopped", atHost, 300 * time.Millisecond, 4 * time.Second},
	killManager:      {"manager killed", atManager, 0, 0},
	stopManager:      {"manager stopped", atManager, 100 * time.Millisecond, 2 * time.Second},
	termManager:      {"manager ended", atManager, 0, 0},
	killWrapper:      {"wrapper killed", atWrapper, 0, 0},
	interruptWrapper: {"wrapper interrupted", atWrapper, 0, 0},
	resetLink:        {"link reset", atHost, 0, 0},
	cutLink:          {"link cut in a frame", atHost, 0, 0},
	flipLink:         {"bit flipped on a link", atHost, 0, 0},
	strandLink:       {"link half-open", atHost, 0, 0},
	holdLink:         {"link silent", atHost, 300 * time.Millisecond, 7 * time.Second},
	delayLink:        {"link delayed", atHost, time.Second, 4 * time.Second},
	throttleLink:     {"link throttled", atHost, time.Second, 4 * time.Second},
	fillHost:         {"host's disk full", atHost, 500 * time.Millisecond, 3 * time.Second},
	fillHere:         {"disk full here", atHere, 200 * time.Millisecond, time.Second},
	flipStored:       {"bits flipped in a store", atStore, 0, 0},
	cutStored:        {"files of a store cut short", atStore, 0, 0},
	dropStored:       {"files of a store deleted", atStore, 0, 0},
	fillStore:        {"store's disk full", atStore, 500 * time.Millisecond, 3 * time.Second},
	lockStore:        {"store's disk read-only", atStore, 500 * time.Millisecond, 3 * time.Second},
	removeStore:      {"store's directory removed", atHost, 300 * time.Millisecond, 2 * time.Second},
	killStore:        {"daemon killed on a spoilt store", atHost, 0, 500 * time.Millisecond},
	shortMemory:      {"host short of memory", atStore, 1500 * time.Millisecond, 3 * time.Second},
}

func (k kind) String() string { return kinds[k].name }

// place is what a strike affects: strikes on one thing follow one another.
type place int

const (
	atHost place = iota
	atManager
	atWrapper
	atHere
	atStore // a host's store; the host works on
)

// strike is one fault of the plan.
type strike struct {
	job   int // number of jobs that have begun when it comes
	kind  kind
	host  int           // atHost, atStore: which one
	hold  time.Duration // how long it lasts
	dir   relay.Direction
	after int           // cutLink, flipLink: number of bytes that pass before
	delay time.Duration // delayLink
	rate  int           // throttleLink: bytes per second
}

func (s strike) String() string {
	text := fmt.Sprintf("job %d: %v", s.job, s.kind)
	if at := kinds[s.kind].at; at == atHost || at == atStore {
		text += fmt.Sprintf(", host %d", s.host+1)
	}
	switch s.kind {
	case cutLink, flipLink:
		text += fmt.Sprintf(", %s after %d bytes", [...]string{"out", "back"}[s.dir], s.after)
	case delayLink:
		text += fmt.Sprintf(" by %v", s.delay)
	case throttleLink:
		text += fmt.Sprintf(" to %d bytes/s", s.rate)
	}
	if s.hold > 0 {
		text += fmt.Sprintf(", for %v", s.hold)
	}
	return text
}

// plan is everything that a seed determines.
type plan struct {
	seed    uint64
	jobs    []int // the unit that each job compiles
	strikes []strike
}

// newPlan deals out the kinds in turns of all of them, each turn in a random order, so that none is missing
// from a run that is long enough.
func newPlan(seed uint64, jobs, units, every, hosts int, of []kind) plan {
	rnd := rand.New(rand.NewPCG(seed, 0x6e656d65736973))
	p := plan{seed: seed}
	for range jobs {
		p.jobs = append(p.jobs, rnd.IntN(units))
	}
	var deck []kind
	// The last ones have jobs left to hit.
	for at := every; at <= jobs-every/2; at += every {
		if len(deck) == 0 {
			deck = append(deck, of...)
			rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		k := deck[0]
		deck = deck[1:]
		s := strike{job: at, kind: k, host: k.target(rnd.IntN(hosts), hosts), dir: relay.Direction(rnd.IntN(2)), after: rnd.IntN([...]int{2000, 100_000}[rnd.IntN(2)])}
		s.hold = kinds[k].least + time.Duration(rnd.Int64N(int64(kinds[k].most-kinds[k].least)+1)).Round(time.Millisecond)
		s.delay = time.Duration(5+rnd.IntN(200)) * time.Millisecond
		s.rate = 64<<10 + rnd.IntN(1<<20)
		p.strikes = append(p.strikes, s)
	}
	return p
}
