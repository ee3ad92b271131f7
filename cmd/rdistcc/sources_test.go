package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// treeManager returns the manager of a farm whose hosts show trees.
func treeManager(t *testing.T) *testManager {
	m := newTestManager(t)
	m.tree = true
	return m
}

// fileNames are those of the last body.
func (m *testManager) fileNames() []string {
	m.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.bodies) == 0 {
		m.t.Fatal("no job came")
	}
	var names []string
	for _, f := range m.bodies[len(m.bodies)-1].Files {
		names = append(names, f.Name)
	}
	return names
}

// TestSourcesForm: objects, side files, words and status are those of the compiler here,
// and nothing ran here but the run that lists the files.
func TestSourcesForm(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			t.Logf("%s is not installed", cc)
			continue
		}
		m := treeManager(t)
		b := m.bench()
		b.write("a header.h", "#pragma once\n#define P(x) puts(x)\n")
		b.write("x.c", "#include <stdio.h>\n#include \"a header.h\"\nint main(void) { int unused; P(\"hello\"); return 0; }\n")
		b.write("bad.c", "#include <stdio.h>\nint f(void) { return undeclared; }\n")
		for _, c := range []struct{ words, files string }{
			{"-O2 -g -c x.c", "x.o"},
			{"-O2 -g -Wall -Wextra -c x.c -o w.o", "w.o"},
			{"-O0 -MMD -MP -c x.c -o d.o", "d.o d.d"},
			{"-S x.c", "x.s"},
			{"-c bad.c", ""},
		} {
			args := strings.Fields(c.words)
			files := strings.Fields(c.files)
			got := b.run(append([]string{rdistcc, cc}, args...)...)
			var made []string
			for _, f := range files {
				made = append(made, b.read(f))
				_ = os.Remove(b.path(f)) // or the run below says so
			}
			want := b.run(append([]string{cc}, args...)...)
			if got != want {
				t.Errorf("%s %s: %+v\nwant %+v", cc, c.words, got, want)
			}
			for i, f := range files {
				if made[i] != b.read(f) {
					t.Errorf("%s %s: %s differs", cc, c.words, f)
				}
			}
			if got := b.read("report"); got != "remote:farm:7632\n" {
				t.Errorf("%s %s: report %q", cc, c.words, got)
			}
			if !slices.Contains(m.fileNames(), "/usr/include/stdio.h") {
				t.Errorf("%s: packed %q", c.words, m.fileNames())
			}
			_ = os.Remove(b.path("report")) // it was read
		}
	}
}

// TestSourcesFormWithoutDriver: cc1 lists the files by itself where the manager knows
// its words.
func TestSourcesFormWithoutDriver(t *testing.T) {
	m := treeManager(t)
	m.driver, _ = exec.LookPath("gcc")
	b := m.bench()
	b.write("x.c", hello)
	b.wants(b.run(rdistcc, "gcc", "-O2", "-MMD", "-I.", "-c", "x.c"), 0, "")
	b.reported("remote:farm:7632")
	b.wants(b.run("gcc", "-O2", "-MMD", "-I.", "-c", "x.c", "-o", "l.o"), 0, "")
	if b.read("x.o") != b.read("l.o") {
		t.Error("the object differs")
	}
}

// TestTextOnAFarmWithTrees: what does not travel as sources is preprocessed, and what would
// list its files is not taken for the preprocessor.
func TestTextOnAFarmWithTrees(t *testing.T) {
	m := treeManager(t)
	m.driver, _ = exec.LookPath("gcc")
	b := m.bench()
	b.write("x.c", hello)
	b.wants(b.run(rdistcc, "gcc", "-c", "x.c", "-o", "/dev/null"), 0, "")
	b.reported("remote:farm:7632")
	if body := m.bodies[0]; len(body.Files) != 0 {
		t.Errorf("files %+v", body.Files)
	}
}

// TestPrecompiledHeadersAreTold: the manager is told which precompiled header a compile may find, and knows whether hosts can make it.
func TestPrecompiledHeadersAreTold(t *testing.T) {
	m := treeManager(t)
	b := m.bench()
	b.write("x.c", "#include \"pch.h\"\n")
	b.write("pch.h", "int p;\n")
	b.write("pch.h.gch", "not really")
	b.run(rdistcc, "gcc", "-c", "x.c")
	if len(m.submits) != 1 || !slices.Equal(m.submits[0].Images, []string{"pch.h.gch"}) {
		t.Errorf("%+v, want one job with pch.h.gch", m.submits)
	}
}

