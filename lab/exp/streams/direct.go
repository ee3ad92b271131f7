package streams

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/netlab"
	"github.com/rdistcc/rdistcc/pkg/stream"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// Policies of a sender.
const (
	direct   = "direct"
	indirect = "indirect"
	dynamic  = "dynamic"
)

var policies = map[string]exs.Policy{direct: exs.Direct, indirect: exs.Indirect, dynamic: exs.Dynamic}

// Direct is E5: where the bytes of a stream should go.
var Direct = &exp.Experiment{
	ID: "E5", Name: "streams",
	Question: "Is a stream that decides at each moment whether bytes go to the reader's memory or to a ring as fast as the better of both?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "policy", Levels: []string{direct, indirect, dynamic}},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(65536), exp.Numbers(4096, 65536, 1<<20), exp.Numbers(512, 4096, 16384, 65536, 262144, 1<<20, 4<<20))},
			{Name: "sends", Levels: exp.Pick(z, exp.Numbers(1), exp.Numbers(1, 8), exp.Numbers(1, 2, 8, 32))},
			{Name: "times", Levels: exp.Numbers(1, 2)}, // so many times as many receives
			{Name: "ring", Levels: append([]string{fits}, exp.Pick(z, nil, exp.Numbers(256<<10, 1<<20), exp.Numbers(64<<10, 256<<10, 1<<20, 4<<20))...)},
			{Name: "rtt", Levels: exp.Pick(z, exp.Numbers(0, 1), exp.Numbers(0, 1, 10, 48), exp.Numbers(0, 1, 10, 48))},
		}
	},
	Keep: func(c exp.Cell) bool {
		if c["ring"] != fits { // what it has to be
			return c["policy"] == dynamic && c["size"] == "65536" && c["sends"] == "8" && c["times"] == "2"
		}
		return c["rtt"] == "0" || c["size"] == "65536"
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 5, 15) },
	Metrics: []exp.Metric{
		{Name: "rate", Unit: "Gb/s", What: "rate of the stream"},
		{Name: "cpu", Unit: "s/GB", What: "the receiver's CPU time"},
		{Name: "direct", Unit: "%", What: "share that went straight to a receive"},
	},
	Prepare: prepareDirect,
	Views: []exp.View{
		{Title: "On loopback, 8 sends and 16 receives", Metric: "rate", X: "size", Lines: []string{"policy"}, Where: exp.Cell{"rtt": "0", "sends": "8", "times": "2", "ring": fits}},
		{Title: "The receiver's CPU time, on loopback, 8 sends and 16 receives", Metric: "cpu", X: "size", Lines: []string{"policy"}, Where: exp.Cell{"rtt": "0", "sends": "8", "times": "2", "ring": fits}},
		{Title: "By the network's round trip in ms, 64 KiB, as many receives as sends", Metric: "rate", X: "rtt", Lines: []string{"policy", "sends"}, Where: exp.Cell{"size": "65536", "times": "1", "ring": fits}, Table: true},
		{Title: "By the size of the ring, dynamic, 64 KiB, 8 sends and 16 receives", Metric: "rate", X: "rtt", Lines: []string{"ring"}, Where: exp.Cell{"policy": dynamic, "size": "65536", "sends": "8", "times": "2"}, Table: true},
		{Title: "Share that goes direct, 64 KiB, by sends outstanding and receives for each", Metric: "direct", X: "rtt", Lines: []string{"sends", "times"}, Where: exp.Cell{"size": "65536", "policy": dynamic, "ring": fits}, Table: true},
	},
	Claims: []exp.Predicate{
		{Claim: "dynamic is at least 0.95 of the better one at every round-trip time (64 KiB)", Says: "IPDPS'14 [S]", Judge: func(r *exp.Results) exp.Verdict {
			return notSlower(r, "65536", "rtt", 0, 1000)
		}},
		{Claim: "with twice as many receives as sends at least 95 % goes direct", Says: "IPDPS'14 [M]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("rtt", 0, 1000, func(rtt string) exp.Verdict { return r.Beyond(of5(dynamic, "65536", "8", "2", rtt), "direct", 95) })
		}},
		{Claim: "with as many receives as sends at most 30 % goes direct", Says: "IPDPS'14 [M]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("rtt", 0, 1000, func(rtt string) exp.Verdict {
				return exp.Not(r.Beyond(of5(dynamic, "65536", "8", "1", rtt), "direct", 30))
			})
		}},
		{Claim: "small messages (4 KiB) are faster through the ring", Says: "IPDPS'14 [M]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of5(direct, "4096", "8", "2", "0"), of5(indirect, "4096", "8", "2", "0"), "rate", 1)
		}},
		{Claim: "large messages (1 MiB) take less of the receiver's CPU if they go direct", Says: "IPDPS'14 [S]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of5(direct, "1048576", "8", "2", "0"), of5(indirect, "1048576", "8", "2", "0"), "cpu", 1)
		}},
		{Claim: "a ring of 1 MiB has at least 1.5 times the rate of 256 KiB at 10 ms", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			c := of5(dynamic, "65536", "8", "2", "10")
			return r.Less(c.With("ring", "262144"), c.With("ring", "1048576"), "rate", 1/1.5)
		}},
		{Claim: "direct alone collapses over distance with few operations outstanding: with one it has less than half of the ring's rate at 10 ms", Says: "IPDPS'14 [M]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(of5(direct, "65536", "1", "1", "10"), of5(indirect, "65536", "1", "1", "10"), "rate", 0.5)
		}},
	},
	Defaults: []exp.Default{
		{What: "`Config.Policy`: dynamic", Where: "pkg/stream/config.go"},
		{What: "`Config.Ring`: 1 MiB", Where: "pkg/stream/config.go"},
		{What: "WriteTo posts twice as many receives as a sender has slots", Where: "pkg/stream/writeto.go"},
	},
}

