package caches

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/farm"
	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// alone starts a manager without any host that keeps all that runs here.
func alone(t *testing.T) *site {
	t.Helper()
	return aloneWith(t, "cache: {here: true}\n")
}

// aloneWith starts a manager without any host. settings are added to its own.
func aloneWith(t *testing.T, settings string) *site {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the programs and starts a manager")
	}
	part.Skip(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Skipf(t, need.Tools, "no gcc")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	t.Cleanup(cancel)
	f := farmtest.New(t, farmtest.Dir(t))
	s := &site{t, f, ctx, filepath.Join(f.Dir, "work"), filepath.Join(f.Dir, "rdistcc", "results"), "127.0.0.1:1"}
	if err := errors.Join(os.Mkdir(s.work, 0o777), f.Secure(ctx, farm.Security{})); err != nil {
		t.Fatal(err)
	}
	if err := f.AddSettings("farm.yaml", settings); err != nil {
		t.Fatal(err)
	}
	f.Vars = []string{"RDISTCC_CACHE=on", "RDISTCC_HOSTS=", "RDISTCC_VERBOSE=0", "LC_ALL=C"}
	s.startManager()
	return s
}

// twice runs a command that has no result yet, and once more when that is kept.
func (s *site) twice(args ...string) {
	s.Helper()
	n := len(s.kept())
	s.compiles("local:no-hosts", args...)
	s.settle(n + 1)
	s.remove()
	s.compiles("cached:manager", args...)
}

// remove removes the outputs in the working directory.
func (s *site) remove() {
	s.Helper()
	for name := range s.written() {
		if err := os.Remove(name); err != nil {
			s.Fatal(err)
		}
	}
}

// why returns what rdistcc says of a command.
func (s *site) why(file string) string {
	s.Helper()
	cmd, _ := s.command(true, nil, "why", file)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("why: %v\n%s", err, out)
	}
	return string(out)
}

// TestRanHere: what was compiled on this machine because there are no hosts is kept, with its side files and its warnings, and comes
// from the cache the next time, also from that of the next manager. Another text, word or header has another result.
func TestRanHere(t *testing.T) {
	s := alone(t)
	s.write("a.c", "#include \"h.h\"\n#include <stdio.h>\nint f(void) { return puts(\"x\") + H; }\n")
	s.write("inc/h.h", "#define H 1\n")
	s.write("first/other.h", "")
	s.write("warns.c", "int f(void) { int unset; return unset; }\n")
	for _, args := range [][]string{
		{"gcc", "-O1", "-Ifirst", "-Iinc", "-c", "a.c"},
		{"gcc", "-O1", "-g", "-Ifirst", "-Iinc", "-MD", "-c", "a.c", "-o", "b.o"},
		{"gcc", "-S", "-fstack-usage", "-Iinc", "a.c"},
		{"gcc", "-Wall", "-O1", "-c", "warns.c"},
	} {
		s.twice(args...)
	}
	if _, err := exec.LookPath("clang"); err == nil {
		s.twice("clang", "-O1", "-g", "-Ifirst", "-Iinc", "-MMD", "-c", "a.c", "-o", "c.o")
	}
	if why := s.why("a.c"); !strings.Contains(why, " has compiled it itself ") {
		t.Errorf("why: %s", why)
	}
	cc := []string{"gcc", "-O1", "-Ifirst", "-Iinc", "-c", "a.c"}
	s.write("first/h.h", "#define H 3\n") // found sooner
	s.twice(cc...)
	if err := os.Remove(filepath.Join(s.work, "first", "h.h")); err != nil {
		t.Fatal(err)
	}
	s.compiles("cached:manager", cc...)
	s.again()
	s.compiles("cached:manager", cc...)
	s.compilesWith("local:no-hosts", []string{"RDISTCC_CACHE=off"}, cc...)
	s.compilesWith("local:no-hosts", []string{"RDISTCC_CACHE=refresh"}, cc...)
	s.compilesWith("local:mode", []string{"RDISTCC_MODE=local"}, cc...)
}

// TestRanHereNotKept: of a command that failed, has printed on its standard output, or whose result may be another one each time,
// nothing is kept, and that is said.
func TestRanHereNotKept(t *testing.T) {
	s := alone(t)
	s.write("clock.c", "const char *now = __TIME__;\n")
	s.write("fails.c", "int f(void) { return none; }\n")
	s.write("a.c", "int x;\n")
	s.write("h.h", "int h;\n")
	for _, c := range []struct {
		file, why string
		args      []string
	}{
		{"clock.c", "(time)", []string{"gcc", "-c", "clock.c"}},
		{"fails.c", "it failed", []string{"gcc", "-c", "fails.c"}},
		{"a.c", "not written just once", []string{"gcc", "-c", "a.c", "-o", "link.o"}},
	} {
		if c.file == "a.c" {
			if err := os.Symlink("elsewhere.o", filepath.Join(s.work, "link.o")); err != nil {
				t.Fatal(err)
			}
		}
		times := 2
		if c.file == "a.c" {
			times = 1 // the assembler replaces a link that leads to something
		}
		for range times {
			if got := s.run(nil, c.args...); got.where != "local:no-hosts" && !strings.HasPrefix(got.where, "local:not-reproducible") {
				t.Errorf("%s: %s", c.file, got.where)
			}
		}
		if why := s.why(c.file); !strings.Contains(why, "its result is not kept") || !strings.Contains(why, c.why) || strings.Contains(why, "no result of an equal compile") {
			t.Errorf("why: %s", why)
		}
	}
	if n := len(s.kept()); n != 0 {
		t.Errorf("%d results are kept", n)
	}
}

