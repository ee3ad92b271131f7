package credits

import (
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/job"
)

// rule is one that a test can leave out.
type rule uint8

const (
	sound rule = iota

	// Credits and recalls.
	returnsSpent  // a Recall also brings back the credit of a job that is under way
	keepsRecalled // a Recall is acknowledged without Returns
	asksTwice     // a host recalls again before the last Recall is acknowledged
	returnsTwice  // a Return is delivered twice
	spendsUntold  // a host lets clients spend what it has not announced
	forgetsSpent  // a host does not note that a credit is spent
	keepsEnded    // credits of an ended connection are used on the next one
	neverMisses   // a host waits for the source of a job that it has answered
	landsEarly    // a job is over with its Result, although its source is still being sent

	// Cancels.
	cancelsSent     // a cancelled job's credit is returned although its Job was sent
	cancelsWritten  // a cancelled job's credit is returned while its source is being written
	cancelsAtOnce   // a manager sends a Cancel before the last one is acknowledged
	answersRunning  // a host answers a cancelled job while its compiler runs
	startsCancelled // a job that was cancelled and answered still gets a core
	freesTwice      // a cancelled job's slot is freed at once, and when its result was sent
	skipsAnswer     // a cancelled job that waits is dropped without an answer
	freesSink       // a cancelled job's sink is free at once

	// Second hosts.
	lateWins     // the loser's result is delivered too
	returnsLoser // the loser's credit is put back though it was spent
	sharesSink   // both hosts write to one sink
	dropsLoser   // the loser is forgotten once it was asked to end
)

// TestEveryRuleCounts: what comes of each rule that is left out is found.
func TestEveryRuleCounts(t *testing.T) {
	pulled := scope{managers: 1, hosts: 1, cores: 1, slots: 3, want: 2, jobs: 2, attempts: 1, pulls: true, carrier: job.Pull, gives: true}
	two := scope{managers: 1, hosts: 1, cores: 2, slots: 6, want: 2, jobs: 2, attempts: 1, gives: true}
	calm := hedging
	calm.gives = false
	for name, x := range map[string]struct {
		left rule
		sc   scope
		want string
	}{
		"a recall brings back spent credits":        {returnsSpent, joining, "and in a"},
		"recalled credits are kept":                 {keepsRecalled, joining, "of the"},
		"a second recall does not wait":             {asksTwice, joining, "under way"},
		"a Return comes twice":                      {returnsTwice, guessing, "is in a Return, and in a Return"},
		"credits are spent before they are granted": {spendsUntold, guessing, "granted, and does not exist"},
		"a host forgets that a credit is spent":     {forgetsSpent, hedging, "has no credit"},
		"credits outlive their connection":          {keepsEnded, cutting, "does not exist"},
		"a fetch that ends makes no room":           {neverMisses, pulled, "waits for ever"},
		"a job lands while its source is sent":      {landsEarly, eager, "released"},

		"a cancel returns a credit that is spent":     {cancelsSent, hedging, "and in a"},
		"a cancel does not wait for Writes":           {cancelsWritten, writing, "released"},
		"two Cancels are under way":                   {cancelsAtOnce, two, "under way"},
		"a running job is answered before it ends":    {answersRunning, hedging, "still runs"},
		"a cancelled job gets a core":                 {startsCancelled, hedging, "was answered"},
		"a slot is freed at the cancel and behind it": {freesTwice, hedging, "slots"},
		"a cancelled job that waits gets no answer":   {skipsAnswer, hedging, "waits for ever"},
		"a sink is free before the host has let go":   {freesSink, hedging, "sink"},
		"both results are delivered":                  {lateWins, calm, "delivered 2 times"},
		"the loser's credit comes back though spent":  {returnsLoser, calm, "does not exist"},
		"both hosts write to one sink":                {sharesSink, hedging, "one sink"},
		"the loser is forgotten once asked to end":    {dropsLoser, calm, "forgotten"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := explored(t, x.sc, x.left)
			if r.Err == nil || r.Trace == nil || !strings.Contains(r.Err.Error(), x.want) {
				t.Fatalf("%d states: %v; want %q", r.States, r.Err, x.want)
			}
			t.Logf("%v after %d states and %d steps:\n%s", r.Err, r.States, len(r.Trace), strings.Join(r.Trace, "\n"))
		})
	}
}
