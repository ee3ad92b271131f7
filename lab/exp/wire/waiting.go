package wire

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/lab/exp/load"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Policies of waiting (iwarp.ParseWaiting) that claims are about.
const (
	loan   = "loan" // the default
	event  = "event"
	hybrid = "hybrid:50us" // iwarp.DefaultSpin
	poll   = "poll"
)

// What happens beside the waiter.
const (
	alone     = "nothing"
	compilers = "compilers"
)

// thinkBeside is how long the peer takes to answer beside compilers, in microseconds: as long as a cached result
// may be on its way.
const thinkBeside = "1000"

// WaitingWays is E4: the policies by which a CQ waits.
var WaitingWays = &exp.Experiment{
	ID: "E4", Name: "waiting",
	Question: "What does each of a CQ's ways of waiting gain, from blocking to polling, and what does it cost, also a build on the same machine?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "wait", Levels: exp.Pick(z, []string{exp.None, loan, event, hybrid, poll}, []string{exp.None, loan, event, "hybrid:10us", hybrid, "hybrid:200us", poll},
				[]string{exp.None, loan, event, "hybrid:10us", "hybrid:20us", hybrid, "hybrid:100us", "hybrid:200us", poll})},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(64), exp.Numbers(64, 16384), exp.Numbers(64, 4096, 65536))},
			{Name: "think", Levels: exp.Pick(z, exp.Numbers(0, 1000), exp.Numbers(0, 30, 100, 1000), exp.Numbers(0, 10, 30, 100, 300, 1000, 10000))},
			{Name: "beside", Levels: []string{alone, compilers}},
		}
	},
	Keep: func(c exp.Cell) bool {
		if c["beside"] == compilers {
			return c["size"] == "64" && c["think"] == thinkBeside
		}
		return c["wait"] != exp.None
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 7, 21) },
	Metrics: []exp.Metric{
		{Name: "p50", Unit: "us", What: "round trip, without the time that the peer thinks, median"},
		{Name: "p99", Unit: "us", What: "round trip, without the time that the peer thinks, 99th percentile"},
		{Name: "cores", Unit: "processors", What: "CPU time of the waiting process for each second"},
		{Name: "build", Unit: "s", What: "how long a fixed build takes beside it"},
	},
	Prepare: prepareWaiting,
	Views: []exp.View{
		{Title: "Round trips of 64 bytes by the time until the answer, in us", Metric: "p50", X: "think", Lines: []string{"wait"}, Where: exp.Cell{"size": "64", "beside": alone}, Table: true},
		{Title: "The same, 99th percentile", Metric: "p99", X: "think", Lines: []string{"wait"}, Where: exp.Cell{"size": "64", "beside": alone}, Table: true, Aside: true},
		{Title: "What the waiter costs", Metric: "cores", X: "think", Lines: []string{"wait"}, Where: exp.Cell{"size": "64", "beside": alone}, Table: true},
		{Title: "Round trips when the answer comes at once", Metric: "p50", X: "size", Lines: []string{"wait"}, Where: exp.Cell{"think": "0", "beside": alone}, Table: true, Aside: true},
		{Title: "A build beside a waiter whose answers take 1 ms", Metric: "build", X: "beside", Lines: []string{"wait"}, Where: exp.Cell{"beside": compilers}, Table: true},
		{Title: "Round trips beside a build", Metric: "p50", X: "beside", Lines: []string{"wait"}, Where: exp.Cell{"beside": compilers}, Table: true, Aside: true},
	},
	Claims: []exp.Predicate{
		{Claim: "polling has the shortest round trip when the answer comes at once", Says: "expected [I]", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			return exp.All(r.Less(waiter(poll, "0", alone), waiter(event, "0", alone), "p50", 1), r.Less(waiter(poll, "0", alone), waiter(loan, "0", alone), "p50", 1))
		}},
		{Claim: "a waiter that reads the connection itself (loan) has a shorter round trip than one that is woken (event) when the answer comes at once", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(waiter(loan, "0", alone), waiter(event, "0", alone), "p50", 1)
		}},
		{Claim: "polling takes a whole core", Says: "expected [I]", Cores: 2, Judge: func(r *exp.Results) exp.Verdict {
			return r.Beyond(waiter(poll, "1000", alone), "cores", 0.9)
		}},
		{Claim: "waiters that block, by loan or by event, take less CPU than those that spin", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("think", 100, 1000, func(t string) exp.Verdict {
				return exp.All(r.Less(waiter(loan, t, alone), waiter(poll, t, alone), "cores", 1), r.Less(waiter(loan, t, alone), waiter(hybrid, t, alone), "cores", 1),
					r.Less(waiter(event, t, alone), waiter(poll, t, alone), "cores", 1), r.Less(waiter(event, t, alone), waiter(hybrid, t, alone), "cores", 1))
			})
		}},
		{Claim: "spinning for 50 us is within a quarter of polling when the peer answers at once", Says: "expected [I]", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(waiter(hybrid, "0", alone), waiter(poll, "0", alone), "p50", 1.25)
		}},
		{Claim: "beside compilers, a polling waiter makes the build at least a tenth longer than one that blocks by the default policy", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(waiter(loan, thinkBeside, compilers), waiter(poll, thinkBeside, compilers), "build", 0.91)
		}},
		{Claim: "beside compilers, spinning for 50 us costs the build less than 5 % against the default policy", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(waiter(hybrid, thinkBeside, compilers), waiter(loan, thinkBeside, compilers), "build", 1.05)
		}},
	},
	Defaults: []exp.Default{
		{What: "a CQ waits by loan: it blocks, and does not spin", Where: "pkg/iwarp/waiting.go"},
	},
}

