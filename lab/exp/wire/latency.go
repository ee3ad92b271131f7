package wire

import (
	"context"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Latency is E13: our verbs beside plain TCP.
var Latency = &exp.Experiment{
	ID: "E13", Name: "latency-bandwidth",
	Question: "What do our verbs take, next to a plain TCP connection, for messages of all sizes?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "transport", Levels: []string{opTCP, opSend, opWrite, opRead}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(64, 65536), exp.Numbers(64, 4096, 65536, 1<<20, 16<<20),
				exp.Numbers(64, 512, 4096, 16384, 65536, 262144, 1<<20, 4<<20, 16<<20))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		{Name: "rtt", Unit: "us", What: "round trip, median of a sample"},
		{Name: "rate", Unit: "Gb/s", What: "rate of a stream of messages"},
		{Name: "cpu", Unit: "s/GB", What: "CPU time of both sides"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		srv, err := startServer(s.CPU)
		return &latency{srv, exp.Pick(s.Size, 2*time.Millisecond, 50*time.Millisecond, 150*time.Millisecond)}, err
	},
	Views: []exp.View{
		{Title: "Round trips", Metric: "rtt", X: "size", Lines: []string{"transport"}},
		{Title: "Streams", Metric: "rate", X: "size", Lines: []string{"transport"}},
		{Title: "CPU time of streams", Metric: "cpu", X: "size", Lines: []string{"transport"}},
	},
	Claims: []exp.Predicate{
		{Claim: "plain TCP has the shorter round trip up to 4 KiB", Says: "expected [I], as \"slightly slower\"", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 4096, func(s string) exp.Verdict {
				return r.Less(of(opTCP, s), of(opSend, s), "rtt", 1)
			})
		}},
		{Claim: "a Send's round trip takes less than twice TCP's up to 4 KiB", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 4096, func(s string) exp.Verdict {
				return r.Less(of(opSend, s), of(opTCP, s), "rtt", 2)
			})
		}},
		{Claim: "a lone Read of 64 bytes takes at most half as long again as TCP's round trip", Says: "ours, as a goal", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of(opRead, "64"), of(opTCP, "64"), "rtt", 1.5)
		}},
		{Claim: "plain TCP takes less CPU for streams of small messages (64 bytes)", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of(opTCP, "64"), of(opSend, "64"), "cpu", 1)
		}},
		{Claim: "placed receives have the advantage above 64 KiB: Writes are faster than plain TCP", Says: "APSys'11 [A]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 65537, 1<<30, func(s string) exp.Verdict {
				return r.Less(of(opTCP, s), of(opWrite, s), "rate", 1)
			})
		}},
		{Claim: "Writes of 1 MiB and more take at most half as much CPU again as TCP", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1<<20, 1<<30, func(s string) exp.Verdict {
				return r.Less(of(opWrite, s), of(opTCP, s), "cpu", 1.5)
			})
		}},
	},
	Defaults: []exp.Default{
		{What: "jobs and results travel by RDMA Write, with a Send behind them", Where: "pkg/connmgr/link/write.go"},
	},
}

// of returns a cell of Latency.
func of(transport, size string) exp.Cell { return exp.Cell{"transport": transport, "size": size} }

type latency struct {
	*server
	d time.Duration
}

func (l *latency) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	h := hello{Op: c["transport"], Size: c.Number("size")}
	us, _, err := l.ping(ctx, h, iwarp.Waiting{}, l.d)
	if err != nil {
		return nil, err
	}
	st, err := l.push(ctx, h, iwarp.Waiting{}, l.d)
	if err != nil {
		return nil, err
	}
	return exp.Values{"rtt": exp.Quantile(us, 0.5), "rate": st.gbps(), "cpu": st.perGB(st.client + st.server)}, nil
}
