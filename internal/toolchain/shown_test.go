package toolchain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	turns "github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// shown is a tree with just a toolchain's files in it.
type shown struct {
	*privatetree.Tree
	t    *testing.T
	null *os.File
}

func TestMain(m *testing.M) {
	if os.Args[0] == privatetree.Arg0 {
		privatetree.Main()
	}
	os.Exit(m.Run())
}

func newShown(t *testing.T, tc *Toolchain) *shown {
	t.Helper()
	tr, err := privatetree.New(t.Context(), privatetree.Spec{Files: tc.Files, Dirs: tc.Dirs})
	if errors.Is(err, privatetree.ErrNoRight) {
		need.Skipf(t, need.Sandbox, "%v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	return &shown{tr, t, null}
}

// write copies a file into the tree under its own name.
func (s *shown) write(path string) {
	s.t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = s.Mkdirs(filepath.Dir(path))
	}
	if err == nil {
		err = s.Write(path, b, 0, false)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// run returns what a command in the tree prints, followed by its status.
func (s *shown) run(dir string, argv ...string) string {
	s.t.Helper()
	out, err := os.CreateTemp(s.t.TempDir(), "")
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	r, err := s.Start(&privatetree.Command{Argv: argv, Env: os.Environ(), Dir: dir,
		Stdin: int(s.null.Fd()), Stdout: int(out.Fd()), Stderr: int(out.Fd())})
	if err != nil {
		s.t.Fatal(err)
	}
	o, err := r.Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	b, err := os.ReadFile(out.Name())
	if err != nil {
		s.t.Fatal(err)
	}
	return fmt.Sprintf("%s%d", b, o.Exit)
}

// runHere is run outside of the tree.
func runHere(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if e := new(exec.ExitError); err != nil && !errors.As(err, &e) {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s%d", out, cmd.ProcessState.ExitCode())
}

// TestCompilersForWindows: each usual name that a clang may look for is found, on the first directory that has it, and another one
// invalidates the finding. Whatever else comes into those directories does not.
func TestCompilersForWindows(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a/x86_64-w64-mingw32ucrt-gcc", "a/i386-w64-mingw32-gcc", "b/i386-w64-mingw32-gcc", "b/mingw32-gcc", "b/x86_64-pc-windows-gnu-gcc",
		"b/x86_64-w64-mingw32-gcc-12", "b/x86_64-linux-gnu-gcc", "b/gcc"} {
		if err := os.MkdirAll(filepath.Dir(dir+"/"+name), 0o777); err != nil {
			t.Fatal(err)
		}
		write(t, dir+"/"+name, "")
	}
	if err := os.WriteFile(dir+"/a/mingw32-gcc", nil, 0o644); err != nil { // no program
		t.Fatal(err)
	}
	if err := os.Symlink("none", dir+"/a/arm64-w64-mingw32-gcc"); err != nil {
		t.Fatal(err)
	}
	find := func() (*entry, []string) {
		f := newFinding(t.Context(), time.Minute, "", Env{})
		f.stamps = make(map[string]stamp)
		programs := f.forWindows(dir + "/a:" + dir + "/b:" + dir + "/none")
		e := &entry{missing: f.missing}
		for p, at := range f.stamps {
			e.stamps = append(e.stamps, stamped{p, at})
		}
		return e, programs
	}
	_, got := find()
	want := []string{dir + "/a/i386-w64-mingw32-gcc", dir + "/a/x86_64-w64-mingw32ucrt-gcc", dir + "/b/mingw32-gcc", dir + "/b/x86_64-pc-windows-gnu-gcc"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	put := func(name string) func() error {
		return func() error { return os.WriteFile(dir+"/"+name, nil, 0o755) }
	}
	for _, c := range []struct {
		what   string
		change func() error
		fresh  bool
	}{
		{"a package", put("b/perl"), true},
		{"another", put("a/x86_64-linux-gnu-gcc"), true},
		{"a directory", func() error { return os.Mkdir(dir+"/none", 0o755) }, true},
		{"a gcc of later clangs", put("b/x86_64-w64-mingw32-gcc"), false},
		{"a gcc in an earlier directory", put("a/x86_64-pc-windows-gnu-gcc"), false},
		{"a gcc in a directory that was not there", put("none/i586-w64-mingw32-gcc"), false},
		{"what a link leads to", put("a/none"), false},
		{"a program", func() error { return os.Chmod(dir+"/a/mingw32-gcc", 0o755) }, false},
		{"a gcc that goes", func() error { return os.Remove(dir + "/b/mingw32-gcc") }, false},
	} {
		e, _ := find()
		if !e.fresh() {
			t.Fatalf("before %s: changed", c.what)
		}
		for i := range e.missing {
			e.missing[i].At = stampOf(e.missing[i].Dir) // as if it had long been so
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if got := e.fresh(); got != c.fresh {
			t.Errorf("%s: fresh = %v, want %v", c.what, got, c.fresh)
		}
	}
	if at := hint(dir + "/a"); at != (stamp{}) {
		t.Error("a directory that has just changed is taken as settled")
	}
}

const shownSource = `#include <stdlib.h>
#include <limits.h>
#define TWICE(x) ((x) + (x))
int f(int *p) { return TWICE(*p) + INT_MAX - abs(p[1]); }
`

const shownSourceCXX = `#include <vector>
#include <string>
std::string f(std::vector<int> &v) { v.push_back(1); return std::to_string(v.size()) + __FILE__; }
`

// TestShown: in a tree that has just a toolchain's files, and the sources of a
// compile under their own names, compilers write the objects and messages that
// they write outside.
func TestShown(t *testing.T) {
	if testing.Short() {
		t.Skip("runs many compiles")
	}
	for _, name := range []string{"cc", "gcc-11", "g++", "aarch64-linux-gnu-gcc", "clang", "clang++-13", "clang++-15", "clang++-16", "clang-19", "clang++-19"} {
		t.Run(name, func(t *testing.T) {
			turns.SkipCase(t)
			t.Parallel()
			cc := look(t, name)
			tc := identifyOK(t, new(Cache), cc)
			s := newShown(t, &tc)
			work := t.TempDir()
			src, text := filepath.Join(work, "in.c"), shownSource
			if strings.Contains(name, "++") {
				src, text = filepath.Join(work, "in.cc"), shownSourceCXX
			}
			bad := filepath.Join(work, "bad.c")
			write(t, src, text)
			write(t, bad, "int f(void) { return x; }\n")
			done := make(map[string]bool)
			for _, p := range append(append(sources(t, cc, src), sources(t, cc, src, "-O2")...), bad) {
				if !done[p] {
					done[p] = true
					s.write(p)
				}
			}
			obj := filepath.Join(work, "out.o")
			options := [][]string{{"-O2", "-g"}, {"-g", "-gsplit-dwarf"}, {"-finput-charset=ISO-8859-1"}}
			if tc.Family == "clang" {
				options[len(options)-1] = []string{"-fno-integrated-as", "-g"}
			}
			for _, o := range options {
				argv := append([]string{cc}, append(o, "-c", src, "-o", obj)...)
				here := runHere(t, work, argv...)
				if there := s.run(work, argv...); there != here || here != "0" {
					t.Errorf("%v: prints %q, outside %q", o, there, here)
				}
				s.same(o, obj)
				if len(o) > 1 && o[1] == "-gsplit-dwarf" {
					s.same(o, filepath.Join(work, "out.dwo"))
				}
			}
			// What a driver finds out by itself: where headers are.
			for _, o := range [][]string{{"-###", "-c", src}, {"-###", "-ffast-math", "-c", src}, {"-c", bad}, {"-no-such-option", "-c", src}} {
				argv := append([]string{cc}, o...)
				if there, here := s.run(work, argv...), runHere(t, work, argv...); temps(there) != temps(here) {
					t.Errorf("%v prints\n%s\noutside\n%s", o, there, here)
				}
			}
		})
	}
}

// temps takes the random names of temporary files out, and where the driver
// would look for libraries.
func temps(s string) string {
	var words []string
	for line := range strings.Lines(s) {
		if !strings.HasPrefix(line, "LIBRARY_PATH=") && !strings.HasPrefix(line, "COMPILER_PATH=") {
			words = append(words, strings.Fields(line)...)
		}
	}
	for i, w := range words {
		if strings.Contains(w, "/tmp/cc") || strings.Contains(w, "/tmp/in-") {
			words[i] = "TEMP"
		}
	}
	return strings.Join(words, " ")
}

// sources are the files that a compile reads.
func sources(t *testing.T, cc, src string, options ...string) []string {
	t.Helper()
	out, err := exec.Command(cc, append(options, "-M", src)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(out), ":")
	return strings.Fields(strings.ReplaceAll(list, "\\\n", " "))
}

// same compares a file of the tree with that outside.
func (s *shown) same(what any, path string) {
	s.t.Helper()
	want, err := os.ReadFile(path)
	if err != nil {
		s.t.Error(what, err)
		return
	}
	f, err := s.Open(path)
	if err != nil {
		s.t.Error(what, err)
		return
	}
	file := os.NewFile(uintptr(f.FD), path)
	defer file.Close()
	if got, err := io.ReadAll(file); err != nil || len(got) == 0 || !bytes.Equal(got, want) {
		s.t.Errorf("%v: %s differs (%v)", what, filepath.Base(path), err)
	}
}
