package jobs

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/netlab"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// A job of Distance: 1 MB there, 100 KB back.
const (
	farText   = 1000000
	farResult = 100000
)

// What carries a job of Distance: verbs, whose stack takes BBR where the kernel has it, or TCP with a congestion
// control that is chosen.
const (
	tcpCubic = "tcp-cubic"
	tcpBBR   = "tcp-bbr"
)

// idle is a connection that has carried jobs, and nothing for idleTime.
const (
	idle     = "idle"
	idleTime = time.Second
)

// Distance is a part of E2: what a warm connection saves where the host is far away.
var Distance = &exp.Experiment{
	ID: "E2b", Name: "distance",
	Question: "How long do 1 MB to a distant host and 100 KB back take over a fresh connection, over one that has just carried jobs, and over one that was idle since?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "state", Levels: []string{cold, warm, idle}},
			{Name: "carrier", Levels: exp.Pick(z, []string{tcpCubic, byWrite}, []string{tcpCubic, tcpBBR, bySend, byWrite, byPull}, []string{tcpCubic, tcpBBR, bySend, byWrite, byPull})},
			{Name: "rtt", Levels: exp.Pick(z, exp.Numbers(2), exp.Numbers(10, 50), exp.Numbers(1, 10, 50, 150))},
		}
	},
	Keep: func(c exp.Cell) bool {
		return c["state"] != idle || c["rtt"] == "50" && c["carrier"] != bySend && c["carrier"] != byPull
	},
	Rounds:  func(z exp.Size) int { return exp.Pick(z, 1, 5, 11) },
	Metrics: []exp.Metric{{Name: "wall", Unit: "ms", What: "time for a job"}},
	Prepare: prepareDistance,
	Views:   []exp.View{{Title: "1 MB there and 100 KB back, by the network's round trip in ms", Metric: "wall", X: "rtt", Lines: []string{"state", "carrier"}}},
	Claims: []exp.Predicate{
		{Claim: "at 50 ms a warm Write takes less than a quarter of a fresh connection's time", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, byWrite), distant(cold, byWrite), "wall", 0.25)
		}},
		{Claim: "at 50 ms a warm Write takes less than two and a half round trips", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return exp.Not(r.Beyond(distant(warm, byWrite), "wall", 125))
		}},
		{Claim: "it is TCP's slow start, not RDMA: plain TCP gains as much, its warm connection takes less than a quarter of a fresh one's time", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, tcpCubic), distant(cold, tcpCubic), "wall", 0.25)
		}},
		{Claim: "a control that paces costs a warm connection time: TCP with BBR takes at least half as long again as with cubic", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, tcpCubic), distant(warm, tcpBBR), "wall", 1/1.5)
		}},
		{Claim: "and it saves a connection that was idle for a second: cubic takes at least half as long again as BBR", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(idle, tcpBBR), distant(idle, tcpCubic), "wall", 1/1.5)
		}},
		{Claim: "at 50 ms pulling costs a warm job at least a quarter more than writing: another round trip", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(distant(warm, byWrite), distant(warm, byPull), "wall", 0.8)
		}},
	},
	Defaults: []exp.Default{
		{What: "the manager keeps connections", Where: "pkg/connmgr/farm/pool.go"},
		{What: "jobs travel by RDMA Write, unasked, into slots that credits name", Where: "pkg/connmgr/link/write.go"},
		{What: "the stack takes BBR where the kernel has it", Where: "internal/tcpaddr/same.go"},
	},
}

// distant returns a cell of Distance at 50 ms.
func distant(state, carrier string) exp.Cell {
	return exp.Cell{"state": state, "carrier": carrier, "rtt": "50"}
}

type distance struct {
	by   map[string]*sides // by congestion control; "": the stack's own
	lab  *netlab.Lab
	text []byte
	why  error // there is no network
}

// controls has the congestion control of each carrier that has one of its own.
var controls = map[string]string{tcpCubic: "cubic", tcpBBR: "bbr"}

// prepareDistance makes a network of two hosts, and a server for each congestion control.
func prepareDistance(_ context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &distance{text: make([]byte, farText), why: netlab.Available(), by: make(map[string]*sides)}
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
	known, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	for _, control := range []string{"", controls[tcpCubic], controls[tcpBBR]} {
		if control != "" && !slices.Contains(strings.Fields(string(known)), control) {
			continue
		}
		if b.by[control], err = start(b.place(control), filepath.Join(s.Dir, "control-"+control), [][]byte{result}, nil); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return b, nil
}

// place returns where a client and a server with a congestion control are.
func (b *distance) place(control string) place {
	near, far := b.lab.Hosts[0], b.lab.Hosts[1]
	var d net.Dialer
	if control != "" {
		// Before it connects: a socket that has begun with a control that paces goes on pacing.
		d.Control = func(_, _ string, raw syscall.RawConn) error { return setControl(raw, control) }
	}
	return place{addr: far.Addr.String(), start: far.Start, control: control,
		dial: func(ctx context.Context, addr string) (c net.Conn, err error) {
			err = near.Do(func() error {
				c, err = d.DialContext(ctx, "tcp", addr)
				return err
			})
			return c, err
		}}
}

func (b *distance) Close() (err error) {
	for _, s := range b.by {
		if s != nil {
			err = errors.Join(err, s.Close())
		}
	}
	if b.lab != nil {
		b.lab.Close()
	}
	return err
}

// warmUp is how many jobs a warm connection has carried: enough for TCP's window to open.
const warmUp = 8

func (b *distance) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	if b.why != nil {
		return nil, &exp.Untold{Reason: b.why.Error()}
	}
	control := controls[c["carrier"]]
	both := b.by[control]
	if both == nil {
		return nil, &exp.Untold{Reason: "the kernel has no congestion control " + control}
	}
	carrier := c["carrier"]
	if control != "" {
		carrier = byTCP
	}
	half := time.Duration(c.Number("rtt")) * time.Millisecond / 2
	if err := b.lab.Hosts[0].Set(netlab.Line{Delay: half}, netlab.Line{Delay: half}); err != nil {
		return nil, err
	}
	j := &job{what: doCached, text: b.text}
	r := runner{sides: both, hello: hello{Carrier: carrier, Memory: pool}, wait: iwarp.Waiting{}, cold: c["state"] == cold}
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
	if c["state"] == idle {
		select {
		case <-time.After(idleTime):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	begin := time.Now()
	result, err := r.do(ctx, j)
	if err == nil && len(result) != farResult {
		err = errors.New("the result has another length")
	}
	return exp.Values{"wall": ms(time.Since(begin))}, err
}
