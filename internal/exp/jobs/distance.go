package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os/exec"
	"time"

	"github.com/rdistcc/rdistcc/internal/exp"
	"github.com/rdistcc/rdistcc/internal/exp/end"
	"github.com/rdistcc/rdistcc/internal/netlab"
)

// A job of Distance: 1 MB there, 100 KB back.
const (
	farText   = 1000000
	farResult = 100000
)

// Distance is a part of E2: what a warm connection saves where the host is far away.
var Distance = &exp.Experiment{
	ID: "E2b", Name: "distance",
	Question: "How long do 1 MB to a distant host and 100 KB back take over a fresh connection, and over one that has carried jobs?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "state", Levels: []string{cold, warm}},
			{Name: "carrier", Levels: exp.Pick(z, []string{byTCP, byWrite}, []string{byTCP, bySend, byWrite, byPull}, []string{byTCP, bySend, byWrite, byPull})},
			{Name: "rtt", Levels: exp.Pick(z, exp.Numbers(2), exp.Numbers(10, 50), exp.Numbers(1, 10, 50, 150))},
		}
	},
	Rounds:  func(z exp.Size) int { return exp.Pick(z, 1, 5, 11) },
	Metrics: []exp.Metric{{Name: "wall", Unit: "ms", What: "time for a job"}},
	Prepare: prepareDistance,
	Views:   []exp.View{{Title: "1 MB there and 100 KB back, by the network's round trip in ms", Metric: "wall", X: "rtt", Lines: []string{"state", "carrier"}}},
	Claims: []exp.Predicate{
		{Claim: "at 50 ms a warm Write takes less than a quarter of a fresh connection's time", Says: "ours (ARCHITECTURE: 71 ms, 815 fresh)", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, byWrite), distant(cold, byWrite), "wall", 0.25)
		}},
		{Claim: "at 50 ms a warm Write takes less than two round trips", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return exp.Not(r.Beyond(distant(warm, byWrite), "wall", 100))
		}},
		{Claim: "it is TCP's slow start, not RDMA: plain TCP gains as much, its warm connection takes less than a quarter of a fresh one's time", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, byTCP), distant(cold, byTCP), "wall", 0.25)
		}},
		{Claim: "at 50 ms pulling costs a warm job at least half a round trip more than writing", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, byWrite), distant(warm, byPull), "wall", 0.75)
		}},
	},
	Defaults: []exp.Default{
		{What: "the manager keeps connections", Where: "pkg/connmgr/farm"},
		{What: "jobs travel by RDMA Write, unasked, into slots that credits name", Where: "pkg/connmgr/link/write.go"},
	},
}

// distant returns a cell of Distance at 50 ms.
func distant(state, carrier string) exp.Cell {
	return exp.Cell{"state": state, "carrier": carrier, "rtt": "50"}
}

type distance struct {
	*sides
	lab  *netlab.Lab
	text []byte
	why  error // there is no network
}

func prepareDistance(_ context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &distance{text: make([]byte, farText), why: netlab.Available()}
	if b.why != nil {
		return b, nil
	}
	rng := rand.NewChaCha8([32]byte{byte(s.Seed)})
	_, _ = rng.Read(b.text)
	result := make([]byte, farResult)
	_, _ = rng.Read(result)
	var err error
	if b.lab, err = netlab.New(2, s.Seed); err != nil {
		return nil, err
	}
	near, far := b.lab.Hosts[0], b.lab.Hosts[1]
	at := place{addr: far.Addr.String(), start: func(cmd *exec.Cmd) error { return far.Start(cmd) },
		dial: func(ctx context.Context, addr string) (net.Conn, error) { return near.Dial(ctx, "tcp", addr) }}
	if b.sides, err = start(at, s.Dir, [][]byte{result}, nil); err != nil {
		b.lab.Close()
		return nil, err
	}
	return b, nil
}

func (b *distance) Close() (err error) {
	if b.sides != nil {
		err = b.sides.Close()
	}
	if b.lab != nil {
		b.lab.Close()
	}
	return err
}

// warmUp is how many jobs a warm connection has carried: enough for TCP's window to open.
const warmUp = 4

func (b *distance) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	if b.why != nil {
		return nil, &exp.Untold{Reason: b.why.Error()}
	}
	half := time.Duration(c.Number("rtt")) * time.Millisecond / 2
	if err := b.lab.Hosts[0].Set(netlab.Line{Delay: half}, netlab.Line{Delay: half}); err != nil {
		return nil, err
	}
	j := &job{what: doCached, text: b.text}
	r := runner{sides: b.sides, hello: hello{Carrier: c["carrier"], Memory: pool}, wait: end.Event, cold: c["state"] == cold}
	defer r.close()
	if err := r.warm(ctx, j); err != nil {
		return nil, err
	}
	for range warmUp - 1 {
		if r.cold {
			break
		}
		if _, err := r.do(ctx, j); err != nil {
			return nil, err
		}
	}
	begin := time.Now()
	result, err := r.do(ctx, j)
	if err == nil && len(result) != farResult {
		err = errors.New("the result has another length")
	}
	return exp.Values{"wall": ms(time.Since(begin))}, err
}
