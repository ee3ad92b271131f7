package credits

import (
	"flag"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/explore"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// explored looks at every state in scope.
func explored(t *testing.T, sc scope, left rule) explore.Report {
	m := &model{newForm()}
	start, err := m.start(&sc, left)
	if err != nil {
		t.Fatalf("the first credits: %v", err)
	}
	x := explore.Model[*world]{
		Start: start,
		Key:   func(b []byte, w *world) []byte { return explore.Key(m.form, b, w) },
		Steps: m.steps,
		Stuck: m.rest,
		Rests: true,
		Most:  most,
	}
	return x.Run()
}

// most bounds the states of one scope.
const most = 1_000_000

// The scopes, named by what is special about them.
var (
	// Two managers share a host from the start; it has fewer slots than credits.
	twoManagers = scope{managers: 2, hosts: 1, cores: 2, slots: 4, want: 2, jobs: 1, attempts: 1}
	// One manager holds all credits, and another one joins.
	joining = scope{managers: 2, joins: 1, hosts: 1, cores: 1, slots: 5, want: 4, jobs: 1, attempts: 1, demand: 3}
	// A job has a second host, and its wrapper may give up.
	hedging = scope{managers: 1, hosts: 2, cores: 1, slots: 4, want: 1, jobs: 1, attempts: 2, hedges: true, gives: true}
	// The same, with sources that take two Writes, so that a cancel comes before, between and behind them.
	writing = scope{managers: 1, hosts: 2, cores: 1, slots: 4, want: 1, jobs: 1, attempts: 2, hedges: true, writes: 2}
	// The same on one host, and on two, with wrappers that give up at any time.
	writingOne  = scope{managers: 1, hosts: 1, cores: 1, slots: 4, want: 2, jobs: 1, attempts: 1, gives: true, writes: 2}
	writingBoth = scope{managers: 1, hosts: 2, cores: 1, slots: 4, want: 1, jobs: 1, attempts: 2, hedges: true, gives: true, writes: 2}
	// Slots stay open.
	keeping = scope{managers: 1, hosts: 1, cores: 1, slots: 2, want: 2, jobs: 2, attempts: 1, writes: 1, kept: true}
	// The same, and wrappers give up.
	keepingOn = scope{managers: 1, hosts: 1, cores: 1, slots: 2, want: 1, jobs: 2, attempts: 1, writes: 1, kept: true, gives: true}
	// Small sources travel inside their Jobs.
	eager = scope{managers: 1, hosts: 1, cores: 1, slots: 2, want: 1, jobs: 1, attempts: 1, gives: true, carrier: job.Eager}
	// The same on a second host, with bare credits.
	eagerTwice = scope{managers: 1, hosts: 2, cores: 1, slots: 4, want: 1, jobs: 1, attempts: 2, hedges: true, carrier: job.Eager, pulls: true, bare: true}
	// Hosts pull the sources of jobs whose credits are bare; there is memory for one at a time.
	pulling = scope{managers: 1, hosts: 1, cores: 1, slots: 1, want: 2, jobs: 2, attempts: 1, pulls: true, bare: true, carrier: job.Pull}
	// The same on a second host, and with memory.
	pulledTwice = scope{managers: 1, hosts: 2, cores: 1, slots: 2, want: 1, jobs: 1, attempts: 2, hedges: true, gives: true, pulls: true, bare: true, carrier: job.Pull}
	// A connection is lost, and the manager connects again.
	cutting = scope{managers: 1, hosts: 1, cores: 1, slots: 3, want: 1, jobs: 1, attempts: 2, cuts: 1, gives: true}
	// A connection is lost while two hosts have the job.
	losing = scope{managers: 1, hosts: 2, cores: 1, slots: 3, want: 1, jobs: 1, attempts: 2, hedges: true, cuts: 1}
	// A host drains.
	draining = scope{managers: 1, hosts: 1, cores: 1, slots: 3, want: 2, jobs: 1, attempts: 2, drains: 1, gives: true, writes: 1}
	// A host of two drains while both may have the job.
	drainingOne = scope{managers: 1, hosts: 2, cores: 1, slots: 3, want: 1, jobs: 1, attempts: 2, hedges: true, drains: 1}
	// A host takes no work for a while.
	closing = scope{managers: 1, hosts: 1, cores: 1, slots: 5, want: 2, jobs: 1, attempts: 1, closes: 1, gives: true}
	// The same, with two managers.
	closingBoth = scope{managers: 2, hosts: 1, cores: 1, slots: 5, want: 1, jobs: 1, attempts: 1, closes: 1}
	// A manager with two connections closes one.
	retiring = scope{managers: 1, conns: 2, hosts: 1, cores: 1, slots: 5, want: 2, jobs: 1, attempts: 1, retires: 1, demand: 1}
	// A manager spends what it was not told of.
	guessing = scope{managers: 1, hosts: 1, cores: 1, slots: 5, want: 3, jobs: 1, attempts: 1, returns: 2, guesses: 1}
	// Compiles fail and are tried once more; seconds pass.
	failing = scope{managers: 1, hosts: 2, cores: 1, slots: 3, want: 1, jobs: 1, attempts: 2, fails: true, ticks: 1}
	// More jobs than places.
	crowded = scope{managers: 1, hosts: 1, cores: 2, slots: 4, want: 2, jobs: 2, attempts: 1}
)

// all also explores the scopes that take minutes.
var all = flag.Bool("all", false, "explore the large scopes too")

// size says when a scope is explored.
type size uint8

const (
	small  size = iota // in any case
	medium             // unless the tests are to be short
	large              // with -all
)

// TestEveryOrder: whatever the order of events, each credit has one owner, each job one answer, memory is free only when
// nothing can write to it, and all that was lent comes back.
func TestEveryOrder(t *testing.T) {
	part.Skip(t)
	for name, x := range map[string]struct {
		scope
		size
	}{
		"two managers": {twoManagers, small}, "a manager joins": {joining, medium},
		"second host": {hedging, small}, "second host, Writes": {writing, medium}, "Writes": {writingOne, small}, "second host, Writes, a wrapper gives up": {writingBoth, large}, "eager": {eager, small}, "second host, eager": {eagerTwice, large},
		"second host, pull": {pulledTwice, medium}, "second host, cut": {losing, large}, "second host, drain": {drainingOne, large},
		"slots stay open": {keeping, medium}, "slots stay open, a wrapper gives up": {keepingOn, large}, "pull": {pulling, medium}, "cut": {cutting, small}, "drain": {draining, small},
		"no work": {closing, small}, "no work, two managers": {closingBoth, large}, "retire": {retiring, small}, "guess": {guessing, small},
		"fail": {failing, small}, "more jobs than places": {crowded, small},
	} {
		t.Run(name, func(t *testing.T) {
			if x.size == medium && testing.Short() || x.size == large && !*all {
				t.Skip("a larger scope")
			}
			t.Parallel()
			r := explored(t, x.scope, sound)
			t.Logf("%s: %d states, %d steps, the farthest after %d", name, r.States, r.Steps, r.Depth)
			if r.Err != nil {
				t.Fatalf("%v after\n%s", r.Err, strings.Join(r.Trace, "\n"))
			}
		})
	}
}
