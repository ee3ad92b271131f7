package caches

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// compilers calls each with the compilers of C that are installed.
func compilers(t *testing.T, each func(t *testing.T, cc string)) {
	part.Skip(t)
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			if _, err := exec.LookPath(cc); err != nil {
				need.Skipf(t, need.Tools, "no %s", cc)
			}
			each(t, cc)
		})
	}
}

// second returns how many hits were found by the second step.
func (s *site) second() float64 {
	s.Helper()
	return s.metric(s.Manager, `rdistcc_cm_cache_total{result="second",tier="manager"}`)
}

// steps runs a compile as compiles does. want is "remote", "first" or "second": the step that finds its result.
func (s *site) steps(want string, args ...string) {
	s.Helper()
	before, kept := s.second(), len(s.kept())
	where := "cached:manager"
	if want == "remote" {
		where = want
	}
	s.compiles(where, args...)
	got := "first"
	if s.second() > before {
		got = "second"
	}
	if where != "remote" && got != want {
		s.Errorf("%s: found by the %s step, want the %s", strings.Join(args, " "), got, want)
	}
	if want != "first" {
		s.settle(kept + 1) // the second step keeps a copy under the compile's own name
	}
}

// TestSecondStep: a change to what a compile did not read costs no compile, and a change to anything that it could notice does.
func TestSecondStep(t *testing.T) { compilers(t, secondStep) }

func secondStep(t *testing.T, cc string) {
	s := start(t, "")
	for name, text := range map[string]string{
		"a.c": "#include \"a.h\"\n#ifdef OTHER\n#include <other.h>\n#endif\n#if __has_include(<asked.h>)\nint asked;\n#endif\n" +
			"int f(void) { int unused; return A; }\n",
		"inc/a.h":      "#define A 1\n",
		"late/other.h": "#define OTHER 1\n",
		"late/asked.h": "int asked1;\n",
		"inc/.keep":    "",
	} {
		s.write(name, text)
	}
	cmd := []string{cc, "-O2", "-g", "-Wall", "-MD", "-MP", "-Iinc", "-Ilate", "-c", "a.c", "-o", "a.o"}
	s.steps("remote", cmd...)
	s.wait("a manifest", func() bool { return len(s.manifests()) == 1 })
	s.steps("first", cmd...)
	s.write("late/other.h", "#define OTHER 2\n")
	s.steps("second", cmd...)
	s.steps("first", cmd...) // there is a copy now
	if cc == "gcc" {         // clang's rules name it
		s.write("late/asked.h", "int asked2;\n")
		s.steps("second", cmd...)
	}
	s.again()
	s.write("late/other.h", "#define OTHER 3\n")
	s.steps("second", cmd...)

	s.write("inc/a.h", "#define A 2\n") // it was read
	s.steps("remote", cmd...)
	s.write("late/other.h", "#define OTHER 4\n")
	s.steps("second", cmd...)
	s.write("inc/a.h", "#define A 1\n") // as it was, with the other one as it was not
	s.steps("second", cmd...)
	s.write("inc/other.h", "#define OTHER 4\n") // it comes first
	s.steps("remote", cmd...)
	s.write("inc/other.h", "#define OTHER 5\n")
	s.steps("second", cmd...)
	s.write("late/other.h", "#include \"further.h\"\n") // not found any more, so not part of the inputs
	s.steps("first", cmd...)
	if err := os.Remove(filepath.Join(s.work, "inc/other.h")); err != nil {
		t.Fatal(err)
	}
	s.write("late/further.h", "int further;\n")
	s.steps("remote", cmd...) // names count, wherever they come from
	s.write("late/further.h", "int further1;\n")
	s.steps("second", cmd...)
	if err := os.Remove(filepath.Join(s.work, "late/asked.h")); err != nil {
		t.Fatal(err)
	}
	s.steps("remote", cmd...)
	s.steps("remote", append(slices.Clone(cmd), "-DOTHER")...) // it is read now
	s.write("late/further.h", "int further2;\n")
	s.steps("remote", append(slices.Clone(cmd), "-DOTHER")...)
	s.steps("second", cmd...)
	s.write("a.c", "#include \"a.h\"\n#ifdef OTHER\n#include <other.h>\n#endif\nint g(void) { return A; }\n")
	s.steps("remote", cmd...)

	for _, c := range [][]string{{"cache", "stats"}, {"why", "a.c"}} {
		s.steps("first", cmd...)
		if c[0] == "why" {
			s.write("late/further.h", "int further3;\n")
			s.steps("second", cmd...)
		}
		control := exec.CommandContext(s.ctx, s.Wrapper, c...)
		control.Dir, control.Env = s.work, s.Env()
		out, err := control.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "what differs had not been read") {
			t.Errorf("rdistcc %v: %v\n%s", c, err, out)
		}
	}
}

// TestReadOtherwise: what rules for make do not name although the compile reads it, or may quote it, counts as read.
func TestReadOtherwise(t *testing.T) { compilers(t, readOtherwise) }

