package jobs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Steps of what a connection manager keeps; each has what those before it have.
const (
	stepCold    = "cold"    // nothing is kept: connect, make a QP, register, ask for a slot
	stepKept    = "kept"    // the connection
	stepPool    = "pool"    // registered memory on both sides
	stepCredits = "credits" // slots that are known beforehand
)

// steps has the connection and memory of each step.
var steps = map[string]struct{ state, memory string }{
	stepCold: {cold, each}, stepKept: {warm, each}, stepPool: {warm, asked}, stepCredits: {warm, pool},
}

// setupText is the length of a job's text, in bytes: one page.
const setupText = 4096

// Setup is E2: what a connection manager saves.
var Setup = &exp.Experiment{
	ID: "E2", Name: "connection-manager",
	Question: "How long until a job's first byte is at the host, when connection, memory and credits are made for each job or kept?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "kept", Levels: []string{stepCold, stepKept, stepPool, stepCredits}},
			{Name: "clients", Levels: exp.Pick(z, exp.Numbers(1, 2), exp.Numbers(1, 4, 32), exp.Numbers(1, 2, 4, 8, 16, 32))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		{Name: "p50", Unit: "us", What: "time from a job's start to its first byte at the host, median"},
		{Name: "p99", Unit: "us", What: "time from a job's start to its first byte at the host, 99th percentile"},
		{Name: "client", Unit: "us", What: "the client's CPU time for a job"},
		{Name: "host", Unit: "us", What: "the host's CPU time for a job"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		both, err := start(loopback, s.Dir, nil, s.CPU)
		return &setup{both, exp.Pick(s.Size, 2*time.Millisecond, 100*time.Millisecond, 300*time.Millisecond)}, err
	},
	Views: []exp.View{
		{Title: "First byte at the host", Metric: "p50", X: "clients", Lines: []string{"kept"}},
		{Title: "First byte at the host, 99th percentile", Metric: "p99", X: "clients", Lines: []string{"kept"}, Aside: true},
		{Title: "CPU time of the client", Metric: "client", X: "clients", Lines: []string{"kept"}, Table: true, Aside: true},
		{Title: "CPU time of the host", Metric: "host", X: "clients", Lines: []string{"kept"}, Table: true},
	},
	Claims: []exp.Predicate{
		{Claim: "a connection manager improves efficiency: each thing that is kept shortens the way of the first byte, with one client", Says: "RZ3764 [S], without figures", Judge: func(r *exp.Results) exp.Verdict {
			return exp.All(r.Less(kept(stepKept, "1"), kept(stepCold, "1"), "p50", 1), r.Less(kept(stepPool, "1"), kept(stepKept, "1"), "p50", 1),
				r.Less(kept(stepCredits, "1"), kept(stepPool, "1"), "p50", 1))
		}},
		{Claim: "a kept connection with standing credits takes less than a third of a cold one's time, for any number of clients", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("clients", 1, 1<<20, func(n string) exp.Verdict {
				return r.Less(kept(stepCredits, n), kept(stepCold, n), "p50", 1.0/3)
			})
		}},
		{Claim: "with a manager a job's set-up does not depend on the number of clients: the median with 32 is within twice that with one", Says: "expected [I]", Cores: 32, Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(kept(stepCredits, "32"), kept(stepCredits, "1"), "p50", 2)
		}},
		{Claim: "what is kept saves two thirds of the CPU time on either side", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("clients", 1, 1<<20, func(n string) exp.Verdict {
				return exp.All(r.Less(kept(stepCredits, n), kept(stepCold, n), "client", 1.0/3), r.Less(kept(stepCredits, n), kept(stepCold, n), "host", 1.0/3))
			})
		}},
	},
	Defaults: []exp.Default{
		{What: "the manager keeps connections", Where: "pkg/connmgr/farm/pool.go"},
		{What: "a host grants credits with each result, before they are asked for", Where: "pkg/worker/credits.go"},
	},
}

// kept returns a cell of Setup.
func kept(step, clients string) exp.Cell { return exp.Cell{"kept": step, "clients": clients} }

type setup struct {
	*sides
	d time.Duration
}

// Measure has some clients do jobs at the same time, each one after the other.
func (s *setup) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	step := steps[c["kept"]]
	clients := make([]setupClient, c.Number("clients"))
	for i := range clients {
		clients[i] = setupClient{sides: s.sides, cold: step.state == cold, hello: hello{Carrier: byWrite, Memory: step.memory}}
		defer clients[i].close()
		if err := clients[i].begin(ctx); err != nil {
			return nil, err
		}
	}
	spent, err := s.clock(func() error {
		var wg sync.WaitGroup
		stop := time.Now().Add(s.d)
		for i := range clients {
			wg.Go(func() { clients[i].run(ctx, stop) })
		}
		wg.Wait()
		return nil
	})
	var us []float64
	for i := range clients {
		us = append(us, clients[i].us...)
		err = errors.Join(err, clients[i].err)
	}
	if err != nil {
		return nil, err
	}
	n := float64(len(us))
	return exp.Values{"p50": exp.Quantile(us, 0.5), "p99": exp.Quantile(us, 0.99),
		"client": ms(spent.client) * 1e3 / n, "host": ms(spent.host) * 1e3 / n}, nil
}

// setupClient does jobs one after the other.
type setupClient struct {
	*sides
	hello hello
	cold  bool
	kept  conn
	us    []float64
	err   error
}

// begin makes the connection that is kept, and uses it once.
func (c *setupClient) begin(ctx context.Context) (err error) {
	if c.cold {
		return nil
	}
	if c.kept, err = c.connect(ctx, c.hello, iwarp.Waiting{}); err != nil {
		return err
	}
	_, _, err = c.kept.do(ctx, &job{text: make([]byte, setupText)})
	return err
}

func (c *setupClient) close() {
	if c.kept != nil {
		c.kept.close()
	}
}

// run does jobs until stop, at least one.
func (c *setupClient) run(ctx context.Context, stop time.Time) {
	j := &job{text: make([]byte, setupText)}
	for c.err == nil && (time.Now().Before(stop) || len(c.us) == 0) {
		begin := monotonic()
		at := c.kept
		if c.cold {
			if at, c.err = c.connect(ctx, c.hello, iwarp.Waiting{}); c.err != nil {
				return
			}
		}
		var first int64
		if _, first, c.err = at.do(ctx, j); c.err == nil {
			c.us = append(c.us, float64(first-begin)/1e3)
		}
		if c.cold {
			at.close()
		}
	}
}
