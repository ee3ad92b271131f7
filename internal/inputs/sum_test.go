package inputs

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sums resolves a unit below dir, and returns its Set.
func setOf(t *testing.T, tab *Table, dir string) *Set {
	t.Helper()
	s, err := tab.Resolve(&Query{Key: dir, Source: "x.c", Cwd: dir, Quote: []string{"inc"}, Angle: []string{"inc", "later"}, GCC: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSum: the sum of a Set changes with everything that a compile can see of it, and with nothing else.
func TestSum(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "w")
	old := time.Now().Add(-time.Hour)
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write("x.c", "#include \"a.h\"\n#include <b.h>\n#include <twin.h>\n")
	write("inc/a.h", "")
	write("later/b.h", "int b;\n")
	write("inc/twin.h", "int b;\n")
	tab := New(Options{})
	sum := func() [32]byte { t.Helper(); return setOf(t, tab, dir).Sum() }
	first := sum()
	seen := map[[32]byte]string{first: "first"}
	differs := func(what string) {
		t.Helper()
		s := sum()
		if other, known := seen[s]; known {
			t.Errorf("%s: the sum is that of %s", what, other)
		}
		seen[s] = what
	}
	back := func(what string) {
		t.Helper()
		if sum() != first {
			t.Errorf("%s: another sum than at first", what)
		}
	}
	write("inc/a.h", "int a;\n")
	differs("another content")
	names, n := setOf(t, tab, dir).Changed()
	if n != 1 || !slices.Equal(names, []string{filepath.Join(dir, "inc/a.h")}) {
		t.Errorf("changed: %v, %d", names, n)
	}
	write("inc/a.h", "")
	back("the first content")
	write("inc/b.h", "int b;\n")
	differs("a header that comes first")
	must(os.Remove(filepath.Join(dir, "inc/b.h")))
	back("it has gone")
	must(os.Chmod(filepath.Join(dir, "inc/a.h"), 0o777))
	differs("a header that may be executed")
	must(os.Chmod(filepath.Join(dir, "inc/a.h"), 0o666))
	must(os.Chtimes(filepath.Join(dir, "inc/a.h"), old.Add(time.Minute), old.Add(time.Minute)))
	back("another time")
	must(os.Chtimes(filepath.Join(dir, "inc/twin.h"), old.Add(time.Minute), old.Add(time.Minute)))
	differs("two equal files no longer have the same time") // gcc's #pragma once tells them apart then
	// It compares whole seconds.
	second := old.Truncate(time.Second)
	for _, name := range []string{"inc/twin.h", "later/b.h"} {
		must(os.Chtimes(filepath.Join(dir, name), second, second))
	}
	back("they have the same time again")
	must(os.Chtimes(filepath.Join(dir, "inc/twin.h"), second.Add(time.Second-1), second.Add(time.Second-1)))
	back("they were modified in the same second")
	must(os.Chtimes(filepath.Join(dir, "inc/twin.h"), second.Add(time.Second), second.Add(time.Second)))
	if s := sum(); seen[s] != "two equal files no longer have the same time" {
		t.Errorf("two equal files of different seconds: the sum is that of %q", seen[s])
	}
	// Nor does it compare byte order marks.
	write("inc/twin.h", "\xef\xbb\xbfint b;\n")
	must(os.Chtimes(filepath.Join(dir, "inc/twin.h"), second, second))
	differs("a twin with a byte order mark")
	must(os.Chtimes(filepath.Join(dir, "inc/twin.h"), second.Add(time.Second), second.Add(time.Second)))
	differs("a file with a byte order mark that is no twin")
	write("inc/twin.h", "int b;\n")
	write("later/b.h", "int b;\n")
	must(os.Remove(filepath.Join(dir, "inc/twin.h")))
	must(os.Link(filepath.Join(dir, "later/b.h"), filepath.Join(dir, "inc/twin.h")))
	differs("two files are one") // clang takes them for the same
	must(os.Remove(filepath.Join(dir, "inc/twin.h")))
	write("inc/twin.h", "int b;\n")
	back("they are two again")
	must(os.Rename(filepath.Join(dir, "later/b.h"), filepath.Join(dir, "later/c.h")))
	must(os.Symlink("c.h", filepath.Join(dir, "later/b.h")))
	differs("a header that is a link")

	// Below another directory the sum without its name is the same, whatever order the names come in.
	other := filepath.Join(t.TempDir(), "z", "with-another-name")
	must(os.MkdirAll(filepath.Dir(other), 0o777))
	must(os.CopyFS(other, os.DirFS(dir)))
	must(os.Remove(filepath.Join(other, "later/b.h")))
	must(os.Symlink("c.h", filepath.Join(other, "later/b.h")))
	for _, name := range []string{"x.c", "inc/a.h", "inc/twin.h", "later/c.h"} {
		st, err := os.Stat(filepath.Join(dir, name))
		must(err)
		must(os.Chmod(filepath.Join(other, name), st.Mode()))
		must(os.Chtimes(filepath.Join(other, name), st.ModTime(), st.ModTime()))
	}
	hide := func(base string) func(string) string {
		return func(name string) string { return strings.Replace(name, base, "\x00", 1) }
	}
	a, b := setOf(t, tab, dir), setOf(t, tab, other)
	if a.Sum() == b.Sum() || a.SumBelow(dir, hide(dir)) != b.SumBelow(other, hide(other)) {
		t.Error("the sums of two directories are equal with their names, or differ without them")
	}
}

// TestModule: if a compile makes a module of clang's, all of the compiler's directories are in the Set, and its result
// depends on times. Otherwise a clang that reads from one of them is shown the others too, and a gcc is not.
func TestModule(t *testing.T) {
	dir := t.TempDir()
	old := time.Now().Add(-time.Hour)
	for _, d := range []string{"own", "own/read", "unread"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"x.cppm": "module;\n#include <a.h>\nexport module x;\n", "own/read/a.h": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
			t.Fatal(err)
		}
	}
	own := []string{dir + "/own/read", dir + "/own/../unread"}
	for _, x := range []struct {
		module, gcc bool
		dirs        []string
	}{{false, true, nil}, {false, false, own[1:]}, {true, false, own}} {
		module := x.module
		q := &Query{Key: "k", Source: "x.cppm", Cwd: dir, Own: own, Missing: []string{dir + "/none"}, Module: module, GCC: x.gcc}
		s, err := New(Options{}).Resolve(q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range own {
			if slices.Contains(s.Dirs, d) != slices.Contains(x.dirs, d) {
				t.Errorf("module %v, gcc %v: directories %q, want %q", module, x.gcc, s.Dirs, x.dirs)
			}
		}
		if s.Timed != module || slices.Contains(s.Dirs, dir+"/none") || len(s.Files) != 2 {
			t.Errorf("module %v: timed %v, %q, %d files", module, s.Timed, s.Dirs, len(s.Files))
		}
	}
}

// TestTimed: a compile whose result may depend on times is told apart, also after the compiler was asked.
func TestTimed(t *testing.T) {
	for text, want := range map[string]bool{
		"int x;\n": false,
		"#define H \"a.h\"\n#if __has_include(H)\n#endif\n": false,
		"const char *t = __TIME__;\n":                       true,
		"#pragma GCC dependency \"a.h\"\n":                  true,
	} {
		dir := t.TempDir()
		for name, text := range map[string]string{"x.c": text, "a.h": ""} {
			name = filepath.Join(dir, name)
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			old := time.Now().Add(-time.Hour)
			if err := os.Chtimes(name, old, old); err != nil {
				t.Fatal(err)
			}
		}
		tab := New(Options{})
		q := &Query{Key: dir, Source: "x.c", Cwd: dir, GCC: true}
		s, err := tab.Resolve(q)
		for range 100 { // an answer about files that have changed just now is not kept
			if err == nil {
				break
			}
			tab.Learn(q, []string{"x.c"}, nil, false)
			if s, err = tab.Resolve(q); err != nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.Timed != want {
			t.Errorf("%q: Timed is %v", text, s.Timed)
		}
	}
}