// TestWhatKeepsSourcesHere: what cannot be packed runs here, once, with its own words.
func TestWhatKeepsSourcesHere(t *testing.T) {
	for name, c := range map[string]struct {
		words, text, reason string
	}{
		"missing header":    {"-c x.c", "#include \"none.h\"\n", "diagnostics"},
		"error":             {"-c x.c", "#error no\n", "diagnostics"},
		"missing source":    {"-c y.c", "", "diagnostics"},
		"missing directory": {"-c x.c -o none/x.o", "int x;\n", "diagnostics"},
		"time":              {"-c x.c", "char *t = __TIME__;\n", "not-reproducible:time"},
		"unclear include":   {"-c x.c", "#define H \"x.h\"\n#if __has_include(H)\n#endif\n", "not-reproducible:has-include"},
		"unclear incbin":    {"-S x.c -DF=\"y\"", "asm(\".incbin \\\"\" F \"\\\"\");\n", "not-reproducible:incbin"},
		"precompiled":       {"-c x.c", "#include \"dir.h\"\n", "not-reproducible:pch"},
	} {
		m := treeManager(t)
		b := m.bench()
		b.write("x.c", c.text)
		b.write("dir.h", "int p;\n")
		if err := os.Mkdir(b.path("dir.h.gch"), 0o777); err != nil { // gcc tries all files of it
			t.Fatal(err)
		}
		args := append([]string{"gcc"}, strings.Fields(c.words)...)
		got := b.run(append([]string{rdistcc}, args...)...)
		_ = os.Remove(b.path("x.o")) // there need not be one
		if want := b.run(args...); got != want {
			t.Errorf("%s: %+v\nwant %+v", name, got, want)
		}
		b.reported("local:" + c.reason)
		if len(m.submits) != 0 {
			t.Errorf("%s: a job was sent", name)
		}
	}
}

// TestFilesThatNoListHas: such files travel too, or the compile on the host would differ.
func TestFilesThatNoListHas(t *testing.T) {
	m := treeManager(t)
	b := m.bench()
	if err := os.Mkdir(b.path("inc"), 0o777); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"seen.h": "", "inc/far.h": "", "data.bin": "data", "inc/more.bin": "more", "grammar.y": "%%\n",
		"x.c": "#if __has_include(\"seen.h\") && __has_include(<far.h>) && !__has_include(\"unseen.h\")\n" +
			"asm(\".incbin \\\"data.bin\\\"\\n.incbin \\\"more.bin\\\"\");\n#line 7 \"grammar.y\"\nint f(void) { int unused; return 1; }\n#else\n#error\n#endif\n",
	} {
		b.write(name, text)
	}
	b.wants(b.run(rdistcc, "gcc", "-Wall", "-Iinc", "-c", "x.c"), 0, "grammar.y:7:")
	b.reported("remote:farm:7632")
	for _, name := range []string{"seen.h", "inc/far.h", "data.bin", "inc/more.bin", "grammar.y"} {
		if !slices.Contains(m.fileNames(), name) {
			t.Errorf("%s is not among %q", name, m.fileNames())
		}
	}
}

