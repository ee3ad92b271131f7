package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if rival, err := exec.LookPath("ccache"); err != nil {
		fmt.Println("# ccache is not installed (apt-get install ccache): its column is left out")
	} else {
		g, err := b.group("p18-ccache", ground{}.client())
		if err != nil {
			return err
		}
		r, err := newRunner(g, b.tmp)
		if err != nil {
			return err
		}
		defer r.close()
		r.limit = buildLimit
		sides = append(sides, &side{name: "ccache", run: r, argv: append([]string{rival}, words...),
			env: b.env("CCACHE_DIR="+filepath.Join(b.tmp, "ccache"), "CCACHE_DIRECT=true")})
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