func readOtherwise(t *testing.T, cc string) {
	s := start(t, "")
	for i, c := range []struct {
		name  string
		files map[string]string
		args  []string // besides -MD -c a.c
		read  map[string]string
		gcc   bool // of gcc only
		clang bool // of clang only
		never bool // nothing counts as unread
	}{
		{name: "data of the assembler's", files: map[string]string{"a.c": "asm(\".incbin \\\"x.h\\\"\");\n#ifdef NO\n#include \"x.h\"\n#include \"no.h\"\n#endif\n", "x.h": "int x;\n"},
			read: map[string]string{"x.h": "int y;\n"}},
		{name: "a file that the assembler includes", files: map[string]string{"a.c": "asm(\".include \\\"x.s\\\"\");\n#ifdef NO\n#include \"x.s\"\n#include \"no.h\"\n#endif\n", "x.s": ".byte 1\n"},
			read: map[string]string{"x.s": ".byte 2\n"}},
		{name: "a file that a message quotes", files: map[string]string{"a.c": "int f(void) {\n#line 1 \"x.h\"\nint unused; return 0; }\n#ifdef NO\n#include \"x.h\"\n#include \"no.h\"\n#endif\n", "x.h": "int x;\n"},
			args: []string{"-Wall"}, read: map[string]string{"x.h": "int another;\n"}},
		{name: "a macro file", files: map[string]string{"a.c": "int a = X;\n#ifdef NO\n#include \"no.h\"\n#include \"x.h\"\n#endif\n", "x.h": "#define X 1\n"},
			args: []string{"-imacros", "x.h"}, read: map[string]string{"x.h": "#define X 2\n"}},
		{name: "a twin of a header that is read once", gcc: true, files: map[string]string{
			"a.c": "#include \"one.h\"\n#include \"x.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint b = N;\n", "one.h": "#pragma once\n#define N 1\n", "x.h": "#pragma once\n#define N 1\n"},
			read: map[string]string{"x.h": "#pragma once\n#undef N\n#define N 2\n"}},
		{name: "a twin of a header that is imported, and was only looked for", gcc: true, files: map[string]string{
			"a.c": "#if __has_include(\"one.h\")\n#import \"x.h\"\n#endif\n#ifdef NO\n#include \"no.h\"\n#endif\n#ifdef N\nint b = N;\n#endif\n", "one.h": "#define N 1\n", "x.h": "#define N 1\n"},
			args: []string{"-Wno-deprecated"}, read: map[string]string{"x.h": "#define N 2\n"}},
		{name: "a header that -MMD leaves out", files: map[string]string{"a.c": "#include <x.h>\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "sys/x.h": "#define X 1\n"},
			args: []string{"-MMD", "-isystem", "sys"}, read: map[string]string{"sys/x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, as a system header includes it", never: true, files: map[string]string{
			"a.c": "#include <s.h>\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "sys/s.h": "#include <x.h>\n", "inc/x.h": "#define X 1\n"},
			args: []string{"-MMD", "-Iinc", "-isystem", "sys"}, read: map[string]string{"inc/x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, as it calls itself a system header", never: true, files: map[string]string{
			"a.c": "#include \"s.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "s.h": "#pragma GCC system_header\n#include \"x.h\"\n", "x.h": "#define X 1\n"},
			args: []string{"-MMD"}, read: map[string]string{"x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, by the flag of a line", never: true, files: map[string]string{
			"a.c": "# 1 \"a.c\" 3\n#include \"x.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "x.h": "#define X 1\n"},
			args: []string{"-MMD"}, read: map[string]string{"x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, by the flag of a line that is spelt otherwise", never: true, files: map[string]string{
			"a.c": "/**/ %:/**/1 \"a.c\" 3\n#include \"x.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "x.h": "#define X 1\n"},
			args: []string{"-MMD"}, read: map[string]string{"x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, by the beginning of its name", clang: true, never: true, files: map[string]string{
			"a.c": "#include <sys/x.h>\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "inc/sys/x.h": "#define X 1\n"},
			args: []string{"-MMD", "-Iinc", "--system-header-prefix=sys/"}, read: map[string]string{"inc/sys/x.h": "#define X 2\n"}},
		{name: "a header that -MMD leaves out, by a macro of the command", clang: true, never: true, files: map[string]string{
			"a.c": "#include \"s.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint a = X;\n", "s.h": "P\n#include \"x.h\"\n", "x.h": "#define X 1\n"},
			args: []string{"-MMD", "-DP=_Pragma(\"GCC system_header\")"}, read: map[string]string{"x.h": "#define X 2\n"}},
	} {
		if c.gcc && cc != "gcc" || c.clang && cc != "clang" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			s.T, s.work = t, filepath.Join(s.Dir, "work", strconv.Itoa(i))
			s.write("no.h", "int no;\n")
			second := time.Now()
			for name, text := range c.files {
				s.write(name, text)
				if err := os.Chtimes(filepath.Join(s.work, name), second, second); err != nil { // so that twins have the same time
					t.Fatal(err)
				}
			}
			cmd := append([]string{cc, "-c", "a.c"}, c.args...)
			if !slices.Contains(cmd, "-MMD") {
				cmd = append(cmd, "-MD")
			}
			lists := len(s.manifests())
			s.steps("remote", cmd...)
			object, err := os.ReadFile(filepath.Join(s.work, "a.o"))
			if err != nil {
				t.Fatal(err)
			}
			s.write("no.h", "int no1;\n")
			if c.never {
				s.steps("remote", cmd...)
			} else {
				s.wait("a manifest", func() bool { return len(s.manifests()) > lists })
				s.steps("second", cmd...)
			}
			for name, text := range c.read {
				s.write(name, text)
				if err := os.Chtimes(filepath.Join(s.work, name), second, second); err != nil {
					t.Fatal(err)
				}
			}
			s.steps("remote", cmd...)
			changed, err := os.ReadFile(filepath.Join(s.work, "a.o"))
			if err != nil || bytes.Equal(object, changed) && !strings.Contains(c.name, "message") {
				t.Errorf("the change makes no difference: %v", err) // or the test proves nothing
			}
		})
	}
}

// unread writes a source with a header that it reads and one that it does not, and returns the command for it.
func (s *site) unread() []string {
	s.Helper()
	s.write("a.c", "#include \"a.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint f(void) { return A; }\n")
	s.write("a.h", "#define A 1\n")
	s.write("no.h", "int no;\n")
	return []string{"gcc", "-O2", "-MD", "-c", "a.c"}
}

// listed waits until there are n manifests.
func (s *site) listed(n int) {
	s.Helper()
	s.wait("manifests", func() bool { return len(s.manifests()) == n })
}

// TestSecondStepFromOthers: a result that came from a host leads to hits by the second step too. RDISTCC_CACHE and shared
// directories count.
func TestSecondStepFromOthers(t *testing.T) {
	s := start(t, "cache: {farm: true}\n")
	cmd := s.unread()
	s.steps("remote", cmd...)
	s.listed(1)
	s.forget()
	s.compiles("cached:farm", cmd...)
	s.listed(1)
	s.settle(1)
	s.write("no.h", "int no1;\n")
	s.steps("second", cmd...)

	s.write("no.h", "int no2;\n")
	s.compilesWith("remote", []string{"RDISTCC_CACHE=refresh"}, cmd...)
	s.settle(3)
	s.write("no.h", "int no3;\n")
	before := s.second()
	s.compilesWith("cached:manager", []string{"RDISTCC_CACHE=read"}, cmd...)
	if n := s.second() - before; n != 1 {
		t.Errorf("%v hits by the second step where results are only looked up", n)
	}

	// What is shared between directories has a second step too, and no copy under the name of this one.
	s.settle(4)
	s.write("a.c", "#include \"a.h\"\n#ifdef NO\n#include \"no.h\"\n#endif\nint g(void) { return A; }\n")
	base := []string{"RDISTCC_BASE_DIR=" + s.work}
	s.compilesWith("remote", base, cmd...)
	s.settle(5)
	s.listed(2)
	s.write("no.h", "int no4;\n")
	before = s.second()
	s.compilesWith("cached:manager", base, cmd...)
	s.compilesWith("cached:manager", base, cmd...)
	if n := s.second() - before; n != 2 {
		t.Errorf("%v hits by the second step of what is shared", n)
	}
	s.settle(5)
}

// TestDamagedManifests: a damaged manifest, or one that leads nowhere, costs hits and nothing else.
func TestDamagedManifests(t *testing.T) {
	s := start(t, "")
	cmd := s.unread()
	s.steps("remote", cmd...)
	s.listed(1)
	name, entry := s.manifests()[0], s.kept()[0]
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	result, err := os.ReadFile(entry)
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range [][]byte{whole[:len(whole)/2], {}, bytes.Repeat([]byte("something else "), 100), result} {
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		s.write("no.h", fmt.Sprintf("int no%d;\n", i))
		s.steps("remote", cmd...)
		if n := s.metric(s.Manager, `rdistcc_cm_cache_total{result="error",tier="manager"}`); n != float64(i+1) {
			t.Errorf("%d: %v errors counted", i, n)
		}
		s.wait("the manifest to be kept anew", func() bool { b, err := os.ReadFile(name); return err == nil && len(b) == len(whole) })
		s.write("no.h", fmt.Sprintf("int another%d;\n", i))
		s.steps("second", cmd...)
	}
	for _, name := range s.kept() {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	s.write("no.h", "int leads_nowhere;\n")
	s.steps("remote", cmd...)

	verify, _ := s.command(true, nil, "cache", "verify")
	if out, err := verify.CombinedOutput(); err != nil || !strings.Contains(string(out), "1 manifest") {
		t.Errorf("%v: %s", err, out)
	}
	if err := os.WriteFile(name, whole[1:], 0o600); err != nil {
		t.Fatal(err)
	}
	verify, _ = s.command(true, nil, "cache", "verify")
	if out, err := verify.CombinedOutput(); err == nil || len(s.manifests()) != 0 {
		t.Errorf("%v: %s", err, out)
	}
}
