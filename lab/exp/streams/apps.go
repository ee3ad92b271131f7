package streams

import (
	"context"
	"errors"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// burst is how many messages a sender of Applications has at a time.
const burst = 8

// burstSize is their length, in bytes.
const burstSize = 32 << 10

// Applications is E6: what the two ways do for applications that are not always ready.
var Applications = &exp.Experiment{
	ID: "E6", Name: "applications",
	Question: "Does a stream adapt to a receiver that computes between receives, and to a sender that has bursts?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "policy", Levels: []string{direct, indirect, dynamic}},
			{Name: "receives", Levels: exp.Pick(z, exp.Numbers(2), exp.Numbers(1, 4, 16), exp.Numbers(1, 2, 4, 8, 16))},
			{Name: "think", Levels: exp.Pick(z, exp.Numbers(0, 200), exp.Numbers(0, 200), exp.Numbers(0, 50, 200, 1000))}, // us
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 7, 21) },
	Metrics: []exp.Metric{
		{Name: "held", Unit: "us", What: "time until a burst's memory is the sender's again"},
		{Name: "done", Unit: "us", What: "time until the receiver has handled a burst"},
		{Name: "direct", Unit: "%", What: "share that went straight to a receive"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		both, err := start(loopback, s.CPU)
		return &apps{both, exp.Pick(s.Size, 2, 20, 60)}, err
	},
	Views: []exp.View{
		{Title: "Bursts of 8 messages of 32 KiB to a receiver that computes for 200 us", Metric: "held", X: "receives", Lines: []string{"policy"}, Where: exp.Cell{"think": "200"}},
		{Title: "The same until all are handled", Metric: "done", X: "receives", Lines: []string{"policy"}, Where: exp.Cell{"think": "200"}, Aside: true},
		{Title: "A receiver that is ready at once", Metric: "done", X: "receives", Lines: []string{"policy"}, Where: exp.Cell{"think": "0"}, Aside: true},
	},
	Claims: []exp.Predicate{
		{Claim: "a sender that may use the ring does not wait for a receiver that computes: with 1 receive posted dynamic takes less than half of direct's time", Says: "IPDPS'14 [S]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of6(dynamic, "1", "200"), of6(direct, "1", "200"), "held", 0.5)
		}},
		{Claim: "dynamic handles a burst within 1.1 of the better one's time, with few receives and with many", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("receives", 1, 100, func(n string) exp.Verdict {
				return exp.All(r.Less(of6(dynamic, n, "200"), of6(direct, n, "200"), "done", 1.1), r.Less(of6(dynamic, n, "200"), of6(indirect, n, "200"), "done", 1.1))
			})
		}},
		{Claim: "with twice as many receives as a burst has messages nearly all goes direct, though the receiver computes", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Beyond(of6(dynamic, "16", "200"), "direct", 95)
		}},
	},
	Defaults: []exp.Default{{What: "`Config.Policy`: dynamic", Where: "pkg/stream/config.go"}},
}

// of6 returns a cell of Applications.
func of6(policy, receives, think string) exp.Cell {
	return exp.Cell{"policy": policy, "receives": receives, "think": think}
}

type apps struct {
	*sides
	bursts int
}

func (b *apps) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	h := hello{Size: burstSize, Recvs: c.Number("receives"), Ring: burst * burstSize, Warm: 2 * burst, Each: burst, ThinkUS: c.Number("think")}
	conn, err := b.dial(ctx, &h, stream.Config{Policy: policies[c["policy"]]})
	if err != nil {
		return nil, err
	}
	defer end(conn)
	p, err := newPoster(conn, burst, burstSize)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.post(h.Warm, 0), answer(conn)); err != nil {
		return nil, err
	}
	var held, done []float64
	for range b.bursts {
		begin := time.Now()
		if err := p.post(burst, 0); err != nil {
			return nil, err
		}
		held = append(held, us(time.Since(begin)))
		if err := answer(conn); err != nil {
			return nil, err
		}
		done = append(done, us(time.Since(begin)))
		think(100) // the receiver posts its receives again
	}
	r, err := finish(conn)
	if err != nil {
		return nil, err
	}
	return exp.Values{"held": exp.Quantile(held, 0.5), "done": exp.Quantile(done, 0.5), "direct": 100 * float64(r.Direct) / float64(r.Bytes)}, nil
}

// us returns a duration in microseconds.
func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