// TestRanHereByDefault: what runs here is kept if the assembler tells that it has read nothing but the compiler's text. Inline assembler
// that has it read a file, however that is spelt, is not kept, and why says so.
func TestRanHereByDefault(t *testing.T) {
	s := aloneWith(t, "")
	s.write("sub/a.c", "#include <stdio.h>\nint f(void) { return puts(\"x\"); }\n")
	s.write("b.cc", "#include <string>\nstd::string s(\"x\");\n")
	for _, args := range [][]string{
		{"gcc", "-O1", "-c", "sub/a.c"},
		{"gcc", "-O2", "-g", "-MMD", "-ffile-prefix-map=" + s.work + "=.", "-c", filepath.Join(s.work, "sub", "a.c"), "-o", "b.o"},
		{"gcc", "-O2", "-pipe", "-frecord-gcc-switches", "-c", "sub/a.c", "-o", "c.o"},
		{"gcc", "-S", "sub/a.c"},
		{"g++", "-O1", "-c", "b.cc"},
	} {
		s.twice(args...)
	}
	n := len(s.kept())
	s.write("incbin.c", "__asm__(\".inc\" \"bin \\\"data.bin\\\"\");\nint v;\n")
	s.write("macro.c", "__asm__(\".macro reads a b\\n.\\\\a\\\\b \\\"data.bin\\\"\\n.endm\\nreads inc,bin\");\nint v;\n")
	s.write("include.c", "__asm__(\".inc\" \"lude \\\"data.s\\\"\");\nint v;\n")
	s.write("section.c", "__attribute__((section(\".rodata\\n.inc\" \"bin \\\"data.bin\\\"\\n#\"))) int v = 1;\n")
	s.write("sub/namesake.c", "__asm__(\".inc\" \"bin \\\"namesake.c\\\"\");\nint v;\n")
	for _, c := range []struct {
		file, data, why string
		args            []string
	}{
		{"incbin.c", "data.bin", "other files", []string{"gcc", "-c", "incbin.c"}},
		{"incbin.c", "data.bin", "other files", []string{"gcc", "-pipe", "-c", "incbin.c"}},
		{"macro.c", "data.bin", "other files", []string{"gcc", "-O1", "-c", "macro.c"}},
		{"include.c", "data.s", "other files", []string{"gcc", "-g", "-c", "include.c"}},
		{"section.c", "data.bin", "other files", []string{"gcc", "-c", "section.c"}},
		{"sub/namesake.c", "namesake.c", "other files", []string{"gcc", "-c", "sub/namesake.c"}},
		{"sub/a.c", "data.bin", "-Wa,-I.", []string{"gcc", "-Wa,-I.", "-c", "sub/a.c", "-o", "d.o"}},
		{"sub/a.c", "data.bin", "cache.here", []string{"clang", "-c", "sub/a.c", "-o", "e.o"}},
	} {
		if _, err := exec.LookPath(c.args[0]); err != nil {
			continue
		}
		for _, text := range []string{".ascii \"one\"\n", ".ascii \"two\"\n"} {
			s.write(c.data, text)
			s.compiles("local", c.args...)
		}
		if why := s.why(c.file); !strings.Contains(why, "its result is not kept") || !strings.Contains(why, c.why) {
			t.Errorf("%v: why: %s", c.args, why)
		}
		if got := len(s.kept()); got != n {
			t.Errorf("%v: %d results are kept, want %d as before", c.args, got, n)
			n = got
		}
	}
}

// TestRanHereNever: with cache.here: false nothing that runs here is kept.
func TestRanHereNever(t *testing.T) {
	s := aloneWith(t, "cache: {here: false}\n")
	s.write("a.c", "int v;\n")
	for range 2 {
		s.compiles("local:no-hosts", "gcc", "-c", "a.c")
	}
	if n := len(s.kept()); n > 0 {
		t.Errorf("%d results are kept", n)
	}
	if why := s.why("a.c"); !strings.Contains(why, "its result is not kept") || !strings.Contains(why, "cache.here") {
		t.Errorf("why: %s", why)
	}
}

