package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/exp/load"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Jobs of Carriers.
const (
	cachedSmall = "cached-small" // the host has the result of a small C source
	cachedLarge = "cached-large" // the host has the result of C++ with standard headers
	smallC      = "small-c"      // compiled
	heavyCXX    = "heavy-c++"    // compiled
)

// Carriers is E1: the ways of carrying a job.
var Carriers = &exp.Experiment{
	ID: "E1", Name: "carriers",
	Question: "What do jobs take over TCP, two-sided, one-sided and pulled, over connections that are cold and warm, with memory that is registered each time or pooled, and by ways of waiting?",
	Axes: func(z exp.Size) []exp.Axis {
		return []exp.Axis{
			{Name: "job", Levels: exp.Pick(z, []string{cachedSmall}, []string{cachedSmall, cachedLarge, smallC, heavyCXX}, []string{cachedSmall, cachedLarge, smallC, heavyCXX})},
			{Name: "carrier", Levels: []string{byTCP, bySend, byWrite, byPull}},
			{Name: "memory", Levels: []string{exp.None, each, pool}},
			{Name: "wait", Levels: []string{"loan", "event", "poll"}},
			{Name: "state", Levels: []string{cold, warm}},
		}
	},
	Keep: func(c exp.Cell) bool {
		if (c["carrier"] == byTCP) != (c["memory"] == exp.None) || c["carrier"] == byTCP && c["wait"] != "loan" {
			return false
		}
		switch c["job"] {
		case smallC: // what waiting does to a compile is E4's subject
			return c["wait"] == "loan"
		case heavyCXX:
			return c["wait"] == "loan" && c["memory"] != each
		}
		return true
	},
	Rounds: func(z exp.Size) int { return exp.Pick(z, 1, 5, 15) },
	Metrics: []exp.Metric{
		{Name: "wall", Unit: "ms", What: "time for a job"},
		{Name: "client", Unit: "ms", What: "the client's CPU time for a job"},
		{Name: "host", Unit: "ms", What: "the host's CPU time for a job, with its compiler"},
	},
	Prepare: prepareCarriers,
	Views:   carrierViews(),
	Claims: []exp.Predicate{
		{Claim: "for heavy C++ the carrier makes no difference: all are within 10 % of warm TCP", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			tcp := carried(heavyCXX, byTCP, exp.None, warm)
			var parts []exp.Verdict
			for _, by := range []string{bySend, byWrite, byPull} {
				c := carried(heavyCXX, by, pool, warm)
				parts = append(parts, r.Less(c, tcp, "wall", 1.1), r.Less(tcp, c, "wall", 1.1))
			}
			return exp.All(parts...)
		}},
		{Claim: "one-sided jobs take no more of the host's CPU than two-sided ones (large cached results)", Says: "expected [I]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(carried(cachedLarge, byWrite, pool, warm), carried(cachedLarge, bySend, pool, warm), "host", 1)
		}},
		{Claim: "two-sided jobs take no more of the host's CPU than TCP (large cached results)", Says: "expected [I], with an adapter in mind", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(carried(cachedLarge, bySend, pool, warm), carried(cachedLarge, byTCP, exp.None, warm), "host", 1)
		}},
		{Claim: "a warm connection is faster than a cold one for small cached results, with each carrier", Says: "RZ3764 [S], without figures", Judge: func(r *exp.Results) exp.Verdict {
			parts := []exp.Verdict{r.Less(carried(cachedSmall, byTCP, exp.None, warm), carried(cachedSmall, byTCP, exp.None, cold), "wall", 1)}
			for _, by := range []string{bySend, byWrite, byPull} {
				parts = append(parts, r.Less(carried(cachedSmall, by, pool, warm), carried(cachedSmall, by, pool, cold), "wall", 1))
			}
			return exp.All(parts...)
		}},
		{Claim: "registration and set-up that are handled carelessly take the advantage away: a cold Write with memory registered each time is slower than a cold TCP connection (small cached results)", Says: "ICDCS'09 [A]", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(carried(cachedSmall, byTCP, exp.None, cold), carried(cachedSmall, byWrite, each, cold), "wall", 1)
		}},
		{Claim: "pooled memory is faster than memory registered each time, with each carrier (large cached results)", Says: "ICDCS'09 [A], as \"hidden cost\"", Judge: func(r *exp.Results) exp.Verdict {
			var parts []exp.Verdict
			for _, by := range []string{bySend, byWrite, byPull} {
				parts = append(parts, r.Less(carried(cachedLarge, by, pool, warm), carried(cachedLarge, by, each, warm), "wall", 1))
			}
			return exp.All(parts...)
		}},
		{Claim: "pulling costs a warm job less than a fifth more time than writing (large cached results)", Says: "ours", Judge: func(r *exp.Results) exp.Verdict {
			return r.Less(carried(cachedLarge, byPull, pool, warm), carried(cachedLarge, byWrite, pool, warm), "wall", 1.2)
		}},
		{Claim: "a client that polls has its small cached result sooner than one that blocks, by loan or by event", Says: "expected [I]", Cores: 4, Judge: func(r *exp.Results) exp.Verdict {
			c := carried(cachedSmall, byWrite, pool, warm)
			poll := c.With("wait", "poll")
			return exp.All(r.Less(poll, c, "wall", 1), r.Less(poll, c.With("wait", "event"), "wall", 1))
		}},
	},
	Defaults: []exp.Default{
		{What: "jobs travel by RDMA Write into slots that credits name", Where: "pkg/connmgr/link/write.go"},
		{What: "memory of jobs is pooled", Where: "internal/shm/shm.go"},
		{What: "the manager keeps connections", Where: "pkg/connmgr/farm/pool.go"},
	},
}

