package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// cached measures P18: a hit in the manager's cache of results against a direct-mode hit of ccache, for the source of P14.
// What counts is what runs on the build host: command and manager.
func (b *bench) cached() error {
	const name = "kept.cc"
	if err := os.WriteFile(filepath.Join(b.tmp, name), []byte(headersSource), 0o644); err != nil {
		return err
	}
	words := []string{"g++", "-O2", "-g", "-c", name, "-o", "kept.o"}
	sides, f, done, err := b.contest("p18", "", words)
	if err != nil {
		return err
	}
	defer done()
	ours := sides[1]
	ours.env = append(ours.env, "RDISTCC_CACHE=on")
	sides = []*side{ours}
	rival, end, err := b.ccache("p18-ccache", words)
	if err != nil {
		return err
	}
	defer end()
	if rival != nil {
		sides = append(sides, rival)
	}
	if err := b.compete("P18", sides, b.rounds, f); err != nil {
		return err
	}
	for _, s := range sides {
		fmt.Printf("# a hit of %s: client %.2f ms of CPU, manager %.2f, host %.2f; wall %.2f\n", s.name, median(s.client), median(s.mgr), median(s.far), median(s.wall))
	}
	const cpu, wall = "CPU of a hit in the manager's cache, 350 headers", "its wall"
	if len(sides) < 2 {
		b.table.note("P18", cpu, fmt.Sprintf("%.2f ms", median(ours.near())), "no ccache", "<= 0.50")
		b.table.note("P18", wall, fmt.Sprintf("%.2f ms", median(ours.wall)), "no ccache", "<= 0.50")
		return nil
	}
	b.table.ratio("P18", cpu, "ms", median(ours.near()), median(sides[1].near()), "<= 0.50")
	b.table.ratio("P18", wall, "ms", median(ours.wall), median(sides[1].wall), "<= 0.50")
	return nil
}

// ccache returns the side of ccache for words, a compiler with or without arguments; nil if it is not installed. end ends it.
func (b *bench) ccache(name string, words []string) (s *side, end func(), err error) {
	program, err := exec.LookPath("ccache")
	if err != nil {
		fmt.Println("# ccache is not installed (apt-get install ccache): its column is left out")
		return nil, func() {}, nil
	}
	g, err := b.group(name, ground{}.client())
	if err != nil {
		return nil, nil, err
	}
	r, err := newRunner(g, b.tmp)
	if err != nil {
		return nil, nil, err
	}
	r.limit = buildLimit
	return &side{name: "ccache", run: r, argv: append([]string{program}, words...),
		env: b.env("CCACHE_DIR="+filepath.Join(b.tmp, name), "CCACHE_DIRECT=true")}, r.close, nil
}

// cachedBuilds measures whole builds whose results are all kept, beside plain ones and ccache's. Every object is compared with
// that of the plain build.
func (b *bench) cachedBuilds() error {
	sides, f, done, err := b.contest("p18b", "", []string{"gcc"})
	if err != nil {
		return err
	}
	defer done()
	sides = sides[:2]
	plain, ours := sides[0], sides[1]
	ours.env = append(ours.env, "RDISTCC_CACHE=on")
	rival, end, err := b.ccache("p18b-ccache", []string{"gcc"})
	if err != nil {
		return err
	}
	defer end()
	if rival != nil {
		sides = append(sides, rival)
	}
	for _, p := range append([]project{projects[1]}, heavy...) {
		if err := p.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		for _, s := range sides {
			s.wall, s.cpu, s.client, s.mgr, s.far = nil, nil, nil, nil, nil
		}
		var want map[string][sha256.Size]byte
		for round := -1; round < b.turns; round++ { // the first one keeps the results
			for _, s := range sides {
				if err := b.buildOnce(p, asItIs, s, round); err != nil {
					return f.trouble(err)
				}
				got, err := b.objects(filepath.Join(b.tmp, "build"), false)
				switch {
				case err != nil:
					return err
				case s == plain:
					want = got
				case s == ours && same(want, got) != len(want):
					return fmt.Errorf("%s, round %d: %d of %d objects are those of the plain build", p.name, round, same(want, got), len(want))
				}
				if round < 0 {
					s.wall, s.cpu, s.client, s.mgr, s.far = nil, nil, nil, nil, nil
				}
			}
			kinds, err := f.kinds()
			if err != nil {
				return err
			}
			fmt.Printf("# %s, round %d: %s; %d objects equal\n", p.name, round, kinds, len(want))
		}
		for _, s := range sides {
			fmt.Printf("# %s by %s: wall %.2f s, CPU %.2f s: client %.2f, manager %.2f, host %.2f\n", p.name, s.name,
				median(s.wall)/1e3, median(s.cpu)/1e3, (median(s.cpu)-median(s.far)-median(s.mgr))/1e3, median(s.mgr)/1e3, median(s.far)/1e3)
		}
		if rival == nil {
			b.table.note("P18", "second build of "+p.name+", wall", fmt.Sprintf("%.2f s", median(ours.wall)/1e3), "no ccache", "")
			continue
		}
		b.table.ratio("P18", "second build of "+p.name+", wall", "s", median(ours.wall)/1e3, median(rival.wall)/1e3, "")
		b.table.ratio("P18", "its CPU", "s", median(ours.cpu)/1e3, median(rival.cpu)/1e3, "")
	}
	return nil
}

// kinds returns how many commands of each kind the farm's report has, and empties it.
func (f *farm) kinds() (string, error) {
	b, err := os.ReadFile(f.report)
	if err != nil {
		return "", err
	}
	n := map[string]int{}
	for line := range strings.Lines(string(b)) {
		kind, _, _ := strings.Cut(line, ":")
		n[kind]++
	}
	return fmt.Sprintf("%d remote, %d cached, %d local", n["remote"], n["cached"], n["local"]), os.Remove(f.report)
}
