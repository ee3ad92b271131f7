package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestSubmit sends raw jobs to a real daemon: what compiles comes back as the local compiler would have
// written it, what does not says why, and what the daemon's rules forbid is refused.
func TestSubmit(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir := farmtest.Dir(t)
	f := farmtest.New(t, dir)
	d, err := f.StartDaemon(t.Context(), "rdistccd-1", "--jobs", "2")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := file("good.i", "# 1 \"good.c\"\nint f(int x) { return x * 3; }\n")
	bad := file("bad.i", "# 1 \"bad.c\"\nint f(int x) { return y; }\n")
	// It takes minutes, or until it is killed.
	endless := file("endless.ii", "template <int N> constexpr int f() { int s = N; for (int i = 0; i < 200000; i++) s ^= i; return s; }\n"+
		"template <int N> struct t { static constexpr int v = f<N>() + t<N - 1>::v; };\ntemplate <> struct t<0> { static constexpr int v = 0; };\nint x = t<800>::v;\n")
	object, stderr := filepath.Join(dir, "out.o"), filepath.Join(dir, "err.txt")
	for _, c := range []struct {
		name, source string
		argv         []string
		more         []string
		env          string
		addr         string
		object       string // expected object: the local compiler's, or any
		code         int
		says         string
	}{
		{name: "compiles", source: good, argv: []string{"gcc", "-O2", "-x", "cpp-output", "-c", "good.i", "-o", "good.o"}},
		{name: "options only", source: good, argv: []string{"gcc", "-O2"}, env: "LC_ALL=C\x00SOURCE_DATE_EPOCH=1\x00"},
		{name: "error in the source", source: bad, argv: []string{"gcc", "-O2"}, code: exitCompilerFailed, says: "status 1"},
		{name: "plugin", source: good, argv: []string{"gcc", "-fplugin=/tmp/evil.so"}, code: exitRefused, says: "policy"},
		{name: "variable", source: good, argv: []string{"gcc"}, env: "LD_PRELOAD=/tmp/evil.so\x00", code: exitRefused, says: "LD_PRELOAD"},
		{name: "unknown language", source: good, argv: []string{"gcc", "-x", "assembler-with-cpp", "-c", "x.S"}, code: exitRefused, says: "language"},
		{name: "no words", source: good, code: exitArguments, says: "no word"},
		{name: "no source", source: filepath.Join(dir, "missing.i"), argv: []string{"gcc"}, code: exitArguments, says: "missing.i"},
		{name: "several at once", source: good, argv: []string{"gcc", "-O2"}, more: []string{"--repeat", "5"}},
		{name: "taken back", source: endless, argv: []string{"g++"}, more: []string{"--cancel", "50ms", "--lang", "c++-cpp-output"}, code: exitCompilerFailed, says: "cancelled"},
		{name: "limit of its own", source: endless, argv: []string{"g++"}, more: []string{"--limit", "50ms", "--lang", "c++-cpp-output"}, code: exitCompilerFailed, says: "timeout"},
		{name: "no source at all", argv: []string{"gcc"}, more: []string{"--no-source", "--name", "empty.c", "--output", "object:out.o"}, object: "anything"},
		{name: "words as they stand", source: good, argv: []string{"gcc", "-c", "good.i"}, more: []string{"--raw", "--output", "object:good.o"}, code: exitRefused, says: "policy"},
		{name: "wrong form", source: good, argv: []string{"gcc"}, more: []string{"--form", "tar"}, code: exitArguments, says: "--form tar"},
		{name: "nobody listens", source: good, argv: []string{"gcc"}, addr: "127.0.0.1:1", code: exitConnect, says: "refused"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_ = os.Remove(object)
			_ = os.Remove(stderr)
			addr := d.Addr
			if c.addr != "" {
				addr = c.addr
			}
			argv := file("argv", strings.Join(c.argv, "\x00")+strings.Repeat("\x00", min(1, len(c.argv))))
			var out, said bytes.Buffer
			code := run(t.Context(), append([]string{"submit", addr, "--argv", argv, "--env", file("env", c.env),
				"--source", c.source, "--object", object, "--stderr", stderr}, c.more...), &out, &said)
			if code != c.code || !strings.Contains(said.String(), c.says) {
				t.Fatalf("exit %d and %q, want %d and %q", code, said.String(), c.code, c.says)
			}
			messages, _ := os.ReadFile(stderr)
			if c.source == bad && !bytes.Contains(messages, []byte("bad.c:1:")) {
				t.Errorf("the compiler's messages: %q", messages)
			}
			if c.code != 0 {
				if _, err := os.Stat(object); err == nil {
					t.Error("an object was written")
				}
				return
			}
			if c.object != "" {
				return
			}
			local := filepath.Join(dir, "local.o")
			if out, err := exec.CommandContext(t.Context(), "gcc", "-O2", "-c", c.source, "-o", local).CombinedOutput(); err != nil {
				t.Fatalf("gcc: %v: %s", err, out)
			}
			got, err := os.ReadFile(object)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(local)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the object differs from the local compiler's")
			}
		})
	}
}