// carrierViews returns a table for each metric and state.
func carrierViews() (all []exp.View) {
	for _, m := range []struct{ metric, title string }{{"wall", "Time for a job"}, {"client", "CPU time of the client"}, {"host", "CPU time of the host"}} {
		for _, state := range []string{cold, warm} {
			all = append(all, exp.View{Title: m.title + ", " + state, Metric: m.metric, X: "job", Lines: []string{"carrier", "memory", "wait"}, Where: exp.Cell{"state": state}, Table: true, Aside: state == "cold" || m.metric == "client"})
		}
	}
	return all
}

// carried returns a cell of Carriers whose client waits by the default policy.
func carried(job, carrier, memory, state string) exp.Cell {
	return exp.Cell{"job": job, "carrier": carrier, "memory": memory, "wait": "loan", "state": state}
}

// unit is a text and the object that it becomes.
type unit struct {
	cxx          bool
	text, object []byte
	why          error // there is none
}

type carriers struct {
	*sides
	units [2]unit // C, C++
	d     time.Duration
}

func prepareCarriers(ctx context.Context, s *exp.Setting) (exp.Bench, error) {
	b := &carriers{d: exp.Pick(s.Size, 2*time.Millisecond, 60*time.Millisecond, 200*time.Millisecond)}
	var cached [][]byte
	for i := range b.units {
		u := &b.units[i]
		u.cxx = i == 1
		if s.Size == exp.Tiny && u.cxx {
			u.why = errors.New("not at this size")
		} else {
			u.make(ctx, s.Dir)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		cached = append(cached, u.object)
	}
	var err error
	b.sides, err = start(loopback, s.Dir, cached, s.CPU)
	return b, err
}

// make preprocesses the source and compiles it here.
func (u *unit) make(ctx context.Context, dir string) {
	compiler, name, text := "gcc", "source.c", append([]byte("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <unistd.h>\n"), load.Source(20, 1)...)
	if u.cxx {
		compiler, name, text = "g++", "source.cc", []byte(load.Heavy)
	}
	if u.why = load.Available(compiler); u.why != nil {
		return
	}
	if u.why = os.WriteFile(filepath.Join(dir, name), text, 0o600); u.why != nil {
		return
	}
	cmd := exec.CommandContext(ctx, compiler, "-E", name)
	cmd.Dir = dir
	if u.text, u.why = cmd.Output(); u.why != nil {
		u.why = fmt.Errorf("%s -E: %w", compiler, u.why)
		return
	}
	u.object, u.why = compile(ctx, dir, u.cxx, u.text)
}

// Measure does one kind of job for a time, and compares every object with the one that was compiled here.
func (b *carriers) Measure(ctx context.Context, c exp.Cell) (exp.Values, error) {
	i, compiles := 0, c["job"] == smallC || c["job"] == heavyCXX
	if c["job"] == cachedLarge || c["job"] == heavyCXX {
		i = 1
	}
	u := &b.units[i]
	if u.why != nil {
		return nil, &exp.Untold{Reason: u.why.Error()}
	}
	j := &job{what: doCached, index: byte(i), text: u.text}
	most := 1 << 30
	if compiles {
		j.what, most = doC+byte(i), 3-2*i
	}
	way, err := iwarp.ParseWaiting(c["wait"])
	if err != nil {
		return nil, err
	}
	r := runner{sides: b.sides, hello: hello{Carrier: c["carrier"], Memory: c["memory"]}, wait: way, cold: c["state"] == cold}
	defer r.close()
	if err := r.warm(ctx, &job{what: doCached, index: byte(i), text: u.text}); err != nil {
		return nil, err
	}
	n := 0
	spent, err := b.clock(func() error {
		for stop := time.Now().Add(b.d); n == 0 || n < most && time.Now().Before(stop); n++ {
			object, err := r.do(ctx, j)
			if err != nil {
				return err
			}
			if !bytes.Equal(object, u.object) {
				return errors.New("the object differs from the one compiled here")
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	per := func(d time.Duration) float64 { return ms(d) / float64(n) }
	return exp.Values{"wall": per(spent.wall), "client": per(spent.client), "host": per(spent.host)}, nil
}

// runner does jobs over a kept connection, or over one each.
type runner struct {
	*sides
	hello hello
	wait  iwarp.Waiting
	cold  bool
	kept  conn
}

// warm makes the connection that is kept, and uses it.
func (r *runner) warm(ctx context.Context, j *job) (err error) {
	if r.cold {
		return nil
	}
	if r.kept, err = r.connect(ctx, r.hello, r.wait); err != nil {
		return err
	}
	_, _, err = r.kept.do(ctx, j)
	return err
}

// do does one job.
func (r *runner) do(ctx context.Context, j *job) ([]byte, error) {
	at := r.kept
	if r.cold {
		var err error
		if at, err = r.connect(ctx, r.hello, r.wait); err != nil {
			return nil, err
		}
		defer at.close()
	}
	object, _, err := at.do(ctx, j)
	return object, err
}

func (r *runner) close() {
	if r.kept != nil {
		r.kept.close()
	}
}
