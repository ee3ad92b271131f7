package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// edit is a change to redis before it is built.
type edit struct {
	name  string
	shell string // in the directory of the sources
	flags string // besides the build's
}

var edits = []edit{
	{name: "nothing"},
	{name: "all files touched", shell: "find . -name '*.[ch]' -exec touch {} +"},
	{name: "a line in a header that most units read", shell: "echo 'extern int edited;' >>src/server.h"},
	{name: "a comment there", shell: "echo '/* edited */' >>src/server.h"},
	{name: "a line in a header that some units read", shell: "echo 'extern int edited;' >>src/bio.h"},
	{name: "a line in a header behind an #ifdef that does not hold", shell: "echo '#define EDITED' >>src/testhelp.h"},
	{name: "a line in the variant of another system", shell: "echo 'int edited;' >>src/ae_kqueue.c"},
	{name: "a line in a source", shell: "echo 'int edited;' >>src/t_string.c"},
	{name: "a comment in a source", shell: "echo '/* edited */' >>src/t_string.c"},
	{name: "another flag", flags: "-DEDITED"},
}

// edits measures how much of a build comes from the cache after each of some edits, by its first step and by both, beside
// ccache. Every object is compared with the plain build's. All edits are made to the sources as they are published, for
// which everything is kept.
func (b *bench) edits() error {
	sides, f, done, err := b.contest("edits", "", []string{"gcc"})
	if err != nil {
		return err
	}
	defer done()
	plain, ours := sides[0], sides[1]
	ours.env = append(ours.env, "RDISTCC_CACHE=on")
	rival, end, err := b.cache("ccache", "edits-ccache", []string{"gcc"})
	if err != nil {
		return err
	}
	defer end()
	redis := projects[slices.IndexFunc(projects, func(p project) bool { return p.name == "redis" })]
	if err := redis.ready(b); err != nil {
		return err
	}
	build := func(e edit, s *side) (map[string][sha256.Size]byte, error) {
		p := redis
		if e.shell != "" {
			p.prepare = func(string, string) []string { return []string{e.shell} }
		}
		p.build = func(cc, flags string) []string {
			return append(redis.build(cc, flags), "OPTIMIZATION=-O0", "REDIS_CFLAGS="+e.flags) // what is optimized takes longer to compile
		}
		if err := b.buildOnce(p, asItIs, s, 0); err != nil {
			return nil, err
		}
		return b.objects(filepath.Join(b.tmp, "build"), false)
	}
	for _, s := range []*side{ours, rival} {
		if s == nil {
			continue
		}
		if _, err := build(edits[0], s); err != nil {
			return f.trouble(err)
		}
	}
	fmt.Println("| edit | compiles | first step | both steps | ccache: direct | with the preprocessor |\n|---|---|---|---|---|---|")
	for _, e := range edits {
		want, err := build(e, plain)
		if err != nil {
			return err
		}
		before, err := b.cacheCounts(ours)
		if err != nil {
			return err
		}
		got, err := build(e, ours)
		if err != nil {
			return f.trouble(err)
		}
		if n := same(want, got); n != len(want) {
			return fmt.Errorf("%s: %d of %d objects are those of the plain build", e.name, n, len(want))
		}
		now, err := b.cacheCounts(ours)
		if err != nil {
			return err
		}
		line := fmt.Sprintf("| %s | %d | %s | %s |", e.name, now.Asked-before.Asked, share(now.hits()-before.hits()-(now.Second-before.Second), now.Asked-before.Asked), share(now.hits()-before.hits(), now.Asked-before.Asked))
		if rival == nil {
			fmt.Println(line, "| |")
			continue
		}
		if _, err := b.ccacheStats(rival, "--zero-stats"); err != nil {
			return err
		}
		if _, err := build(e, rival); err != nil {
			return err
		}
		n, err := b.ccacheStats(rival, "--print-stats")
		if err != nil {
			return err
		}
		direct, cpp := n["direct_cache_hit"], n["direct_cache_hit"]+n["preprocessed_cache_hit"]
		all := cpp + n["cache_miss"]
		fmt.Printf("%s %s | %s |\n", line, share(direct, all), share(cpp, all))
	}
	return nil
}

// share says how much n of all is.
func share(n, all uint64) string {
	return fmt.Sprintf("%d (%.0f %%)", n, 100*float64(n)/float64(max(all, 1)))
}

// cacheCounts is what a manager says of its cache.
type cacheCounts struct {
	Asked, Second uint64
	Hits          map[string]uint64
}

func (c *cacheCounts) hits() (n uint64) {
	for _, k := range c.Hits {
		n += k
	}
	return n
}

func (b *bench) cacheCounts(s *side) (*cacheCounts, error) {
	cmd := exec.CommandContext(b.ctx, s.argv[0], "cache", "stats", "--json")
	cmd.Env = s.env
	out, err := cmd.Output()
	var x struct{ Counts *cacheCounts }
	if err = errors.Join(err, json.Unmarshal(out, &x)); err != nil || x.Counts == nil {
		return nil, fmt.Errorf("rdistcc cache stats: %w: %s", err, out)
	}
	return x.Counts, nil
}

// ccacheStats returns the numbers that ccache prints.
func (b *bench) ccacheStats(s *side, word string) (map[string]uint64, error) {
	cmd := exec.CommandContext(b.ctx, s.argv[0], word)
	cmd.Env = s.env
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("ccache %s: %w", word, err)
	}
	n := make(map[string]uint64)
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "\t"); ok {
			n[name], _ = strconv.ParseUint(value, 10, 64) // some are not numbers
		}
	}
	return n, nil
}
