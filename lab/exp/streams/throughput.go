package streams

import (
	"context"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
)

// azSDP is who claims what AZ gains.
const azSDP = "AZ-SDP, IPDPS'06 [S]"

// Metrics that the experiments on the sender's memory share.
var (
	rate = exp.Metric{Name: "rate", Unit: "Gb/s", What: "rate of the stream"}
	call = exp.Metric{Name: "call", Unit: "us", What: "time inside of Write for a message"}
	wait = exp.Metric{Name: "wait", Unit: "us", What: "time until its memory can be filled again"}
	cpu  = exp.Metric{Name: "cpu", Unit: "s/GB", What: "the sender's CPU time"}
)

// noPolicy is what these experiments speak about.
var noPolicy = exp.Default{What: "asynchronous zero-copy is no policy of pkg/stream", Where: "lab/az/doc.go"}

// Throughput is E7: what sending without a copy gains.
var Throughput = &exp.Experiment{
	ID: "E7", Name: "zero-copy",
	Question: "Is a stream faster, or cheaper for its sender, if it does not copy, and if Write returns before the data has left?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "mode", Levels: []string{buffered, zeroCopy, azHuge, azSmall, azChosen}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(65536), exp.Numbers(4096, 65536, 262144, 1<<20, 4<<20), exp.Numbers(4096, 16384, 65536, 262144, 1<<20, 2<<20, 4<<20, 16<<20))},
			{Name: "buffers", Levels: exp.Pick(z, exp.Numbers(2), exp.Numbers(1, 4), exp.Numbers(1, 2, 4, 8))},
		}
	},
	// A Write that waits has no use for a second buffer.
	Keep:    func(c exp.Cell) bool { return c["mode"] != zeroCopy && c["mode"] != buffered || c["buffers"] != "1" },
	Rounds:  func(z exp.Size) int { return exp.Pick(z, 1, 7, 21) },
	Metrics: []exp.Metric{rate, call, wait, cpu},
	Prepare: func(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
		b, err := prepareSenders(ctx, s)
		return &throughput{b}, err
	},
	Views: []exp.View{
		{Title: "Rate, 4 buffers", Metric: "rate", X: "size", Lines: []string{"mode"}, Where: exp.Cell{"buffers": "4"}},
		{Title: "Time inside of Write, 4 buffers", Metric: "call", X: "size", Lines: []string{"mode"}, Where: exp.Cell{"buffers": "4"}},
		{Title: "Time that AZ waits for a buffer, 4 buffers", Metric: "wait", X: "size", Lines: []string{"mode"}, Where: exp.Cell{"buffers": "4"}, Table: true, Aside: true},
		{Title: "The sender's CPU time, 4 buffers", Metric: "cpu", X: "size", Lines: []string{"mode"}, Where: exp.Cell{"buffers": "4"}},
	},
	Claims: []exp.Predicate{
		{Claim: "for medium messages (64 KiB to 1 MiB) AZ is faster than synchronous zero-copy", Says: azSDP + ", as \"close to 35 %\"", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 65536, 1<<20, func(s string) exp.Verdict { return r.Less(of7(zeroCopy, s), of7(azHuge, s), "rate", 1) })
		}},
		{Claim: "with pages of 4 KiB AZ takes more of the sender's CPU than copying, at every size", Says: "measured before [T]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict { return r.Less(of7(buffered, s), of7(azSmall, s), "cpu", 1) })
		}},
		{Claim: "with pages of 2 MiB the lines of copying and AZ cross between 64 KiB and 4 MiB, by the sender's CPU", Says: "measured before [T], as 768 KiB to 1 MiB", Judge: func(r *exp.Results) exp.Verdict {
			return r.Cross("size", exp.Cell{"mode": buffered, "buffers": "4"}, exp.Cell{"mode": azHuge, "buffers": "4"}, "cpu", 64<<10, 4<<20)
		}},
		{Claim: "from 1 MiB on Write returns in less than a tenth of the time that a copy takes", Says: "measured before [T]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1<<20, 1<<30, func(s string) exp.Verdict { return r.Less(of7(azHuge, s), of7(buffered, s), "call", 0.1) })
		}},
		{Claim: "AZ that chooses takes at most 1.05 of the CPU of the better of copying and AZ, at every size", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict {
				return exp.All(r.Less(of7(azChosen, s), of7(buffered, s), "cpu", 1.05), r.Less(of7(azChosen, s), of7(azHuge, s), "cpu", 1.05))
			})
		}},
		{Claim: "synchronous zero-copy takes less of the sender's CPU than copying from 256 KiB on", Says: "HotI'05 [A]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 256<<10, 1<<30, func(s string) exp.Verdict { return r.Less(of7(zeroCopy, s), of7(buffered, s), "cpu", 1) })
		}},
	},
	Defaults: []exp.Default{
		noPolicy,
		{What: "`Config.Mode`: buffered, with slots of 128 KiB", Where: "pkg/stream/config.go"},
		{What: "`Config.ZeroCopyMin`: 256 KiB", Where: "pkg/stream/config.go"},
	},
}

