package main

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// worktree is a build whose second worktree is to have the results of the first one. $ROOT is the worktree, $CC the compiler.
type worktree struct {
	project
	compiler string
	options  string // that say to the compiler that it is not to write the directory
	lines    []string
}

// redisLines build redis, which names its files relatively, and libwebpLines the decoder of libwebp by CMake, which names them
// absolutely.
var (
	redisLines   = []string{"make " + buildJobs + ` MALLOC=libc USE_SYSTEMD=no CC="$CC" OPTIMIZATION=-O2 DEBUG=-g`}
	libwebpLines = []string{
		`cd internal/libwebp-1.4.0 && cmake -S . -B build -DCMAKE_C_COMPILER_LAUNCHER="$LAUNCHER" -DCMAKE_C_COMPILER="$COMPILER" -DCMAKE_BUILD_TYPE= -DCMAKE_C_FLAGS="-O2 -g $OPTIONS" >/dev/null`,
		"cd internal/libwebp-1.4.0 && cmake --build build " + buildJobs + " --target webpdecoder",
	}
)

var worktreeBuilds = []worktree{
	{project: projects[1], compiler: "gcc", lines: redisLines},
	{project: projects[1], compiler: "clang", options: "-ffile-prefix-map=$ROOT=.", lines: redisLines},
	{project: project{name: "libwebp by CMake", module: ltoProgram, needs: []string{"cmake"}}, compiler: "gcc", options: "-ffile-prefix-map=$ROOT=.", lines: libwebpLines},
	{project: project{name: "libwebp by CMake", module: ltoProgram, needs: []string{"cmake"}}, compiler: "clang", options: "-ffile-prefix-map=$ROOT=.", lines: libwebpLines},
}

// worktrees measures how many results of a build are found in a second worktree, whose objects are compared with those of the plain
// compiler there.
func (b *bench) worktrees() error {
	fmt.Println("| project, `-O2 -g` | compiler | option | hits in the second worktree | objects that differ |\n|---|---|---|---|---|")
	for i, w := range worktreeBuilds {
		if _, err := exec.LookPath(w.compiler); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		if err := w.ready(b); err != nil {
			fmt.Printf("# left out: %v\n", err)
			continue
		}
		if err := b.worktree(fmt.Sprintf("worktrees-%d", i), w); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) worktree(name string, w worktree) error {
	f, err := b.newFarm(farmSpec{name: name})
	if err != nil {
		return err
	}
	defer f.close()
	ours := &side{argv: []string{filepath.Join(b.bin, "rdistcc")}, env: append(slices.Clone(f.env), "RDISTCC_CACHE=on")}
	// The second name is longer, and has another number of directories.
	one, two := filepath.Join(b.tmp, name+"-one"), filepath.Join(b.tmp, name+"-elsewhere", "and", "the-second")
	if _, err := b.buildIn(one, w, ours.argv[0], ours.env); err != nil {
		return f.trouble(err)
	}
	before, err := b.cacheCounts(ours)
	if err != nil {
		return err
	}
	got, err := b.buildIn(two, w, ours.argv[0], ours.env)
	if err != nil {
		return f.trouble(err)
	}
	after, err := b.cacheCounts(ours)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(two); err != nil {
		return err
	}
	want, err := b.buildIn(two, w, "", b.env())
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %s | `%s` | %s of %d | %d of %d |\n", w.name, w.compiler, w.options, share(after.hits()-before.hits(), after.Asked-before.Asked), after.Asked-before.Asked,
		len(want)-same(want, got), len(want))
	return nil
}

// buildIn builds in a worktree at dir, and returns the objects.
func (b *bench) buildIn(dir string, w worktree, launcher string, env []string) (map[string][sha256.Size]byte, error) {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := w.copyTo(b, dir); err != nil {
		return nil, err
	}
	head := filepath.Join(b.tmp, "repository", "worktrees", filepath.Base(dir), "HEAD")
	for file, text := range map[string]string{head: "ref: refs/heads/main\n", filepath.Join(dir, ".git"): "gitdir: " + filepath.Dir(head) + "\n"} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	options := strings.ReplaceAll(w.options, "$ROOT", dir)
	env = append(slices.Clone(env), "SOURCE_DATE_EPOCH=1700000000", "LAUNCHER="+launcher, "COMPILER="+w.compiler, "OPTIONS="+options,
		"CC="+strings.Join(strings.Fields(launcher+" "+w.compiler+" "+options), " "))
	for _, line := range w.lines {
		cmd := exec.CommandContext(b.ctx, "sh", "-c", line)
		cmd.Dir, cmd.Env = dir, env
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%s: %s: %w: %s", w.name, line, err, lastLines(out, 3))
		}
	}
	return b.objects(dir, false)
}