// waiter returns a cell of WaitingWays, for messages of 64 bytes.
func waiter(wait, think, beside string) exp.Cell {
	return exp.Cell{"wait": wait, "size": "64", "think": think, "beside": beside}
}

type waiting struct {
	*server
	d     time.Duration
	build *load.Build
	why   error // there is no build
}

func prepareWaiting(_ context.Context, s *exp.Setting) (exp.Bench, error) {
	w := &waiting{d: exp.Pick(s.Size, 2*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)}
	var err error
	if w.why = load.Available("gcc"); w.why == nil {
		if w.build, err = load.NewBuild(s.Dir, exp.Pick(s.Size, 1, 4, 24), exp.Pick(s.Size, 1, 60, 60), 2); err != nil {
			return nil, err
		}
	}
	w.server, err = startServer(s.CPU)
	return w, err
}

func (w *waiting) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	if c["beside"] == compilers {
		return w.beside(ctx, c)
	}
	us, cost, err := w.wait(ctx, c, w.d)
	if err != nil {
		return nil, err
	}
	return exp.Values{"p50": exp.Quantile(us, 0.5), "p99": exp.Quantile(us, 0.99), "cores": cost.client.Seconds() / cost.wall.Seconds()}, nil
}

// wait measures round trips, in microseconds beyond what the peer was told to think.
func (w *waiting) wait(ctx context.Context, c exp.Cell, d time.Duration) ([]float64, cost, error) {
	way, err := iwarp.ParseWaiting(c["wait"])
	if err != nil {
		return nil, cost{}, err
	}
	us, cost, err := w.ping(ctx, hello{Op: opSend, Size: c.Number("size"), ThinkUS: c.Number("think")}, way, d)
	for i := range us {
		us[i] -= float64(c.Number("think"))
	}
	return us, cost, err
}

// beside measures a build with a waiter that waits until the build is done.
func (w *waiting) beside(ctx context.Context, c exp.Cell) (exp.Values, error) {
	if w.why != nil {
		return nil, &exp.Untold{Reason: w.why.Error()}
	}
	wctx, stop := context.WithCancel(ctx)
	defer stop()
	type result struct {
		us  []float64
		err error
	}
	waited := make(chan result, 1)
	if c["wait"] == exp.None {
		waited <- result{}
	} else {
		way, err := iwarp.ParseWaiting(c["wait"])
		if err != nil {
			return nil, err
		}
		e, h, err := w.besideEnd(ctx, c, way)
		if err != nil {
			return nil, err
		}
		defer e.Close()
		go func() {
			var r result
			for wctx.Err() == nil {
				start := time.Now()
				if r.err = trip(wctx, e, h); r.err != nil {
					break
				}
				r.us = append(r.us, float64(time.Since(start).Nanoseconds())/1e3-float64(h.ThinkUS))
			}
			waited <- r
		}()
	}
	own, start := peer.Own(), time.Now()
	if err := w.build.Run(ctx); err != nil {
		stop()
		<-waited
		return nil, err
	}
	took := time.Since(start)
	cpu := peer.Own() - own
	stop()
	r := <-waited
	if r.err != nil && !errors.Is(r.err, context.Canceled) {
		return nil, r.err
	}
	v := exp.Values{"build": took.Seconds(), "cores": cpu.Seconds() / took.Seconds()}
	if len(r.us) > 0 {
		v["p50"], v["p99"] = exp.Quantile(r.us, 0.5), exp.Quantile(r.us, 0.99)
	}
	return v, nil
}

func (w *waiting) besideEnd(ctx context.Context, c exp.Cell, way iwarp.Waiting) (*end.End, *hello, error) {
	h := &hello{Echo: true, Op: opSend, Size: c.Number("size"), ThinkUS: c.Number("think")}
	e, err := w.dial(ctx, h, way)
	return e, h, err
}
