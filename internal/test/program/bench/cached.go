package main

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// inARow is how many hits one sample of the second half of P18 has.
const inARow = 20

// cached measures P18: a hit in the manager's cache of results against a direct-mode hit of ccache, for the source of P14.
// What counts is what runs on the build host: command and manager. Single hits in turns find the processor's caches cold.
// In a build, one hit follows another, so that is measured too.
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
	for _, rival := range caches {
		s, end, err := b.cache(rival, "p18-"+rival, words)
		if err != nil {
			return err
		}
		defer end()
		if s != nil {
			sides = append(sides, s)
		}
	}
	if err := b.compete("P18", sides, b.rounds, f); err != nil {
		return err
	}
	b.addHits(sides, "a hit in the manager's cache, 350 headers", "<= 0.50", 1)
	for _, s := range sides {
		s.reset()
		s.argv = append([]string{"/bin/sh", "-c", `i=0; while [ $i -lt ` + strconv.Itoa(inARow) + ` ]; do "$@" || exit; i=$((i+1)); done`, "sh"}, s.argv...)
	}
	if err := b.compete("P18", sides, max(b.rounds/4, 5), f); err != nil {
		return err
	}
	b.addHits(sides, fmt.Sprintf("the same, %d in a row", inARow), "<= 0.50", inARow)
	return nil
}

// addHits adds what one of n hits takes to the table: ours first, then those of the rivals there are.
func (b *bench) addHits(sides []*side, what, goal string, n float64) {
	for _, s := range sides {
		fmt.Printf("# %s, of %s: client %.2f ms of CPU, manager %.2f, host %.2f; wall %.2f\n", what, s.name,
			median(s.client)/n, median(s.mgr)/n, median(s.far)/n, median(s.wall)/n)
	}
	ours := sides[0]
	if len(sides) == 1 {
		b.table.note("P18", "CPU of "+what, fmt.Sprintf("%.2f ms", median(ours.near())/n), "no ccache", goal)
		b.table.note("P18", "its wall", fmt.Sprintf("%.2f ms", median(ours.wall)/n), "no ccache", goal)
	}
	for _, s := range sides[1:] {
		if s.name != caches[0] {
			goal = "-"
		}
		cpu := median(s.cpu) // with that of a server
		b.table.ratio("P18", "CPU of "+what+", "+s.name, "ms", median(ours.near())/n, cpu/n, goal)
		b.table.ratio("P18", "its wall", "ms", median(ours.wall)/n, median(s.wall)/n, goal)
	}
}

// caches are the programs that P18 compares with. Goals are about the first one.
var caches = []string{"ccache", "sccache"}

// cache returns the side of another cache of compiles for words, a compiler with or without arguments; nil if the program is
// not installed. end ends it.
func (b *bench) cache(program, name string, words []string) (s *side, end func(), err error) {
	path, err := exec.LookPath(program)
	if err != nil {
		fmt.Printf("# %s is not installed (apt-get install %[1]s): its rows are left out\n", program)
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
	dir := filepath.Join(b.tmp, name)
	s = &side{name: program, run: r, argv: append([]string{path}, words...)}
	if program == "ccache" {
		s.env = b.env("CCACHE_DIR="+dir, "CCACHE_DIRECT=true")
		return s, r.close, nil
	}
	// Its server, which the first command starts, stays in the group.
	addr, err := freeAddr(nil)
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, nil, err
	}
	s.env = b.env("SCCACHE_DIR="+dir, "SCCACHE_SERVER_PORT="+port, "SCCACHE_IDLE_TIMEOUT=0", "HOME="+b.tmp)
	return s, func() {
		stop := exec.CommandContext(b.ctx, path, "--stop-server")
		stop.Env = s.env
		_ = stop.Run() // an error: there is none
		r.close()
	}, nil
}

// cachedBuilds measures whole builds whose results are all kept, beside plain ones and other caches: by the machine that had
// them compiled, and by another one, whose manager has no results and reads those of the host. Every object is compared with that of
// the plain build.
func (b *bench) cachedBuilds() error {
	sides, f, done, err := b.contest("p18b", "", []string{"gcc"})
	if err != nil {
		return err
	}
	defer done()
	plain, ours := sides[0], sides[1]
	second, err := b.newFarm(farmSpec{name: "p18c", config: "cache: {size: 0}\n"})
	if err != nil {
		return err
	}
	defer second.close()
	r, err := newRunner(second.g, b.tmp)
	if err != nil {
		return err
	}
	defer r.close()
	r.limit = buildLimit
	other := &side{name: "rdistcc from the host's memory", run: r, env: second.env, argv: ours.argv, host: second.host, manager: second.manager}
	farms := map[*side]*farm{ours: f, other: second}
	sides = []*side{plain, ours, other}
	var rivals []*side
	for _, program := range caches {
		s, end, err := b.cache(program, "p18b-"+program, []string{b.gcc})
		if err != nil {
			return err
		}
		defer end()
		if s != nil {
			rivals = append(rivals, s)
		}
	}
	for s := range farms {
		s.env = append(s.env, "RDISTCC_CACHE=on")
	}
	sides = append(sides, rivals...)
	for _, p := range append([]project{projects[1]}, heavy...) {
		if err := p.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		for _, s := range sides {
			s.reset()
		}
		var want map[string][sha256.Size]byte
		for round := -1; round < b.turns; round++ { // the first one keeps the results
			for _, s := range sides {
				if err := b.buildOnce(p, asItIs, s, round); err != nil {
					return cmp.Or(farms[s], f).trouble(err)
				}
				got, err := b.objects(filepath.Join(b.tmp, "build"), false)
				if err != nil {
					return err
				}
				if s == plain {
					want = got
				}
				equal := same(want, got)
				if farms[s] != nil && equal != len(want) {
					return fmt.Errorf("%s, round %d: %d of %d objects are those of the plain build", p.name, round, equal, len(want))
				}
				kinds := ""
				if f := farms[s]; f != nil {
					if kinds, err = f.kinds(); err != nil {
						return err
					}
				}
				fmt.Printf("# %s, round %d, %s: %s; %d of %d objects equal\n", p.name, round, s.name, kinds, equal, len(want))
				if round < 0 {
					s.reset()
				}
			}
		}
		for _, s := range sides {
			fmt.Printf("# %s by %s: wall %.2f s, CPU %.2f s: client %.2f, manager %.2f, host %.2f\n", p.name, s.name,
				median(s.wall)/1e3, median(s.cpu)/1e3, (median(s.cpu)-median(s.far)-median(s.mgr))/1e3, median(s.mgr)/1e3, median(s.far)/1e3)
		}
		for _, row := range []struct {
			s    *side
			what string
		}{{ours, "second build of " + p.name}, {other, p.name + " by a second client"}} {
			s, what := row.s, row.what
			if len(rivals) == 0 {
				b.table.note("P18", what+", wall", fmt.Sprintf("%.2f s", median(s.wall)/1e3), "no ccache", "")
			}
			for _, rival := range rivals {
				b.table.ratio("P18", what+", wall, "+rival.name, "s", median(s.wall)/1e3, median(rival.wall)/1e3, "")
				b.table.ratio("P18", "its CPU", "s", median(s.cpu)/1e3, median(rival.cpu)/1e3, "")
			}
		}
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