// TestChangedWhileListed: a header that changes while the files are listed makes the list
// worthless. A compiler that is slow enough is a script.
func TestChangedWhileListed(t *testing.T) {
	m := treeManager(t)
	b := m.bench()
	b.write("x.c", "#include \"x.h\"\n")
	b.write("x.h", "int x;\n")
	b.write("gcc", "#!/bin/sh\ncase $1 in -M|-E) sleep 0.1; echo 'int y;' >>x.h;; esac\nexec /usr/bin/gcc \"$@\"\n")
	if err := os.Chmod(b.path("gcc"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.wants(b.run(rdistcc, b.path("gcc"), "-c", "x.c"), 0, "")
	b.reported("local:not-reproducible:changed")
}

// TestWorkingDirectoryThroughLinks: the compiler gets the directory's name as the shell has it, and the tree has the
// link.
func TestWorkingDirectoryThroughLinks(t *testing.T) {
	m := treeManager(t)
	b := m.bench()
	if err := os.Mkdir(b.path("real"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("real", b.path("link")); err != nil {
		t.Fatal(err)
	}
	b.write("real/x.c", "int x;\n")
	cmd := b.cmd(rdistcc, "gcc", "-g", "-c", "x.c")
	cmd.Dir = b.path("link")
	cmd.Env = append(cmd.Env, "PWD="+b.path("link"))
	b.wants(b.finish(cmd), 0, "")
	b.reported("remote:farm:7632")
	real, err := filepath.EvalSymlinks(b.path("real"))
	if err != nil {
		t.Fatal(err)
	}
	body := m.bodies[0]
	if body.Cwd != b.path("link") || len(body.Links) != 1 || body.Links[0].Name != b.path("link") || body.Links[0].Target != real {
		t.Errorf("working directory %q, links %+v", body.Cwd, body.Links)
	}
	if !slices.Contains(body.Env, "PWD="+b.path("link")) {
		t.Errorf("environment %q", body.Env)
	}
}

// TestWordsOfTheHost: they stand, except where a failure may be the host's own, where
// they depend on what this end is, or in the text form.
func TestWordsOfTheHost(t *testing.T) {
	const warning = "x.c:1:1: warning: what the host says\n"
	for name, c := range map[string]struct {
		exit   uint8
		stderr string
		text   string
		env    string
		fast   bool
		plain  bool // a farm without trees
		stands bool
	}{
		"warning":             {0, warning, "int x;\n", "", false, false, true},
		"error":               {1, "x.c:1:1: error: no\n", "int x;\n", "", false, false, true},
		"status alone":        {3, "", "int x;\n", "", false, false, true},
		"missed a file":       {1, "x.c:1:1: fatal error: x.h: No such file or directory\n", "int x;\n", "", false, false, false},
		"crashed":             {1, "x.c:1:1: internal compiler error: in f\n", "int x;\n", "", false, false, false},
		"crashed, fast":       {1, "x.c:1:1: internal compiler error: in f\n", "int x;\n", "", true, false, false},
		"assembler":           {1, "/tmp/cc.s: Assembler messages:\n", "int x;\n", "", false, false, false},
		"unknown lines":       {0, warning, "#define F \"y.c\"\n#line 3 F\nint x;\n", "", false, false, false},
		"unknown lines, fast": {0, warning, "#define F \"y.c\"\n#line 3 F\nint x;\n", "", true, false, true},
		"other language":      {0, warning, "int x;\n", "LC_ALL=de_DE.UTF-8", false, false, false},
		"no such locale":      {0, "warning: 'x'\n", "int x;\n", "LC_ALL=en_XX.UTF-8", false, false, true},
		"quotation marks":     {0, "warning: ‘x’\n", "int x;\n", "LC_ALL=en_XX.UTF-8", false, false, false},
		"cut":                 {0, warning + capture.Note(1<<20), "int x;\n", "", false, false, false},
		"cut, fast":           {0, warning + capture.Note(1<<20), "int x;\n", "", true, false, true},
		"text":                {0, warning, "int x;\n", "", false, true, false},
		"text, fast":          {0, warning, "int x;\n", "", true, true, true},
	} {
		m := treeManager(t)
		m.tree, m.fast = !c.plain, c.fast
		m.speaks = &spoken{c.exit, c.stderr}
		env := []string{}
		if c.env != "" {
			env = append(env, c.env)
		}
		b := m.bench(env...)
		b.write("x.c", c.text)
		o := b.run(rdistcc, "gcc", "-c", "x.c")
		if c.stands {
			if got := b.read("report"); got != "remote:farm:7632\n" {
				t.Errorf("%s: report %q", name, got)
			}
			if o.code != int(c.exit) || o.stderr != c.stderr {
				t.Errorf("%s: %+v", name, o)
			}
			continue
		}
		if got := b.read("report"); got != "local:diagnostics\n" || o.code != 0 || o.stderr != "" {
			t.Errorf("%s: %+v, report %q", name, o, got)
		}
	}
}

// TestFailedCompileLeavesWhatTheCompilerLeaves: an old object stays with gcc, and goes
// with clang.
func TestFailedCompileLeavesWhatTheCompilerLeaves(t *testing.T) {
	for _, cc := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			t.Logf("%s is not installed", cc)
			continue
		}
		m := treeManager(t)
		m.speaks = &spoken{1, "x.c:1: error: no\n"}
		b := m.bench()
		b.write("x.c", "int f(void) { return none; }\n")
		for _, run := range [][]string{{cc}, {rdistcc, cc}} {
			b.write("x.o", "old")
			b.wants(b.run(append(run, "-c", "x.c")...), 1, "error")
			_, err := os.Stat(b.path("x.o"))
			if (err == nil) != (cc == "gcc") {
				t.Errorf("%q: old object: %v", run, err)
			}
		}
	}
}

// TestSourcesNeedATree: the manager learns that text will not do.
func TestSourcesNeedATree(t *testing.T) {
	m := newTestManager(t)
	m.onLease = func(l *ipc.Lease) *ipc.GoLocal {
		if !l.NeedTree || l.Language != "c" {
			t.Errorf("lease %+v", l)
		}
		return &ipc.GoLocal{Reason: "not-reproducible:paths"}
	}
	b := m.bench()
	b.write("x.c", "int x;\n")
	b.wants(b.run(rdistcc, "gcc", "-g", "-gsplit-dwarf", "-c", "x.c"), 0, "")
	b.reported("local:not-reproducible:paths")
}

// TestManyFiles: the list is longer than a pipe holds.
func TestManyFiles(t *testing.T) {
	m := treeManager(t)
	b := m.bench()
	dir := "a-long-name-of-a-directory-" + strings.Repeat("x", 100)
	if err := os.Mkdir(b.path(dir), 0o777); err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	const n = 1000
	for i := range n {
		name := dir + "/" + strconv.Itoa(i) + ".h"
		b.write(name, "int x"+strconv.Itoa(i)+";\n")
		source.WriteString("#include \"" + name + "\"\n")
	}
	b.write("x.c", source.String())
	b.wants(b.run(rdistcc, "gcc", "-c", "x.c"), 0, "")
	b.reported("remote:farm:7632")
	if got := len(m.fileNames()); got < n+1 {
		t.Errorf("%d files", got)
	}
}

// TestOnATerminal: where exact messages are required they come from here, with the terminal's width;
// otherwise the host's compiler is told to colour them.
func TestOnATerminal(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		t.Skip("script is not installed")
	}
	for _, fast := range []bool{false, true} {
		m := treeManager(t)
		m.fast = fast
		b := m.bench("TERM=xterm")
		b.write("x.c", "int f(void) { int unused; return 0; }\n")
		o := b.run(script, "-qec", rdistcc+" gcc -Wall -c x.c", "log")
		if o.code != 0 || !strings.Contains(o.stdout, "\x1b[") || strings.Count(o.stdout, "warning") != 1 {
			t.Errorf("fast %v: %+v", fast, o)
		}
		if fast {
			b.reported("remote:farm:7632")
		} else {
			b.reported("local:diagnostics")
		}
		for _, name := range []string{"x.o", "report"} {
			_ = os.Remove(b.path(name)) // the next run recreates them
		}
		b.wants(b.run(script, "-qec", rdistcc+" gcc -c x.c", "log"), 0, "")
		b.reported("remote:farm:7632") // nothing to say
	}
}

// What a terminal puts into the environment must not have a host refuse the job.
func TestEnvironmentThatGoes(t *testing.T) {
	env := []string{"LC_TERMINAL_VERSION=3.4", "LC_my=x", "LANG=C", "LC_CTYPE=C.UTF-8", "LANG", "PWD=/w", "PWD=/other", "CPATH=/i", "SOURCE_DATE_EPOCH=1", "HOME=/h"}
	if got, want := typed.TreeEnv(env, "/w", false), []string{"LANG=C", "LC_CTYPE=C.UTF-8", "PWD=/w", "CPATH=/i", "SOURCE_DATE_EPOCH=1"}; !slices.Equal(got, want) {
		t.Errorf("with sources: %q, want %q", got, want)
	}
	if got, want := remoteEnv(env), []string{"LANG=C", "LC_CTYPE=C.UTF-8", "SOURCE_DATE_EPOCH=1"}; !slices.Equal(got, want) {
		t.Errorf("with text: %q, want %q", got, want)
	}
}