// TestRanHereMeanwhile: a result is not kept if what it was made of was another thing for a moment, or if its output was written by
// another compiler as well, although everything is as before when it ends.
func TestRanHereMeanwhile(t *testing.T) {
	part.Skip(t)
	for name, c := range map[string]struct {
		disturb func(s *site) error
		why     string
	}{
		"a header": {func(s *site) error {
			h := filepath.Join(s.work, "inc", "h.h")
			return errors.Join(os.WriteFile(h, []byte("#define H 2\n"), 0o666), os.WriteFile(h, []byte("#define H 1\n"), 0o666))
		}, "changed while it ran"},
		"a header that is found sooner": {func(s *site) error {
			h := filepath.Join(s.work, "first", "h.h")
			return errors.Join(os.WriteFile(h, []byte("#define H 2\n"), 0o666), os.Remove(h))
		}, "changed while it ran"},
		"a directory": {func(s *site) error {
			in := filepath.Join(s.work, "inc")
			return errors.Join(os.Rename(in, in+"2"), os.Rename(in+"2", in))
		}, "changed while it ran"},
		"its object": {func(s *site) error {
			o := filepath.Join(s.work, "slow.o")
			return errors.Join(os.WriteFile(o+".tmp", []byte("object"), 0o666), os.Rename(o+".tmp", o))
		}, "written just once"},
	} {
		t.Run(name, func(t *testing.T) {
			s := alone(t)
			s.write("inc/h.h", "#define H 1\n")
			if err := os.Mkdir(filepath.Join(s.work, "first"), 0o777); err != nil {
				t.Fatal(err)
			}
			s.write("slow.cc", "#include \"h.h\"\nint h = H;\n"+slow(1))
			done := make(chan ran)
			go func() {
				done <- s.run(nil, "g++", "-Ifirst", "-Iinc", "-fconstexpr-ops-limit=1000000000", "-fconstexpr-loop-limit=10000000", "-c", "slow.cc")
			}()
			times := 0
			for ended := false; !ended; {
				select {
				case got := <-done:
					ended = true
					if got.status == 0 && got.where != "local:no-hosts" {
						t.Errorf("%+v", got)
					}
				case <-time.After(20 * time.Millisecond):
					// The manager has to find it as it is in between, or it knows of none anyway.
					if err := c.disturb(s); err != nil {
						t.Fatal(err)
					}
					times++
				}
			}
			if n := len(s.kept()); n != 0 || times < 2 {
				t.Errorf("%d results are kept, after %d changes", n, times)
			}
			if why := s.why("slow.cc"); !strings.Contains(why, "is not kept") {
				t.Errorf("why: %s", why)
			} else if !strings.Contains(why, c.why) {
				t.Logf("why: %s", why) // it may have been found before the compile began, or have made it fail
			}
		})
	}
}

// TestRanHereBesideHosts: what ran here although there are hosts, because none was to be had, is kept too.
func TestRanHereBesideHosts(t *testing.T) {
	s := start(t, "cache: {here: true}\n")
	s.Vars = append(s.Vars, "RDISTCC_MODE=auto", "RDISTCC_VERBOSE=0")
	s.write("a.c", "int x;\n")
	s.write("b.c", "int y;\n")
	s.compiles("remote", "gcc", "-c", "a.c")
	s.settle(1)
	if err := s.Daemons[0].Stop(); err != nil {
		t.Fatal(err)
	}
	s.compiles("local", "gcc", "-O1", "-g", "-c", "b.c")
	s.settle(2)
	s.compiles("cached:manager", "gcc", "-O1", "-g", "-c", "b.c")
	s.compiles("cached:manager", "gcc", "-c", "a.c")
}

// TestRanHereTerminal: on a terminal, the compiler finds a terminal of the same size, and what it prints comes through as it is.
// A result is kept if it has printed nothing.
func TestRanHereTerminal(t *testing.T) {
	script, err := exec.LookPath("script")
	if err != nil {
		need.Skipf(t, need.Tools, "no script(1)")
	}
	s := alone(t)
	s.write("a.c", "int x;\n")
	s.write("warns.c", "int f(void) { int unset; return unset; }\n")
	on := func(wrapped bool, args string) string {
		t.Helper()
		with := ""
		if wrapped {
			with = s.Wrapper + " "
		}
		cmd := exec.CommandContext(s.ctx, script, "-qec", "stty cols 60; "+with+args, "/dev/null")
		cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work, "TERM=xterm", "RDISTCC_VERBOSE=0", "RDISTCC_REPORT="+filepath.Join(s.Dir, "where"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", args, err, out)
		}
		return string(out)
	}
	on(true, "gcc -c a.c")
	s.settle(1)
	on(true, "gcc -c a.c")
	if where, _ := os.ReadFile(filepath.Join(s.Dir, "where")); !strings.HasSuffix(string(where), "cached:manager\n") {
		t.Errorf("the second one: %s", where)
	}
	want := on(false, "gcc -Wall -O1 -c warns.c")
	if got := on(true, "gcc -Wall -O1 -c warns.c"); got != want || !strings.Contains(got, "\x1b[") {
		t.Errorf("on a terminal it printed %q, want %q", got, want)
	}
	if n := len(s.kept()); n != 1 {
		t.Errorf("%d results are kept", n)
	}
	if why := s.why("warns.c"); !strings.Contains(why, "printed something on a terminal") {
		t.Errorf("why: %s", why)
	}
}
