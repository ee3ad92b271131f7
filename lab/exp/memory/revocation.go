package memory

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/lab/grant"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Revocation is E3b: what it costs to take a peer's access away after each job, and what it prevents.
var Revocation = &exp.Experiment{
	ID: "E3b", Name: "revocation",
	Question: "What does it cost to take a peer's access to a buffer away after each job, and what becomes of a Write that comes later?",
	Axes: func(z exp.Size) []exp.Axis {
		var ways []string
		for _, w := range grant.Ways {
			ways = append(ways, w.String())
		}
		return []exp.Axis{
			{Name: "way", Levels: ways},
			{Name: "size", Bytes: true, Levels: exp.Pick(z, exp.Numbers(65536), exp.Numbers(65536, 8<<20), exp.Numbers(4096, 65536, 1<<20, 8<<20))},
		}
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 9, 25) },
	Metrics: []exp.Metric{
		{Name: "job", Unit: "us", What: "time to grant access and take it away, without a transfer"},
		{Name: "cpu", Unit: "us", What: "CPU time for the same"},
		{Name: "late", Unit: "Writes", What: "whether a Write after the last job changed the buffer (1), or was refused and ended the peer's stream (0)"},
	},
	Prepare: prepareRevocation,
	Views: []exp.View{
		{Title: "Price of a job's access", Metric: "job", X: "size", Lines: []string{"way"}, Table: true},
		{Title: "CPU time of a job's access", Metric: "cpu", X: "size", Lines: []string{"way"}, Table: true, Aside: true},
		{Title: "A late Write", Metric: "late", X: "size", Lines: []string{"way"}, Table: true},
	},
	Claims: []exp.Predicate{
		{Claim: "each way that takes access away refuses a late Write", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict {
				return exp.All(exp.Not(r.Beyond(granted(grant.Anew, s), "late", 0.5)), exp.Not(r.Beyond(granted(grant.Fast, s), "late", 0.5)),
					exp.Not(r.Beyond(granted(grant.Window, s), "late", 0.5)))
			})
		}},
		{Claim: "a late Write lands where access is kept", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict { return r.Beyond(granted(grant.Kept, s), "late", 0.5) })
		}},
		{Claim: "on the software device, registering anew is the cheapest way that takes access away", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Along("size", 1, 1<<30, func(s string) exp.Verdict {
				return exp.All(r.Less(granted(grant.Anew, s), granted(grant.Fast, s), "job", 1), r.Less(granted(grant.Anew, s), granted(grant.Window, s), "job", 1))
			})
		}},
		{Claim: "on the software device, registering 8 MiB anew takes at most half as long again as 64 KiB", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(granted(grant.Anew, "8388608"), granted(grant.Anew, "65536"), "job", 1.5)
		}},
	},
	Defaults: []exp.Default{
		{What: "a credit's slot is registered anew for each job, so that its STag dies with the job", Where: "pkg/worker/slot.go"},
	},
}

// granted returns a cell of Revocation.
func granted(w grant.Way, size string) exp.Cell { return exp.Cell{"way": w.String(), "size": size} }

type revocation struct {
	dev  iwarp.Device
	ln   iwarp.Listener
	jobs int
}

func prepareRevocation(ctx context.Context, s *exp.Setting) (_ exp.Bench, err error) {
	b := &revocation{jobs: exp.Pick(s.Size, 20, 5000, 20000)}
	if b.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		return nil, err
	}
	if b.ln, err = b.dev.Listen(ctx, "127.0.0.1:0", nil); err != nil {
		return nil, errors.Join(err, b.dev.Close())
	}
	return b, nil
}

func (b *revocation) Close() error { return errors.Join(b.ln.Close(), b.dev.Close()) }

// Measure grants and takes away on a connection of its own, as a refused Write ends it.
func (b *revocation) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	var owner, other grant.Side
	defer func() { shut(&other); shut(&owner) }()
	if err := b.connect(ctx, &owner, &other); err != nil {
		return nil, err
	}
	for _, w := range grant.Ways {
		if w.String() != c["way"] {
			continue
		}
		o, err := grant.Try(ctx, owner, other, w, make([]byte, c.Number("size")), b.jobs, peer.Own)
		if err != nil {
			return nil, err
		}
		v := exp.Values{"job": float64(o.PerJob.Nanoseconds()) / 1e3, "cpu": float64(o.CPU.Nanoseconds()) / 1e3, "late": 0}
		if o.Verdict == grant.Landed {
			v["late"] = 1
		}
		return v, nil
	}
	return nil, fmt.Errorf("no way %q to grant access", c["way"])
}

// connect makes two sides, and connects them. What it has made is in them also if it fails.
func (b *revocation) connect(ctx context.Context, owner, other *grant.Side) error {
	for _, s := range []*grant.Side{owner, other} {
		if err := b.side(s); err != nil {
			return err
		}
	}
	accepted := make(chan error, 1)
	go func() {
		req, err := b.ln.Accept(ctx)
		if err == nil {
			err = req.Accept(ctx, owner.QP, &iwarp.ConnParam{})
		}
		accepted <- err
	}()
	if _, err := b.dev.Dial(ctx, b.ln.Addr().String(), other.QP, &iwarp.ConnParam{}); err != nil {
		return err
	}
	return <-accepted
}

func (b *revocation) side(s *grant.Side) (err error) {
	const requests = 8 // more than grant.Try has under way
	s.Dev = b.dev
	if s.PD, err = b.dev.AllocPD(); err != nil {
		return err
	}
	if s.CQ, err = b.dev.CreateCQ(2 * requests); err != nil {
		return err
	}
	s.QP, err = s.PD.CreateQP(iwarp.QPInitAttr{SendCQ: s.CQ, RecvCQ: s.CQ, MaxSend: requests, MaxRecv: requests})
	return err
}

// shut frees what a side has.
func shut(s *grant.Side) {
	if s.QP != nil {
		_ = s.QP.Destroy()
	}
	if s.CQ != nil {
		_ = s.CQ.Close()
	}
	if s.PD != nil {
		_ = s.PD.Dealloc()
	}
}
