package wire

import (
	"context"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Framing is E11: what the layers of software iWARP cost.
var Framing = &exp.Experiment{
	ID: "E11", Name: "framing",
	Question: "What do CRCs, markers and the size of FPDUs cost software iWARP, for Write, Send and Read?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "op", Levels: exp.Pick(z, []string{opWrite}, []string{opWrite, opSend, opRead}, []string{opWrite, opSend, opRead})},
			{Name: "crc", Levels: []string{"crc", "no-crc"}},
			{Name: "markers", Levels: []string{"no-markers", "markers"}},
			{Name: "fpdu", Bytes: true, Levels: exp.Pick(z, exp.Numbers(1408, 32768), exp.Numbers(1408, 8192, 32768, 61440),
				exp.Numbers(1408, 2816, 8192, 16384, 32768, 61440))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 7, 25) },
	Metrics: []exp.Metric{
		{Name: "rate", Unit: "Gb/s", What: "rate of messages of 256 KiB"},
		{Name: "source", Unit: "s/GB", What: "CPU time of the side that has the data"},
		{Name: "sink", Unit: "s/GB", What: "CPU time of the side that gets it"},
		{Name: "core", Unit: "Gb/s", What: "rate for each processor that the busier side uses"},
		{Name: "cpu", Unit: "s/GB", What: "CPU time of both sides"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		srv, err := startServer(s.CPU)
		return &framing{srv, exp.Pick(s.Size, 2*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)}, err
	},
	Views: []exp.View{
		{Title: "Rate by framing, Write", Metric: "rate", X: "fpdu", Lines: []string{"crc", "markers"}, Where: exp.Cell{"op": opWrite}, Aside: true},
		{Title: "CPU time by framing, Write", Metric: "cpu", X: "fpdu", Lines: []string{"crc", "markers"}, Where: exp.Cell{"op": opWrite}},
		{Title: "The receiving side's CPU time by operation, with CRC and without markers", Metric: "sink", X: "fpdu", Lines: []string{"op"}, Where: exp.Cell{"crc": "crc", "markers": "no-markers"}, Table: true, Aside: true},
		{Title: "The sending side's CPU time by operation, with CRC and without markers", Metric: "source", X: "fpdu", Lines: []string{"op"}, Where: exp.Cell{"crc": "crc", "markers": "no-markers"}, Table: true, Aside: true},
		{Title: "Rate for each processor, without CRC and markers", Metric: "core", X: "fpdu", Lines: []string{"op"}, Where: exp.Cell{"crc": "no-crc", "markers": "no-markers"}, Table: true},
	},
	Claims: []exp.Predicate{
		{Claim: "one core moves more than 5 Gb/s with CRCs off (FPDUs of 32 KiB)", Says: "OSC's software iWARP [A]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Beyond(framed("no-crc", "no-markers", "32768"), "core", 5)
		}},
		{Claim: "a CRC costs CPU time at every size of FPDU", Says: "OSC [A], which turned it off", Judge: func(r *exp.Results) exp.Verdict {
			return everyFPDU(r, func(s string) exp.Verdict {
				return r.Less(framed("no-crc", "no-markers", s), framed("crc", "no-markers", s), "cpu", 1)
			})
		}},
		{Claim: "at 32 KiB the CRC costs less than half as much again", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(framed("crc", "no-markers", "32768"), framed("no-crc", "no-markers", "32768"), "cpu", 1.5)
		}},
		{Claim: "markers cost CPU time at every size of FPDU", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return everyFPDU(r, func(s string) exp.Verdict {
				return r.Less(framed("crc", "no-markers", s), framed("crc", "markers", s), "cpu", 1)
			})
		}},
		{Claim: "larger FPDUs gain the most: 32 KiB with a CRC takes less CPU than 1408 bytes without", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(framed("crc", "no-markers", "32768"), framed("no-crc", "no-markers", "1408"), "cpu", 1)
		}},
		{Claim: "beyond 32 KiB nothing is gained: 60 KiB is less than a tenth cheaper", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(framed("crc", "no-markers", "32768"), framed("crc", "no-markers", "61440"), "cpu", 1.1)
		}},
	},
	Defaults: []exp.Default{
		{What: "payload of an FPDU: 32 KiB where the path allows it", Where: "pkg/iwarp/segments.go"},
		{What: "CRC32C: required", Where: "pkg/iwarp/cm.go"},
		{What: "markers: not asked for", Where: "pkg/iwarp/cm.go"},
	},
}

// framed returns a cell of Framing, of Writes.
func framed(crc, markers, fpdu string) exp.Cell {
	return exp.Cell{"op": opWrite, "crc": crc, "markers": markers, "fpdu": fpdu}
}

func everyFPDU(r *exp.Results, judge func(string) exp.Verdict) exp.Verdict {
	return r.Along("fpdu", 1, 1<<16, judge)
}

type framing struct {
	*server
	d time.Duration
}

// framedMessage is the size of messages, in bytes: several of the largest FPDUs.
const framedMessage = 256 << 10

func (f *framing) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	h := hello{Op: c["op"], Size: framedMessage, NoCRC: c["crc"] == "no-crc", Markers: c["markers"] == "markers", Payload: c.Number("fpdu")}
	st, err := f.push(ctx, h, iwarp.Waiting{}, f.d)
	if err != nil {
		return nil, err
	}
	source, sink := st.client, st.server
	if h.Op == opRead {
		source, sink = sink, source
	}
	return exp.Values{
		"rate": st.gbps(), "source": st.perGB(source), "sink": st.perGB(sink), "cpu": st.perGB(source + sink),
		"core": 8 / st.perGB(max(source, sink, time.Nanosecond)),
	}, nil
}
