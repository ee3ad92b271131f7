package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// buildLimit ends a build that hangs.
const buildLimit = 20 * time.Minute

// builders returns the ways to run a build: the plain compiler, rdistcc, and distcc where it is installed, with its
// compression.
func (b *bench) builders(name string) (sides []*side, f *farm, done func(), err error) {
	return b.contest(name, ",lzo", []string{"gcc"})
}

// contest starts a farm and a rival for words, a compiler with or without arguments: alone, behind rdistcc and behind
// distcc. done ends them.
func (b *bench) contest(name, options string, words []string) (sides []*side, f *farm, done func(), err error) {
	return b.contestOn(ground{}, name, options, words)
}

// contestOn is contest on another ground.
func (b *bench) contestOn(at ground, name, options string, words []string) (sides []*side, f *farm, done func(), err error) {
	var undo []func()
	done = func() {
		for i := range undo {
			undo[len(undo)-1-i]()
		}
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	add := func(s *side, g *group) error {
		r, err := newRunner(g, b.tmp)
		if err != nil {
			return err
		}
		r.limit, s.run = buildLimit, r
		undo = append(undo, r.close)
		sides = append(sides, s)
		return nil
	}
	plain, err := b.group(name+"-plain", at.client())
	if err != nil {
		return nil, nil, done, err
	}
	if err := add(&side{name: "gcc", argv: words, env: b.env()}, plain); err != nil {
		return nil, nil, done, err
	}
	if f, err = b.newFarm(farmSpec{name: name + "-rdistcc", at: at}); err != nil {
		return nil, nil, done, err
	}
	undo = append(undo, f.close)
	ours := &side{name: "rdistcc", argv: append([]string{filepath.Join(b.bin, "rdistcc")}, words...), env: f.env, host: f.host, manager: f.manager}
	if err := add(ours, f.g); err != nil {
		return nil, nil, done, err
	}
	r, err := b.rivalOn(at, name+"-distcc", options, nil)
	switch {
	case errors.Is(err, errNoRival):
		fmt.Println("#", err)
		return sides, f, done, nil
	case err != nil:
		return nil, nil, done, err
	}
	undo = append(undo, r.close)
	err = add(&side{name: "distcc" + options, argv: append([]string{r.client}, words...), env: r.env, host: r.host}, r.g)
	return sides, f, done, err
}

// builds measures P8: the CPU time that whole builds take beyond that of a local one.
func (b *bench) builds() error {
	sides, f, done, err := b.builders("p8")
	if err != nil {
		return err
	}
	defer done()
	var sumOurs, sumRival float64
	projectsDone := 0
	for _, p := range projects {
		if err := p.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		for _, s := range sides {
			s.wall, s.cpu, s.client, s.mgr, s.far = nil, nil, nil, nil, nil
		}
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
		fmt.Printf("# %s, %d rounds: %s\n", p.name, b.turns, places)
		for _, s := range sides {
			fmt.Printf("# %s by %s: wall %.2f s, CPU %.2f s: client %.2f, manager %.2f, host %.2f\n", p.name, s.name,
				median(s.wall)/1e3, median(s.cpu)/1e3, (median(s.cpu)-median(s.far)-median(s.mgr))/1e3, median(s.mgr)/1e3, median(s.far)/1e3)
		}
		base := sides[0]
		ours := median(diff(sides[1].cpu, base.cpu)) / 1e3
		what := "CPU that a build of " + p.name + " adds"
		if len(sides) < 3 {
			b.table.note("P8", what, fmt.Sprintf("%.2f s", ours), "no distcc", "<= 0.30")
			continue
		}
		rival := median(diff(sides[2].cpu, base.cpu)) / 1e3
		b.table.ratio("P8", what, "s", ours, rival, "<= 0.30")
		sumOurs, sumRival, projectsDone = sumOurs+ours, sumRival+rival, projectsDone+1
	}
	if projectsDone > 1 {
		b.table.ratio("P8", "CPU that these builds add together", "s", sumOurs, sumRival, "<= 0.30")
	}
	return nil
}

// buildOnce builds p in a fresh directory, always the same one, and records the cost.
func (b *bench) buildOnce(p project, flags string, s *side, round int) error {
	dir, cc := filepath.Join(b.tmp, "build"), strings.Join(s.argv, " ")
	if flags == withG {
		cc += " -g"
	}
	env := append(slices.Clone(s.env), "SOURCE_DATE_EPOCH=1700000000") // redis compiles the time in
	if err := p.unpack(b, dir, cc, flags, env); err != nil {
		return err
	}
	far0, mgr0 := s.host.usage(), s.manager.ownCPU()
	t, err := s.run.run(b.ctx, settle, env, dir, p.build(cc, flags)...)
	if err != nil {
		return err
	}
	s.add(b, p.name+" "+flags, round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
	return nil
}

// equality measures P15: how many objects of whole builds equal the local compiler's.
func (b *bench) equality() error {
	sides, f, done, err := b.builders("p15")
	if err != nil {
		return err
	}
	defer done()
	type count struct{ plain, stripped, debug int }
	got := make([]count, len(sides))
	var all count // number of objects in local builds
	for _, p := range projects {
		if err := p.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		for _, flags := range []string{withoutG, withG} {
			var whole, bare []map[string][sha256.Size]byte // by side
			for _, s := range sides {
				if err := b.buildOnce(p, flags, s, 0); err != nil {
					return f.trouble(err)
				}
				dir := filepath.Join(b.tmp, "build")
				o, err := b.objects(dir, false)
				if err != nil {
					return err
				}
				whole = append(whole, o)
				if o, err = b.objects(dir, true); err != nil {
					return err
				}
				bare = append(bare, o)
			}
			for i, s := range sides {
				n, m := same(whole[0], whole[i]), same(bare[0], bare[i])
				if i > 0 {
					fmt.Printf("# %s %s by %s: %d of %d objects equal", p.name, flags, s.name, n, len(whole[0]))
					if flags == withG {
						fmt.Printf(", %d after strip -g", m)
					}
					fmt.Println()
				}
				if flags == withoutG {
					got[i].plain += n
				} else {
					got[i].stripped, got[i].debug = got[i].stripped+m, got[i].debug+n
				}
			}
		}
	}
	places, err := f.places()
	if err != nil {
		return err
	}
	fmt.Println("# P15:", places)
	all = got[0]
	theirs := func(n func(count) int) string {
		if len(got) < 3 {
			return "no distcc"
		}
		return fmt.Sprintf("%d", n(got[2]))
	}
	for _, row := range []struct {
		what, goal string
		n          func(count) int
	}{
		{"objects equal, without -g", "all", func(c count) int { return c.plain }},
		{"objects equal, with -g, after strip -g", "all", func(c count) int { return c.stripped }},
		{"objects equal, with -g", "all", func(c count) int { return c.debug }},
	} {
		b.table.note("P15", row.what, fmt.Sprintf("%d of %d", row.n(got[1]), row.n(all)), theirs(row.n), row.goal)
	}
	return nil
}

// places returns how many commands of the report ran where, and clears the report.
func (f *farm) places() (string, error) {
	b, err := os.ReadFile(f.report)
	if err != nil {
		return "", err
	}
	n, here := 0, map[string]int{}
	var order []string
	for line := range strings.Lines(string(b)) {
		reason, local := strings.CutPrefix(strings.TrimSpace(line), "local:")
		if !local {
			n++
			continue
		}
		if here[reason]++; here[reason] == 1 {
			order = append(order, reason)
		}
	}
	out := fmt.Sprintf("%d commands ran on the host", n)
	for _, r := range order {
		out += fmt.Sprintf(", %d here (%s)", here[r], r)
	}
	return out, os.Remove(f.report)
}
