package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/part"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// TestOncePerBuild: what concerns a build, and not one of its commands, is said once, by one of several commands at the same time too, in
// each build anew, and again after a while.
func TestOncePerBuild(t *testing.T) {
	part.Skip(t)
	for name, c := range map[string]struct{ env, say string }{
		"a setting":  {"RDISTCC_CACHE=maybe", "RDISTCC_CACHE=maybe is taken as on"},
		"no manager": {"RDISTCC_CACHE=on", "; compiled here"}, // there is no rdistcc-cm on this PATH
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.write("hello.c", hello)
			gcc, err := exec.LookPath("gcc")
			if err != nil {
				t.Fatal(err)
			}
			b.env = append(b.env, "PATH="+filepath.Dir(gcc)+":/bin", c.env)
			// The second line is of commands in groups of their own, as ninja's are.
			const three = `for i in 1 2 3; do "$0" "$1" -c hello.c -o $i.o & done; wait`
			build := func(words ...string) (said int) {
				t.Helper()
				o := b.run(append(words, "sh", "-c", three+`; set -m; `+three, rdistcc, gcc)...)
				if o.code != 0 {
					t.Errorf("%+v", o)
				}
				return strings.Count(o.stderr, c.say)
			}
			for _, named := range []string{"RDISTCC_BUILD=1", "RDISTCC_BUILD=2", "OTHER=1"} {
				if n := build("env", named); n != 1 {
					t.Errorf("%s: said %d times", named, n)
				}
			}
			if n := build("env", "RDISTCC_BUILD=2"); n != 0 {
				t.Errorf("the same build: said %d times more", n)
			}
			long := time.Now().Add(-2 * forgetTold)
			if err := os.Chtimes(filepath.Join(b.path("state"), ipc.ToldName), long, long); err != nil {
				t.Fatal(err)
			}
			if n := build("env", "RDISTCC_BUILD=2"); n != 1 {
				t.Errorf("after a while: said %d times", n)
			}
			if n := build("env", "RDISTCC_BUILD=2", "RDISTCC_VERBOSE=0"); n != 0 {
				t.Errorf("without words: said %d times", n)
			}
		})
	}
}

// TestThinLinkHint: a build whose links with ThinLTO compile here is told once what has hosts do that. Links that leave their compiles to
// a distributor already, and those that cannot, are not.
func TestThinLinkHint(t *testing.T) {
	m := newTestManager(t)
	const script = "#!/bin/sh\nexit 0\n"
	const thin, lld = "-flto=thin", "-fuse-ld=lld"
	for i, c := range []struct {
		clang, env string
		words      []string
		why        string
		said       int
	}{
		{"clang", "", []string{thin, lld}, "link:thin-lto", 1},
		{"clang-22", "", []string{"-fno-lto", thin}, "link:thin-lto", 1},
		{"clang-19", "", []string{thin, lld}, "link:thin-lto", 0},
		{"llvm-14/bin/clang", "", []string{thin, lld}, "link:thin-lto", 0},
		{"llvm-21/bin/clang++", "", []string{thin, lld}, "link:thin-lto", 1},
		{"clang", "", []string{thin, lld, "-fthinlto-distributor=/x"}, "link", 0},
		{"clang", "", []string{thin, lld, "-Wl,--thinlto-distributor=/x"}, "link", 0},
		{"clang", "", []string{thin, lld, "-Xlinker", "--thinlto-distributor=/x"}, "link", 0},
		{"clang", "", []string{thin, lld, "@words"}, "link", 0},
		{"clang", "", []string{thin, "-Wl,-plugin-opt,thinlto-index-only"}, "link", 0},
		{"clang", "", []string{thin, "--config=x.cfg"}, "link", 0},
		{"clang", "", []string{"-flto"}, "link:full-lto", 0},
		{"clang", "", []string{thin, "-flto=full"}, "link:full-lto", 0},
		{"clang", "", []string{thin, "-fno-lto"}, "link", 0},
		{"gcc", "", []string{thin}, "link", 0},
		{"clang", "", []string{thin, "-o", "conftest"}, "link:thin-lto", 0},
		{"clang", "", []string{thin, "conftest.c", "-o", "conftest"}, "link:thin-lto", 0},
		{"clang", "", []string{thin, "-o", "cmTC_1a2b3"}, "link:thin-lto", 0},
		{"clang", "", []string{thin, "-o", "sub/meson-private/tmp1/output.exe"}, "link:thin-lto", 0},
		{"clang", "CCC_OVERRIDE_OPTIONS=# x", []string{thin}, "link:thin-lto", 0},
		{"clang", "RDISTCC_VERBOSE=0", []string{thin}, "link:thin-lto", 0},
		{"clang", "RDISTCC_MODE=local", []string{thin}, "link:thin-lto", 0},
	} {
		b := m.bench(fmt.Sprintf("RDISTCC_BUILD=%d", i), c.env)
		b.write("words", "-fthinlto-distributor=/x")
		clang := b.path(c.clang)
		if err := os.MkdirAll(filepath.Dir(clang), 0o777); err != nil {
			t.Fatal(err)
		}
		b.write(c.clang, script)
		if err := os.Chmod(clang, 0o755); err != nil {
			t.Fatal(err)
		}
		said := 0
		for range 3 { // of one build
			o := b.run(append([]string{rdistcc, clang, "a.o", "-o", "x"}, c.words...)...)
			said += strings.Count(o.stderr, "rdistcc help lto")
			if o.code != 0 || c.said == 0 && o.stderr != "" {
				t.Errorf("%s %v: %+v", c.clang, c.words, o)
			}
		}
		if said != c.said {
			t.Errorf("%s %s %v: said %d times, want %d", c.env, c.clang, c.words, said, c.said)
		}
		b.reported("local:"+c.why, "local:"+c.why, "local:"+c.why)
	}
}
