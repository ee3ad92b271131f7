package streams

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// When a Read that waits is offered to the peer.
const (
	always = "always"
	longer = "16KiB" // if it has as many bytes
	never  = "never"
)

var directMins = map[string]int{always: 1, longer: 0, never: math.MaxInt}

// Reads is a part of E5: which Reads should be offered to the peer.
var Reads = &exp.Experiment{
	ID: "E5b", Name: "reads",
	Question: "From which length on is it worth to offer the memory of a Read to the peer, instead of waiting for data in the ring?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "offered", Levels: []string{always, longer, never}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(4096), exp.Numbers(512, 4096, 16384, 65536, 262144), exp.Numbers(512, 4096, 8192, 16384, 32768, 65536, 262144, 1<<20))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		rate,
		{Name: "cpu", Unit: "s/GB", What: "the receiver's CPU time"},
		{Name: "rtt", Unit: "us", What: "round trip of a message and an answer, median"},
	},
	Prepare: func(_ context.Context, s *exp.Setting) (exp.Bench, error) {
		both, err := start(loopback, s.CPU)
		return &reads{both, exp.Pick(s.Size, 2*time.Millisecond, 50*time.Millisecond, 150*time.Millisecond)}, err
	},
	Views: []exp.View{
		{Title: "Rate, by the length of Writes and Reads", Metric: "rate", X: "size", Lines: []string{"offered"}, Aside: true},
		{Title: "The receiver's CPU time", Metric: "cpu", X: "size", Lines: []string{"offered"}},
		{Title: "Round trips of messages", Metric: "rtt", X: "size", Lines: []string{"offered"}},
	},
	Claims: []exp.Predicate{
		{Claim: "to offer Reads of less than 16 KiB makes round trips longer", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 16<<10-1, func(s string) exp.Verdict { return r.Less(of5b(never, s), of5b(always, s), "rtt", 1) })
		}},
		{Claim: "to offer Reads of 64 KiB and more takes at most 1.1 of the receiver's CPU", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 64<<10, 1<<30, func(s string) exp.Verdict { return r.Less(of5b(always, s), of5b(never, s), "cpu", 1.1) })
		}},
	},
	Defaults: []exp.Default{{What: "`Config.DirectMin`: 16 KiB", Where: "pkg/stream/config.go"}},
}

// of5b returns a cell of Reads.
func of5b(offered, size string) exp.Cell { return exp.Cell{"offered": offered, "size": size} }

type reads struct {
	*sides
	d time.Duration
}

func (b *reads) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	size := c.Number("size")
	h := hello{Size: size, Warm: max(8, min(64, (2<<20)/size)), Read: true, DirectMin: directMins[c["offered"]]}
	buf := filled(size)
	run := func(h hello, measured func(*stream.Conn) error) error {
		conn, err := b.dial(ctx, &h, stream.Config{})
		if err != nil {
			return err
		}
		defer end(conn)
		for range h.Warm {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
		}
		return errors.Join(answer(conn), measured(conn))
	}
	v := make(exp.Values)
	err := run(h, func(conn *stream.Conn) error {
		n := int64(0)
		k, err := b.clock(func() error {
			for begin := time.Now(); time.Since(begin) < b.d; n += int64(size) {
				if _, err := conn.Write(buf); err != nil {
					return err
				}
			}
			_, err := finish(conn)
			return err
		})
		v["rate"], v["cpu"] = k.gbps(n), perGB(k.receiver, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	h.Each = 1
	err = run(h, func(conn *stream.Conn) error {
		var trips []float64
		for begin := time.Now(); time.Since(begin) < b.d; {
			start := time.Now()
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			if err := answer(conn); err != nil {
				return err
			}
			trips = append(trips, us(time.Since(start)))
		}
		v["rtt"] = exp.Quantile(trips, 0.5)
		_, err := finish(conn)
		return err
	})
	return v, err
}

// read receives to the end of the stream, by Reads.
func read(c *stream.Conn, h *hello) error {
	buf := filled(h.Size)
	for n := 1; ; n++ {
		if _, err := io.ReadFull(c, buf); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if n == h.Warm || h.Each > 0 && n > h.Warm {
			if _, err := c.Write([]byte{1}); err != nil {
				return err
			}
		}
	}
}
