package toolchains

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// program writes the sources of a program of n units that call one another, and returns their names.
func (s *site) program(n int) (sources []string) {
	for i := range n {
		name := fmt.Sprintf("unit%d.c", i)
		s.write(name, fmt.Sprintf("int f%[2]d(int);\nstatic int table%[1]d[64];\nint f%[1]d(int x) { table%[1]d[x & 63] += x * %[1]d; return x > 90 ? table%[1]d[x & 7] : f%[2]d(x + %[1]d + 1); }\n", i, (i+1)%n))
		sources = append(sources, name)
	}
	s.write("main.c", "int f0(int);\nint main(int argc, char **argv) { return f0(argc) & 1; }\n"+s.more)
	return append(sources, "main.c")
}

// plainly runs a command without rdistcc, and returns what it printed.
func (s *site) plainly(args ...string) string {
	s.Helper()
	cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// TestPartitions: what gcc compiles in a link with LTO is compiled by hosts, however the link asks for it, and the program is that of
// the plain link.
func TestPartitions(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	sources := s.program(5)
	for _, cc := range compilers(t, "gcc-11", "gcc") {
		objects := make([]string, len(sources))
		for i, name := range sources {
			objects[i] = strings.TrimSuffix(name, ".c") + ".o"
			s.plainly(cc, "-O2", "-g", "-flto", "-c", name, "-o", objects[i])
		}
		for _, how := range [][]string{{"-flto=2"}, {"-flto"}, {"-flto=auto", "-Wl,--gc-sections"}} {
			link := slices.Concat([]string{cc, "-O2", "-g", "--param=lto-min-partition=10", "-flto-partition=max"}, how, objects, []string{"-o", "x.o"})
			var got ran
			for range 20 { // until the host has been found
				if got = s.run(link...); strings.Contains(got.where, "remote:") {
					break
				}
			}
			n := 0
			for line := range strings.Lines(got.where) {
				switch f := strings.Fields(line); {
				case strings.HasPrefix(line, "remote:"):
					n++
				case f[0] != "local:link":
					t.Errorf("%s %v: %s", cc, how, line)
				}
			}
			if got.status != 0 || got.out != "" || n < 2 {
				t.Errorf("%s %v: exit %d, %d compiles by hosts; %s%s%s", cc, how, got.status, n, got.where, got.out, s.log())
				continue
			}
			s.equal(link...)
			if how[0] == "-flto" {
				s.named(n, link...)
			}
		}
	}
}

// named runs a link as a build, and fails the test unless all say of which link its n parts are, and of the link where they ended.
func (s *site) named(n int, link ...string) {
	s.Helper()
	s.Vars = append(s.Vars, "XDG_STATE_HOME="+s.Dir)
	said := s.run(slices.Concat([]string{"build", "--no-progress", "--", s.Wrapper}, link)...)
	output := filepath.Join(s.work, "x.o")
	if words := strings.Join(strings.Fields(said.out), " "); !strings.Contains(words, fmt.Sprintf("HERE %s %d %d 0 0", output, n, n)) {
		s.Errorf("the build's summary has no %d parts of %s: %s", n, output, said.out)
	}
	if why := s.run("why", output).out; !strings.Contains(why, fmt.Sprintf("%d: %d on hosts, 0 from the cache, 0 here", n, n)) {
		s.Errorf("why does not tell of %d parts: %s", n, why)
	}
	if list := s.run("why").out; strings.Count(list, " x.o: /") < n {
		s.Errorf("the list of commands names no link: %s", list)
	}
	trace := s.run("trace").out
	if named := fmt.Sprintf("%q:%q", "link", output); strings.Count(trace, named) < n {
		s.Errorf("the trace has no %s: %s", named, trace)
	}
	part := regexp.MustCompile(`/[^ "]*\.ltrans[0-9]+\.o`).FindString(trace)
	why := s.run("why", part).out
	for _, line := range []string{"part of     the link of " + output, "inputs      known from the files; 1 of 1 file sent"} {
		if !strings.Contains(why, line+"\n") {
			s.Errorf("of %s why does not say %q: %s", part, line, why)
		}
	}
}

// TestPartitionsAgain: a link takes from the cache the partitions that another one has had compiled, whatever the linker calls them, and
// after a change all but those that it reaches.
func TestPartitionsAgain(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	s.start()
	link := []string{"gcc", "-O2", "-g", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=1to1"}
	build := func() (cached, other int) {
		t.Helper()
		words := slices.Clone(link)
		for _, name := range s.program(5) {
			object := strings.TrimSuffix(name, ".c") + ".o"
			s.plainly("gcc", "-O2", "-g", "-flto", "-c", name, "-o", object)
			words = append(words, object)
		}
		words = append(words, "-o", "x.o")
		got := s.run(words...)
		if got.status != 0 || got.out != "" {
			t.Fatalf("exit %d: %s%s%s", got.status, got.where, got.out, s.log())
		}
		s.equal(words...)
		cached = strings.Count(got.where, "cached:")
		return cached, strings.Count(got.where, "\n") + 1 - cached - strings.Count(got.where, "local:link")
	}
	cached, other := build()
	for range 20 { // until the host has been found, and has compiled each
		if cached, other = build(); other == 0 {
			break
		}
	}
	if cached < 3 || other != 0 {
		t.Fatalf("%d partitions from the cache, %d not: %s", cached, other, s.log())
	}
	s.more = "int more;\n"
	if again, new := build(); again == 0 || new == 0 {
		t.Errorf("after a change: %d partitions from the cache, %d not", again, new)
	}
}

// TestPartitionsThatFail: a partition that a host cannot compile is compiled here, with the words of the compiler here.
func TestPartitionsThatFail(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	s.program(3)
	s.write("unit0.c", "int f1(int);\n__asm__(\".section .rodata\\n.incbin \\\"data\\\"\\n\");\nint f0(int x) { return f1(x) + x; }\n")
	s.write("data", "included")
	objects := []string{"unit0.o", "unit1.o", "unit2.o", "main.o"}
	for _, name := range objects {
		s.plainly("gcc", "-O2", "-flto", "-c", strings.TrimSuffix(name, ".o")+".c", "-o", name)
	}
	link := slices.Concat([]string{"gcc", "-O2", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=max"}, objects, []string{"-o", "x.o"})
	if got := s.run(link...); got.status != 0 || got.out != "" {
		t.Fatalf("exit %d: %s%s", got.status, got.where, got.out)
	}
	s.equal(link...)
	if err := os.Remove(filepath.Join(s.work, "data")); err != nil {
		t.Fatal(err)
	}
	got := s.run(link...)
	cmd := exec.CommandContext(s.ctx, link[0], link[1:]...)
	cmd.Dir, cmd.Env = s.work, append(s.Env(), "PWD="+s.work)
	want, err := cmd.CombinedOutput()
	if err == nil || got.status != cmd.ProcessState.ExitCode() || !strings.Contains(got.out, "data") || !bytes.Contains(want, []byte("data")) {
		t.Errorf("exit %d, %s; without rdistcc %v, %s", got.status, got.out, err, want)
	}
}

// TestSplitPartitions: with -gsplit-dwarf the link runs as without us, and leaves its .dwo files. gcc compiles some partitions to other
// bytes each time, so they stay here, with a reason.
func TestSplitPartitions(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	objects := s.program(2)
	for i, name := range objects {
		objects[i] = strings.TrimSuffix(name, ".c") + ".o"
		s.plainly("gcc", "-O2", "-g", "-flto", "-c", name, "-o", objects[i])
	}
	link := slices.Concat([]string{"gcc", "-O2", "-g", "-gsplit-dwarf", "-flto=2", "--param=lto-min-partition=10", "-flto-partition=max"}, objects, []string{"-o", "x.o"})
	split := func() (names []string) {
		files, err := filepath.Glob(filepath.Join(s.work, "*.dwo"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if fi, err := os.Stat(f); err == nil && fi.Size() > 0 {
				names = append(names, f)
			}
			os.Remove(f)
		}
		return names
	}
	s.plainly(link...)
	want := split()
	got := s.run(link...)
	if names := split(); got.status != 0 || got.out != "" || len(want) < 2 || !slices.Equal(names, want) {
		t.Errorf("exit %d, %s: %v, want %v", got.status, got.out, names, want)
	}
	if n := strings.Count(got.where, "local:not-reproducible:split-dwarf"); n != len(want) {
		t.Errorf("%d partitions for that reason, want %d: %s", n, len(want), got.where)
	}
}

// TestPartitionsThatRead: a file that assembly in a partition reads counts, whether it can be seen there or is compressed.
func TestPartitionsThatRead(t *testing.T) {
	s := prepare(t, "")
	if _, err := exec.LookPath("make"); err != nil {
		need.Skipf(t, need.Tools, "%v", err)
	}
	s.start()
	s.Vars = append(s.Vars, "RDISTCC_CACHE=on")
	s.more = "__asm__(\".data\\n.globl data\\ndata: .incbin \\\"" + filepath.Join(s.work, "data") + "\\\"\\n.text\\n\");\n"
	sources := s.program(2)
	cc := compilers(t, "gcc")[0]
	for _, level := range []string{"0", "9"} {
		var objects []string
		for _, name := range sources {
			s.plainly(cc, "-O2", "-flto", "-flto-compression-level="+level, "-c", name, "-o", name+".o")
			objects = append(objects, name+".o")
		}
		link := slices.Concat([]string{cc, "-O2", "-flto=2", "-flto-compression-level=" + level, "--param=lto-min-partition=10", "-flto-partition=max"}, objects, []string{"-o", "x.o"})
		for _, data := range []string{"first", "first", "second"} {
			s.write("data", data+" of "+level)
			if got := s.run(link...); got.status != 0 {
				t.Fatalf("level %s, %s: exit %d, %s: %s", level, data, got.status, got.where, got.out)
			}
			s.equal(link...)
		}
	}
}