// of7 returns a cell of Throughput with 4 buffers.
func of7(mode, size string) exp.Cell { return exp.Cell{"mode": mode, "size": size, "buffers": "4"} }

type throughput struct{ *senders }

func (b *throughput) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	o, err := b.measure(ctx, sends{mode: c["mode"], size: c.Number("size"), buffers: c.Number("buffers")}, 1)
	if err != nil {
		return nil, err
	}
	v := exp.Values{"rate": o.gbps(o.bytes), "call": o.call, "cpu": perGB(o.sender, o.bytes)}
	if m := c["mode"]; m != buffered && m != zeroCopy {
		v["wait"] = o.wait
	}
	return v, nil
}

// overlapSize is the length of Overlap's messages, in bytes.
const overlapSize = 1 << 20

// Overlap is E8: what a program gains that computes while its data is sent.
var Overlap = &exp.Experiment{
	ID: "E8", Name: "overlap",
	Question: "What does a program gain that goes on computing while its data is sent?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "mode", Levels: []string{buffered, zeroCopy, azHuge, azSmall}},
			{Name: "compute", Levels: exp.Pick(z, exp.Numbers(0, 100), exp.Numbers(0, 50, 100, 200), exp.Numbers(0, 25, 50, 100, 200, 400))}, // percents of a transfer
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		{Name: "rate", Unit: "messages/s", What: "messages of 1 MiB"},
		{Name: "slowed", Unit: "times", What: "time that computing takes, to what it takes alone"},
	},
	Prepare: func(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
		b, err := prepareSenders(ctx, s)
		if err != nil {
			return nil, err
		}
		o, err := b.measure(ctx, sends{mode: zeroCopy, size: overlapSize, buffers: 1}, 1)
		if err != nil {
			_ = b.Close()
			return nil, fmt.Errorf("how long a transfer takes: %w", err)
		}
		return &overlap{b, o.wall / time.Duration(o.n)}, nil
	},
	Views: []exp.View{
		{Title: "Messages of 1 MiB, by the time that computing takes in percents of a transfer", Metric: "rate", X: "compute", Lines: []string{"mode"}, Table: true},
		{Title: "What computing is slowed down by", Metric: "slowed", X: "compute", Lines: []string{"mode"}, Table: true, Aside: true},
	},
	Claims: []exp.Predicate{
		{Claim: "AZ has at least 1.3 times the rate of synchronous zero-copy when computing takes as long as a transfer", Says: azSDP + ", as \"up to 2 times\"", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of8(zeroCopy, "100"), of8(azHuge, "100"), "rate", 1/1.3)
		}},
		{Claim: "AZ is faster than copying when computing takes as long as a transfer", Says: "ours", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of8(buffered, "100"), of8(azHuge, "100"), "rate", 1)
		}},
	},
	Defaults: []exp.Default{noPolicy},
}

// of8 returns a cell of Overlap.
func of8(mode, compute string) exp.Cell { return exp.Cell{"mode": mode, "compute": compute} }

type overlap struct {
	*senders
	transfer time.Duration // of a message
}

func (b *overlap) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	x := sends{mode: c["mode"], size: overlapSize, buffers: 4, compute: b.transfer * time.Duration(c.Number("compute")) / 100}
	o, err := b.measure(ctx, x, 1)
	if err != nil {
		return nil, err
	}
	v := exp.Values{"rate": float64(o.n) / o.wall.Seconds()}
	if x.compute > 0 {
		v["slowed"] = o.slowed
	}
	return v, nil
}
