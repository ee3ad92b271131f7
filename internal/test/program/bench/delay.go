package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/lab/netlab"
)

// away makes a client and hosts in networks of their own, rtt apart.
func (b *bench) away(hosts int, rtt time.Duration) (at ground, done func(), err error) {
	l, err := netlab.New(1+hosts, 1)
	if err != nil {
		return at, nil, err
	}
	// All of the delay is on the client's cable.
	err = l.Hosts[0].Set(netlab.Line{Delay: rtt / 2}, netlab.Line{Delay: rtt / 2})
	return ground{l}, l.Close, err
}

// canBeAway reports whether these figures can be taken here. If not, it notes why in one line.
func (b *bench) canBeAway(id, what, goal string) bool {
	err := netlab.Available()
	if err != nil {
		fmt.Printf("# %s is left out: %v\n", id, err)
		b.table.note(id, what, "-", "-", goal)
	}
	return err == nil
}

const far = 50 * time.Millisecond

// farEmpty measures P5: the wall time that a compile of an empty file on a host 50 ms away takes beyond a local one.
func (b *bench) farEmpty() error {
	const what, goal = "wall added at 50 ms RTT, empty C file", "<= 0.37"
	if !b.canBeAway("P5", what, goal) {
		return nil
	}
	if err := os.WriteFile(filepath.Join(b.tmp, "empty.c"), nil, 0o644); err != nil {
		return err
	}
	return b.farCompile("P5", what, goal, "", []string{"gcc", "-c", "empty.c", "-o", "far.o"})
}

// farSource measures P6: the same for 1 MB of preprocessed C++.
func (b *bench) farSource() error {
	const what, goal = "wall added at 50 ms RTT, 1 MB preprocessed", "<= 0.16"
	if !b.canBeAway("P6", what, goal) {
		return nil
	}
	const name = "far.cc"
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(headersSource), 0o644); err != nil {
		return err
	}
	// Also preprocessed text, so that only the transport is compared.
	cpp := exec.CommandContext(b.ctx, "g++", "-E", name, "-o", "far.ii")
	cpp.Dir = b.tmp
	if out, err := cpp.CombinedOutput(); err != nil {
		return fmt.Errorf("g++ -E: %w: %s", err, out)
	}
	if err := b.farCompile("P6", what, goal, ",lzo", []string{"g++", "-c", name, "-o", "far.o"}); err != nil {
		return err
	}
	if err := b.farFirst(name); err != nil {
		return err
	}
	return b.farCompile("P6", what+" before", "<= 0.28", ",lzo", []string{"g++", "-c", "far.ii", "-o", "far.o"})
}

// farCompile runs one command here, and through rdistcc and distcc on a distant host.
func (b *bench) farCompile(id, what, goal, options string, words []string) error {
	at, done, err := b.away(1, far)
	if err != nil {
		return err
	}
	defer done()
	sides, f, end, err := b.contestOn(at, id, options, words)
	if err != nil {
		return err
	}
	defer end()
	if err := b.compete(id, sides, b.rounds/2, f); err != nil {
		return err
	}
	if err := f.check(); err != nil {
		return err
	}
	for _, s := range sides {
		fmt.Printf("# %s, %v away, by %s: wall %.1f ms\n", words[2], far, s.name, median(s.wall))
	}
	ours := median(diff(sides[1].wall, sides[0].wall))
	if len(sides) < 3 {
		b.table.note(id, what, fmt.Sprintf("%.1f ms", ours), "no distcc", goal)
		return nil
	}
	b.table.ratio(id, what, "ms", ours, median(diff(sides[2].wall, sides[0].wall)), goal)
	return nil
}