func TestParseArgv(t *testing.T) {
	b := parseArgv([]string{"g++", "-O2", "-x", "c++", "-S", "-DX=a b", "-o", "dir/x.s", "-fPIC", "sub/x.ii"}, "y.i")
	if b.Argv0 != "g++" || b.Language != "c++" || b.Name != "x.ii" || strings.Join(b.Args, "|") != "-O2|-DX=a b|-fPIC" ||
		b.Outputs[0].Name != "dir/x.s" || b.Outputs[0].Kind != 1 {
		t.Errorf("got %+v", b)
	}
	if b := parseArgv([]string{"cc", "-c", "a/y.i", "-o", "x.o"}, "y.i"); b.Name != "y.i" || b.Outputs[0].Name != "x.o" || len(b.Args) != 0 {
		t.Errorf("got %+v", b)
	}
}

// TestSubmitSources sends jobs that bring their files: these exist under their names, including links and hard
// links, and what comes back is what the local compiler writes.
func TestSubmitSources(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	dir := farmtest.Dir(t)
	f := farmtest.New(t, dir)
	d, err := f.StartDaemon(t.Context(), "rdistccd-1", "--jobs", "1")
	if err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(dir, "src")
	for name, text := range map[string]string{
		"main.c": "#include \"sub/a.h\"\n#include \"twin.h\"\nint x = A;\n", "sub/a.h": "#define A 7\n", "argv": "gcc\x00-c\x00main.c\x00-Ilink\x00-o\x00main.o\x00",
	} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(src, "sub/a.h"), filepath.Join(src, "twin.h")); err != nil {
		t.Fatal(err)
	}
	object := filepath.Join(dir, "out.o")
	var out, said bytes.Buffer
	code := run(t.Context(), []string{"submit", d.Addr, "--form", "sources", "--argv", filepath.Join(src, "argv"), "--cwd", src,
		"--file", "main.c=" + filepath.Join(src, "main.c"), "--file", "sub/a.h=" + filepath.Join(src, "sub/a.h"), "--file", "twin.h=@2",
		"--link", src + "/link=" + src + "/sub", "--dir", "more", "--output", "object:main.o", "--object", object, "--lang", "c"}, &out, &said)
	if code == exitRefused && strings.Contains(said.String(), "(tree)") {
		need.Skipf(t, need.Sandbox, "no private trees here")
	}
	if code != 0 {
		t.Fatalf("exit %d and %q", code, said.String())
	}
	cmd := exec.CommandContext(t.Context(), "gcc", "-c", "main.c", "-Ilink", "-o", "main.o")
	cmd.Dir = src
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v: %s", err, out)
	}
	got, _ := os.ReadFile(object)
	want, _ := os.ReadFile(filepath.Join(src, "main.o"))
	if len(want) == 0 || !bytes.Equal(got, want) {
		t.Error("the object differs from the local compiler's")
	}
}