// of5 returns a cell of Direct.
func of5(policy, size, sends, times, rtt string) exp.Cell {
	return exp.Cell{"policy": policy, "size": size, "sends": sends, "times": times, "rtt": rtt, "ring": fits}
}

// notSlower judges that dynamic has at least 0.95 of the rate of either other policy, along an axis.
func notSlower(r *exp.Results, size, axis string, from, to int) exp.Verdict {
	return r.Along(axis, from, to, func(level string) exp.Verdict {
		var parts []exp.Verdict
		for _, sends := range []string{"1", "8"} {
			for _, times := range []string{"1", "2"} {
				c := of5(dynamic, size, sends, times, level)
				for _, p := range []string{direct, indirect} {
					parts = append(parts, r.Less(c.With("policy", p), c, "rate", 1/0.95))
				}
			}
		}
		return exp.All(parts...)
	})
}

type directBench struct {
	near *sides
	far  *sides // on the network; nil: there is none
	lab  *netlab.Lab
	why  error
	d    time.Duration
}

func prepareDirect(_ context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &directBench{why: netlab.Available(), d: exp.Pick(s.Size, 2*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)}
	err := b.start(s)
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return b, nil
}

func (b *directBench) start(s *exp.Setting) (err error) {
	if b.near, err = start(loopback, s.CPU); err != nil || b.why != nil {
		return err
	}
	if b.lab, err = netlab.New(2, s.Seed); err != nil {
		return err
	}
	near, far := b.lab.Hosts[0], b.lab.Hosts[1]
	b.far, err = start(place{addr: far.Addr.String(), start: far.Start, dial: func(ctx context.Context, addr string) (net.Conn, error) {
		return near.Dial(ctx, "tcp", addr)
	}}, nil)
	return err
}

func (b *directBench) Close() (err error) {
	for _, s := range []*sides{b.near, b.far} {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if b.lab != nil {
		b.lab.Close()
	}
	return err
}

// A ring that fits has room for as much as all receives, and minRing bytes at least.
const (
	fits    = "fits"
	minRing = 256 << 10
)

func (b *directBench) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	s, rtt := b.near, time.Duration(c.Number("rtt"))*time.Millisecond
	if rtt > 0 {
		if b.why != nil {
			return nil, &exp.Untold{Reason: b.why.Error()}
		}
		if err := b.lab.Hosts[0].Set(netlab.Line{Delay: rtt / 2}, netlab.Line{Delay: rtt / 2}); err != nil {
			return nil, err
		}
		s = b.far
	}
	size, sends := c.Number("size"), c.Number("sends")
	h := hello{Size: size, Recvs: sends * c.Number("times"), Ring: max(minRing, sends*c.Number("times")*size), Warm: max(2*sends, min(64, (2<<20)/size))}
	if c["ring"] != fits {
		h.Ring = c.Number("ring")
	}
	conn, err := s.dial(ctx, &h, stream.Config{Policy: policies[c["policy"]]})
	if err != nil {
		return nil, err
	}
	defer end(conn)
	p, err := newPoster(conn, sends, size)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.post(h.Warm, 0), answer(conn)); err != nil {
		return nil, err
	}
	p.n = 0
	var r report
	k, err := s.clock(func() (err error) {
		if err = p.post(0, max(b.d, 6*rtt)); err == nil {
			r, err = finish(conn)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	bytes := int64(p.n) * int64(size)
	return exp.Values{"rate": k.gbps(bytes), "cpu": perGB(k.receiver, bytes), "direct": 100 * float64(r.Direct) / float64(r.Bytes)}, nil
}

// poster keeps sends outstanding.
type poster struct {
	m    *stream.Memory
	size int
	ops  []*stream.Op
	most int
	n    int // messages
}

func newPoster(c *stream.Conn, most, size int) (*poster, error) {
	m, err := c.Register(filled(most * size))
	return &poster{m: m, size: size, most: most}, err
}

// post sends n messages, or for a time, and waits until they have left.
func (p *poster) post(n int, d time.Duration) error {
	for begin, k := time.Now(), 0; k < n || time.Since(begin) < d; k++ {
		if err := p.wait(p.most - 1); err != nil {
			return err
		}
		op, err := p.m.PostSend(p.n%p.most*p.size, p.size)
		if err != nil {
			return err
		}
		p.ops = append(p.ops, op)
		p.n++
	}
	return p.wait(0)
}

// wait waits until at most n sends are outstanding.
func (p *poster) wait(n int) error {
	for len(p.ops) > n {
		if _, err := p.ops[0].Wait(); err != nil {
			return err
		}
		p.ops = p.ops[1:]
	}
	return nil
}

// filled returns n bytes whose pages are there.
func filled(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4096 {
		b[i] = byte(i >> 12)
	}
	return b
}
