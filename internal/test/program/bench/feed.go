package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// feedUnits is how many sources P17 compiles, feedJobs how many at a time.
const (
	feedUnits = 24
	feedJobs  = 8
)

// feed measures P17: how many compiles a build host can hand to its farm per second of its own CPU time,
// with many at a time, of C++ with 350 headers that the host already has. What the farm's side takes does
// not count.
func (b *bench) feed() error {
	const what, goal = "compiles fed by a CPU second of the build host", ">= 10"
	dir := filepath.Join(b.tmp, "feed")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	rules := "all:"
	for i := range feedUnits {
		name := fmt.Sprintf("unit%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".cc"), fmt.Appendf(nil, "%sint %s() { return 0; }\n", headersSource, name), 0o644); err != nil {
			return err
		}
		rules += " " + name + ".o"
	}
	// No other rules: make's search for implicit ones is not measured.
	rules += "\n.SUFFIXES:\n%.o: %.cc always\n\t$(CXX) -c -o $@ $<\nalways:\n.PHONY: all always\n"
	if err := os.WriteFile(filepath.Join(dir, "Makefile"), []byte(rules), 0o644); err != nil {
		return err
	}
	sides, f, done, err := b.contest("p17", ",lzo", []string{"g++"})
	if err != nil {
		return err
	}
	defer done()
	sides = sides[1:] // local compiles feed no farm
	for round := -1; round < b.turns; round++ {
		for i := range sides {
			s := sides[(i+round+1)%len(sides)]
			far0, mgr0 := s.host.usage(), s.manager.ownCPU()
			t, err := s.run.run(b.ctx, settle, s.env, dir, "make", "-r", fmt.Sprintf("-j%d", feedJobs), "CXX="+s.argv[0]+" g++")
			if err != nil {
				return f.trouble(err)
			}
			if round >= 0 {
				s.add(b, "P17", round, t, s.host.usage()-far0, s.manager.ownCPU()-mgr0)
			}
		}
	}
	if err := f.check(); err != nil {
		return err
	}
	perSecond := func(s *side) float64 { return feedUnits / median(s.near()) * 1e3 }
	for _, s := range sides {
		fmt.Printf("# %d compiles by %s, %d at a time: CPU of the clients with make %.1f ms, of the manager %.1f\n", feedUnits, s.name, feedJobs, median(s.client), median(s.mgr))
	}
	if len(sides) < 2 {
		b.table.note("P17", what, fmt.Sprintf("%.0f", perSecond(sides[0])), "no distcc", goal)
		return nil
	}
	b.table.ratio("P17", what, "", perSecond(sides[0]), perSecond(sides[1]), goal)
	return nil
}
