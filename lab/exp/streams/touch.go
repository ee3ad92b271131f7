package streams

import (
	"context"

	"github.com/rdistcc/rdistcc/lab/exp"
)

// When a program of Touching writes to what it has sent.
const (
	atOnce = "at-once"
	later  = "later" // when the data has had time to leave
)

// Touching is E9: what it costs to write to memory that is being sent.
var Touching = &exp.Experiment{
	ID: "E9", Name: "page-touch",
	Question: "What does AZ cost a program that writes to what it has just sent?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "mode", Levels: []string{buffered, azHuge, azSmall, azChosen}},
			{Name: "touch", Levels: exp.Pick(z, exp.Numbers(0, 100), exp.Numbers(0, 1, 10, 50, 100), exp.Numbers(0, 1, 5, 10, 25, 50, 100))}, // percents of pages
			{Name: "when", Levels: []string{atOnce, later}},
		}
	},
	Keep:   func(c exp.Cell) bool { return c["when"] == atOnce || c["mode"] == azHuge || c["mode"] == buffered },
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 7, 21) },
	Metrics: []exp.Metric{
		rate, cpu,
		{Name: "touched", Unit: "pages", What: "pages that were copied twice, for a message of 256"},
	},
	Prepare: func(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
		b, err := prepareSenders(ctx, s)
		return &touching{b}, err
	},
	Views: []exp.View{
		{Title: "Messages of 1 MiB, by the percents of their pages that are written to at once", Metric: "rate", X: "touch", Lines: []string{"mode"}, Where: exp.Cell{"when": atOnce}, Table: true},
		{Title: "The sender's CPU time", Metric: "cpu", X: "touch", Lines: []string{"mode", "when"}, Table: true},
		{Title: "Pages", Metric: "touched", X: "touch", Lines: []string{"mode", "when"}, Table: true, Aside: true},
	},
	Claims: []exp.Predicate{
		{Claim: "AZ that does not give up takes more CPU than copying when all pages are touched", Says: "measured before [T]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of9(buffered, "100"), of9(azHuge, "100"), "cpu", 1)
		}},
		{Claim: "the fallback caps the loss: AZ that chooses has at least 0.9 of the rate of copying, whatever is touched", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("touch", 0, 100, func(t string) exp.Verdict { return r.Less(of9(buffered, t), of9(azChosen, t), "rate", 1/0.9) })
		}},
		{Claim: "the more is touched the more it costs: 10 % more than none, and all more than 10 %", Says: azSDP + ", as \"graceful\"", Judge: func(r *exp.Results) exp.Verdict {
			return exp.All(r.Less(of9(azHuge, "0"), of9(azHuge, "10"), "cpu", 1), r.Less(of9(azHuge, "10"), of9(azHuge, "100"), "cpu", 1))
		}},
	},
	Defaults: []exp.Default{noPolicy},
}

// of9 returns a cell of Touching.
func of9(mode, touch string) exp.Cell { return exp.Cell{"mode": mode, "touch": touch, "when": atOnce} }

type touching struct{ *senders }

func (b *touching) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	o, err := b.measure(ctx, sends{mode: c["mode"], size: 1 << 20, buffers: 4, touch: c.Number("touch"), later: c["when"] == later}, 1)
	if err != nil {
		return nil, err
	}
	v := exp.Values{"rate": o.gbps(o.bytes), "cpu": perGB(o.sender, o.bytes)}
	if c["mode"] != buffered {
		v["touched"] = o.touched
	}
	return v, nil
}

// Connections is E10: several connections to one receiving process.
var Connections = &exp.Experiment{
	ID: "E10", Name: "connections",
	Question: "What do the ways of sending give with several connections to one host?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "mode", Levels: []string{buffered, zeroCopy, azHuge, azSmall}},
			{Name: "conns", Levels: exp.Pick(z, exp.Numbers(1, 2), exp.Numbers(1, 2, 4, 8), exp.Numbers(1, 2, 4, 8))},
		}
	},
	Rounds:  func(z exp.Size) int { return exp.Pick(z, 1, 7, 21) },
	Metrics: []exp.Metric{rate, cpu},
	Prepare: func(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
		b, err := prepareSenders(ctx, s)
		return &connections{b}, err
	},
	Views: []exp.View{
		{Title: "Rate of all connections, messages of 1 MiB", Metric: "rate", X: "conns", Lines: []string{"mode"}},
		{Title: "The sender's CPU time", Metric: "cpu", X: "conns", Lines: []string{"mode"}},
	},
	Claims: []exp.Predicate{
		{Claim: "with 8 connections AZ has at least 1.3 times the rate of synchronous zero-copy", Says: azSDP + ", as \"up to 2 times\"", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of10(zeroCopy, "8"), of10(azHuge, "8"), "rate", 1/1.3)
		}},
		{Claim: "with 8 connections AZ takes less of the sender's CPU than copying", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of10(azHuge, "8"), of10(buffered, "8"), "cpu", 1)
		}},
	},
	Defaults: []exp.Default{noPolicy},
}

// of10 returns a cell of Connections.
func of10(mode, conns string) exp.Cell { return exp.Cell{"mode": mode, "conns": conns} }

type connections struct{ *senders }

func (b *connections) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	o, err := b.measure(ctx, sends{mode: c["mode"], size: 1 << 20, buffers: 2}, c.Number("conns"))
	if err != nil {
		return nil, err
	}
	return exp.Values{"rate": o.gbps(o.bytes), "cpu": perGB(o.sender, o.bytes)}, nil
}