// farFirst measures P6 with a host that gets the headers for the first time: its daemon was started for this job.
func (b *bench) farFirst(name string) error {
	const what, goal = "wall added at 50 ms RTT, 1 MB preprocessed, for the first time", "<= 0.28"
	if err := os.WriteFile(filepath.Join(b.tmp, "before.cc"), nil, 0o644); err != nil {
		return err
	}
	at, done, err := b.away(1, far)
	if err != nil {
		return err
	}
	defer done()
	once := func(round int) (wall []float64, err error) {
		sides, f, end, err := b.contestOn(at, fmt.Sprintf("p6-%d", round), ",lzo", []string{"g++", "-c", name, "-o", "far.o"})
		if err != nil {
			return nil, err
		}
		defer end()
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			before := append(slices.Clone(s.argv[:len(s.argv)-3]), "before.cc", "-o", "before.o") // so that it has a connection
			if _, err := s.run.run(b.ctx, settle, s.env, b.tmp, before...); err != nil {
				return nil, f.trouble(err)
			}
			far0, mgr0 := s.host.usage(), s.manager.ownCPU()
			t, err := s.run.run(b.ctx, settle, s.env, b.tmp, s.argv...)
			if err != nil {
				return nil, f.trouble(err)
			}
			s.add(b, "P6 first", round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
		}
		for _, s := range sides {
			wall = append(wall, s.wall...)
		}
		return wall, f.check()
	}
	var ours, theirs []float64
	for round := range max(b.rounds/6, 3) {
		wall, err := once(round)
		if err != nil {
			return err
		}
		ours = append(ours, wall[1]-wall[0])
		if len(wall) > 2 {
			theirs = append(theirs, wall[2]-wall[0])
		}
	}
	if len(theirs) == 0 {
		b.table.note("P6", what, fmt.Sprintf("%.1f ms", median(ours)), "no distcc", goal)
		return nil
	}
	b.table.ratio("P6", what, "ms", median(ours), median(theirs), goal)
	return nil
}

// farBuild measures P7: a whole build on two hosts, which here share the cores.
func (b *bench) farBuild() error {
	var redis project
	for _, p := range projects {
		if p.name == "redis" {
			redis = p
		}
	}
	if !b.canBeAway("P7", "build of redis", "<= 0.84") {
		return nil
	}
	if err := redis.ready(b); err != nil {
		fmt.Printf("# left out: %v\n", err)
		return nil
	}
	for _, c := range []struct {
		rtt  time.Duration
		goal string
	}{{10 * time.Millisecond, "<= 0.94"}, {far, "<= 0.84"}} {
		if err := b.farBuildAt(redis, c.rtt, c.goal); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) farBuildAt(p project, rtt time.Duration, goal string) error {
	at, done, err := b.away(2, rtt)
	if err != nil {
		return err
	}
	defer done()
	sides, f, end, err := b.contestOn(at, "p7", ",lzo", []string{"gcc"})
	if err != nil {
		return err
	}
	defer end()
	plain, err := b.rivalOn(at, "p7-plain-distcc", "", nil)
	if err == nil {
		defer plain.close()
		r, err := newRunner(plain.g, b.tmp)
		if err != nil {
			return err
		}
		defer r.close()
		r.limit = buildLimit
		sides = append(sides, &side{name: "distcc", argv: []string{plain.client, "gcc"}, env: plain.env, host: plain.host, run: r})
	}
	sides = sides[1:] // a local build is not compared
	for round := range b.turns {
		for i := range sides {
			s := sides[(i+round)%len(sides)]
			if err := b.buildOnce(p, asItIs, s, round); err != nil {
				return f.trouble(err)
			}
		}
	}
	places, err := f.places()
	if err != nil {
		return err
	}
	fmt.Printf("# %s, 2 hosts %v away, %d rounds: %s\n", p.name, rtt, b.turns, places)
	what := fmt.Sprintf("build of %s, 2 hosts, %v RTT", p.name, rtt)
	for _, s := range sides {
		fmt.Printf("# %s by %s: wall %.2f s, CPU %.2f s\n", what, s.name, median(s.wall)/1e3, median(s.cpu)/1e3)
	}
	if len(sides) < 3 {
		b.table.note("P7", what, fmt.Sprintf("%.2f s", median(sides[0].wall)/1e3), "no distcc", goal)
		return nil
	}
	b.table.ratio("P7", what, "s", median(sides[0].wall)/1e3, median(sides[1].wall)/1e3, goal)
	if rtt == far {
		b.table.ratio("P7", what+", distcc without lzo", "s", median(sides[0].wall)/1e3, median(sides[2].wall)/1e3, "<= 0.60")
	}
	return nil
}
