package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
)

// What the trees of P21 have in common: a source reads as many headers, of which most sources read many.
const (
	treeSources = 40
	treeReads   = 170 // headers a source reads
	treeRoots   = 40  // directories of -I
	treeHot     = 20  // headers of a layer that many others include
	treeLayers  = 12
)

// wood is a project with many headers, in directories of which each include may be in several.
type wood struct {
	name, dir     string
	headers, dirs int
	words         []string // of -I

	farm  *farm
	run   *runner
	proxy *iwarptest.Proxy
}

// grow writes the tree, the same one for the same size.
func (t *wood) grow() error {
	rng := rand.New(rand.NewPCG(uint64(t.headers), 1))
	dirs, names := make([]string, t.dirs), make([]string, t.headers)
	for k := range dirs {
		dirs[k] = fmt.Sprintf("mod%d/sub%d", k%treeRoots, k/treeRoots)
		if err := os.MkdirAll(filepath.Join(t.dir, dirs[k]), 0o755); err != nil {
			return err
		}
	}
	for k := range names {
		names[k] = fmt.Sprintf("%s/h%d.h", dirs[rng.IntN(t.dirs)], k)
	}
	t.words = []string{"-I."}
	for k := range treeRoots {
		t.words = append(t.words, fmt.Sprintf("-Imod%d", k))
	}
	spelt := func(k int) string { // some without the module, so that all of these have to be looked in
		if _, rest, _ := strings.Cut(names[k], "/"); rng.IntN(10) < 3 {
			return rest
		}
		return names[k]
	}
	text := strings.Repeat("/* what a header says of itself, and of what it is for */\n", 25)
	includes, layer := make([][]int, t.headers), t.headers/treeLayers
	for k, name := range names {
		var b strings.Builder
		fmt.Fprintf(&b, "#ifndef H%d\n#define H%d\n%s", k, k, text)
		if above := min(k/layer, treeLayers-1) - 1; above >= 0 {
			for range 1 + rng.IntN(3) {
				x := above * layer
				if rng.IntN(10) < 7 {
					x += rng.IntN(min(treeHot, layer))
				} else {
					x += rng.IntN(layer)
				}
				includes[k] = append(includes[k], x)
				fmt.Fprintf(&b, "#include \"%s\"\n", spelt(x))
			}
		}
		fmt.Fprintf(&b, "extern int f%d(int a, const char *b);\n#endif\n", k)
		if err := os.WriteFile(filepath.Join(t.dir, name), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	for _, sub := range []string{"src", "obj"} {
		if err := os.MkdirAll(filepath.Join(t.dir, sub), 0o755); err != nil {
			return err
		}
	}
	for k := range treeSources {
		var b strings.Builder
		for seen := make(map[int]bool); len(seen) < treeReads; {
			x := rng.IntN(t.headers)
			fmt.Fprintf(&b, "#include \"%s\"\n", names[x])
			for all := []int{x}; len(all) > 0; {
				if x, all = all[0], all[1:]; !seen[x] {
					seen[x], all = true, append(all, includes[x]...)
				}
			}
		}
		fmt.Fprintf(&b, "int source%d;\n", k)
		if err := os.WriteFile(filepath.Join(t.dir, t.source(k)), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (t *wood) source(k int) string { return fmt.Sprintf("src/s%d.c", k) }

// argv returns the compile of a source.
func (t *wood) argv(k int, first ...string) []string {
	return append(append(first, t.words...), "-c", t.source(k), "-o", fmt.Sprintf("obj/s%d.o", k))
}

// pass compiles sources by rdistcc, and returns what manager and daemon took for each, in milliseconds, and how many bytes
// were sent for all.
func (t *wood) pass(b *bench, sources int) (manager, daemon, sent float64, err error) {
	m, d, s := t.farm.manager.ownCPU(), t.farm.daemons[0].ownCPU(), t.proxy.Counts().Sent
	for k := range sources {
		if _, err := t.run.run(b.ctx, 0, t.farm.env, t.dir, t.argv(k, filepath.Join(b.bin, "rdistcc"), "gcc")...); err != nil {
			return 0, 0, 0, t.farm.trouble(err)
		}
	}
	time.Sleep(settle)
	n := float64(sources)
	return ms(t.farm.manager.ownCPU()-m) / n, ms(t.farm.daemons[0].ownCPU()-d) / n, float64(t.proxy.Counts().Sent - s), t.farm.check()
}

// trees measures P21 to P24: what a known command costs in a tree of many headers, beside one in a tree of few that reads as many,
// and what a manager that begins again sends. The trees take turns.
func (b *bench) trees() error {
	all := []*wood{{name: "large", headers: b.headers, dirs: max(treeRoots, b.headers*3/40)}, {name: "small", headers: 300, dirs: treeRoots}}
	for _, t := range all {
		t.dir = filepath.Join(b.tmp, "tree-"+t.name)
		err := t.grow()
		if err != nil {
			return err
		}
		t.farm, err = b.newFarm(farmSpec{name: "p21-" + t.name, sandbox: "strict", via: func(addr string) (_ string, err error) {
			if t.proxy, err = iwarptest.NewProxy(addr, nil); err != nil {
				return "", err
			}
			return t.proxy.Addr(), nil
		}})
		if err != nil {
			return err
		}
		defer func() {
			t.farm.close()
			_ = t.proxy.Close() // it is no longer needed
		}()
		if t.run, err = newRunner(t.farm.g, b.tmp); err != nil {
			return err
		}
		defer t.run.close()
	}
	large := all[0]
	var first, again float64
	var manager, daemon [2][]float64
	for round := range 2 + max(b.rounds/20, 3) {
		for i, t := range all {
			m, d, s, err := t.pass(b, treeSources)
			if err != nil {
				return err
			}
			if round == 0 && t == large {
				first = s
			}
			if round > 1 { // in the first one nothing is known, and in the second what is looked at again comes to be watched
				manager[i], daemon[i] = append(manager[i], m), append(daemon[i], d)
			}
		}
	}
	large.farm.manager.stop()
	err := large.farm.manage()
	if err == nil {
		_, _, again, err = large.pass(b, treeSources)
	}
	if err != nil {
		return err
	}
	what := fmt.Sprintf("a known command in a tree of %d headers; of 300", large.headers)
	b.table.ratio("P21", "manager's CPU of "+what, "ms", median(manager[0]), median(manager[1]), "<= 1.2")
	if err := b.treeHits(large); err != nil {
		return err
	}
	b.table.ratio("P23", "bytes of a build by a manager that begins again; of the first build", "MB", again/1e6, first/1e6, "<= 0.02")
	b.table.ratio("P24", "daemon's own CPU of "+what, "ms", median(daemon[0]), median(daemon[1]), "-")
	return nil
}

// treeHits measures P22: a hit in the large tree against a direct-mode hit of ccache.
func (b *bench) treeHits(t *wood) error {
	s, end, err := b.cache(caches[0], "p22-"+caches[0], t.argv(0, "gcc"))
	if err != nil {
		return err
	}
	defer end()
	ours, theirs := []float64(nil), []float64(nil)
	env := append(t.farm.env, "RDISTCC_CACHE=on")
	for round := range 3 + max(b.rounds/2, 10) {
		m := t.farm.manager.ownCPU()
		mine, err := t.run.run(b.ctx, settle, env, t.dir, t.argv(0, filepath.Join(b.bin, "rdistcc"), "gcc")...)
		if err != nil {
			return t.farm.trouble(err)
		}
		m = t.farm.manager.ownCPU() - m
		if round >= 3 {
			ours = append(ours, ms(mine.self+m))
		}
		if s == nil {
			continue
		}
		other, err := s.run.run(b.ctx, settle, s.env, t.dir, s.argv...)
		if err != nil {
			return errors.Join(errors.New("ccache"), err)
		}
		if round >= 3 {
			theirs = append(theirs, ms(other.self))
		}
	}
	const what, goal = "CPU of a hit in the large tree, ccache", "<= 0.50"
	if s == nil {
		b.table.note("P22", what, fmt.Sprintf("%.2f ms", mean(ours)), "no ccache", goal)
		return nil
	}
	b.table.ratio("P22", what, "ms", mean(ours), mean(theirs), goal)
	return nil
}
