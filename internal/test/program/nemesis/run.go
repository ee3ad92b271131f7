package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// options holds the options of a run.
type options struct {
	bin          string // directory of the programs
	jobs, every  int
	hosts, width int
	settle       time.Duration // time for everything to come to rest
	most         time.Duration // longest duration of a fault; 0: that of its kind
	keep         bool          // keep the farm's directory in any case
	cache        bool          // with the cache of results, and each job twice
	only         []kind        // nil: all that this machine supports
	log          func(format string, args ...any)
}

// result is the result of one seed.
type result struct {
	plan    plan
	trees   bool
	jobs    []outcome
	strikes []struck
	began   time.Time
	took    time.Duration
	settled time.Duration
	back    time.Duration // from the last fault until the last host has done a job
	wrong   []string
	skipped []string // kinds that could not be struck here, and why
	names   []string // the hosts' addresses
	stores  effects
}

// runSeed does one run in a directory of its own.
func runSeed(ctx context.Context, o options, seed uint64) (r *result, err error) {
	root, err := os.MkdirTemp("", "rdistcc-nemesis-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err == nil && len(r.wrong) == 0 && !o.keep {
			err = os.RemoveAll(root)
		} else {
			o.log("kept: %s", root)
		}
	}()
	// Seeds alternate between the forms of a job.
	s, err := openSite(ctx, o.bin, root, o.hosts, seed%2 == 1, o.cache)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	r = &result{trees: s.trees}
	of := o.only
	if of == nil {
		of, r.skipped = s.possible()
	}
	for _, h := range s.hosts {
		r.names = append(r.names, h.relay.Addr())
	}
	r.plan = newPlan(seed, o.jobs, len(s.units), o.every, o.hosts, of)
	for i := range r.plan.strikes {
		if st := &r.plan.strikes[i]; o.most > 0 {
			st.hold = min(st.hold, o.most)
		}
	}
	d := &driver{s: s, p: r.plan}
	if _, err := s.everyHost(ctx); err != nil {
		return r, fmt.Errorf("before any fault: %w", err)
	}
	base, err := s.base(ctx, o.width)
	if err != nil {
		return r, fmt.Errorf("before any fault: %w", err)
	}

	n := newNemesis(ctx, s, d)
	m := s.startMeter(ctx)
	defer m.stop()
	next := 0
	r.began = time.Now()
	d.run(ctx, o.width, func(job int) {
		for ; next < len(r.plan.strikes) && r.plan.strikes[next].job <= job; next++ {
			n.begin(r.plan.strikes[next])
		}
	})
	r.took = time.Since(r.began)
	n.run.Wait()
	r.jobs, r.strikes = d.results, n.done
	r.stores = m.end(ctx)
	r.stores.spoilt, r.stores.met = n.spoils.Load(), n.met.Load()
	r.stores.struck = slices.ContainsFunc(r.strikes, func(st struck) bool { return st.kind.ofStore() })
	if err := ctx.Err(); err != nil {
		return r, err
	}
	slices.SortFunc(r.jobs, func(a, b outcome) int { return a.job - b.job })
	slices.SortFunc(r.strikes, func(a, b struck) int { return a.from.Compare(b.from) })

	var why error
	if r.back, why = s.everyHost(ctx); why != nil {
		r.wrong = append(r.wrong, why.Error())
	}
	if r.settled, why = s.settle(ctx, base, o.settle); why != nil {
		r.wrong = append(r.wrong, why.Error())
	}
	if len(r.jobs) != o.jobs {
		r.wrong = append(r.wrong, fmt.Sprintf("%d jobs of %d have ended", len(r.jobs), o.jobs))
	}
	for _, j := range r.jobs {
		if j.wrong != "" {
			r.wrong = append(r.wrong, fmt.Sprintf("job %d (%s): %s", j.job, strings.Join(s.units[r.plan.jobs[j.job]].args, " "), j.wrong))
		}
	}
	for _, st := range r.strikes {
		if st.wrong != "" {
			r.wrong = append(r.wrong, st.String()+": "+st.wrong)
		}
	}
	r.wrong = append(r.wrong, r.stores.idle()...)
	r.wrong = append(r.wrong, s.panics()...)
	return r, nil
}

// possible returns the kinds that can be struck here, and why not the others.
func (s *site) possible() (of []kind, not []string) {
	for k := range numKinds {
		switch {
		case (k == fillHost || k == fillHere) && !s.disks:
			not = append(not, k.String()+": no file system of its own, which needs root")
		case k == fillHost && s.trees:
			not = append(not, k.String()+": jobs in private trees do not touch the disk; seeds with the other form do it")
		case k.ofStore() && !s.trees:
			not = append(not, k.String()+": jobs of the other form keep nothing on hosts")
		case k.ofStore() && k != shortMemory && len(s.hosts) < 2:
			not = append(not, k.String()+": the one host has no disk for what it keeps")
		case (k == fillStore || k == lockStore || k == shortMemory) && !s.disks:
			not = append(not, k.String()+": no file system of its own, which needs root")
		default:
			of = append(of, k)
		}
	}
	return of, not
}

// base returns what all processes hold after some jobs without any fault.
func (s *site) base(ctx context.Context, width int) (rest, error) {
	warm := &driver{s: s}
	for i := range 4 * width {
		warm.p.jobs = append(warm.p.jobs, i%len(s.units))
	}
	warm.run(ctx, width, func(int) {})
	for _, o := range warm.results {
		if o.wrong != "" || o.reason != "" && s.units[warm.p.jobs[o.job]].status == 0 {
			return rest{}, fmt.Errorf("job %q: %s %s %s", s.units[warm.p.jobs[o.job]].args, o.reason, o.said, o.wrong)
		}
	}
	var last rest
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		now, err := s.rest(ctx)
		if err != nil {
			return now, err
		}
		if now == last && s.busy(ctx, now) == "" {
			return now, nil
		}
		last = now
	}
	return last, fmt.Errorf("no rest: %s", s.busy(ctx, last))
}

// everyHost makes each host do a job, and returns how long it took until all have.
func (s *site) everyHost(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	for _, h := range s.hosts {
		var o outcome
		for {
			d := &driver{s: s, p: plan{jobs: []int{0}}, flying: make(map[*flight]bool)}
			o = d.on(ctx, h.relay.Addr())
			if o.wrong != "" || o.host != "" || ctx.Err() != nil {
				break
			}
			if time.Since(began) > 30*time.Second {
				o.wrong = "it stays here: " + o.reason + ": " + o.said
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if o.wrong != "" {
			return 0, fmt.Errorf("%s: %s", h.relay.Addr(), o.wrong)
		}
	}
	return time.Since(began), ctx.Err()
}

// panics searches the logs for what no program should ever print.
func (s *site) panics() (found []string) {
	for _, file := range files(s.farm.Dir) {
		text, err := os.ReadFile(file)
		if err != nil || !strings.HasSuffix(file, ".log") {
			continue
		}
		for line := range bytes.Lines(text) {
			for _, word := range []string{"panic:", "fatal error:", "SIGSEGV", "DATA RACE"} {
				if bytes.Contains(line, []byte(word)) {
					found = append(found, file+": "+string(bytes.TrimSpace(line)))
				}
			}
		}
	}
	return found
}
