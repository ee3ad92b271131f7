package compile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestSanitizerLists: clang's own lists are in its directory, those that it may get as well as those that it has.
func TestSanitizerLists(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib/clang/19")
	if err := os.MkdirAll(dir+"/share", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/share/new_ignorelist.txt", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	got := SanitizerLists([]string{"/usr/local/include", dir + "/include", "/usr/include"})
	for _, name := range []string{"asan_ignorelist.txt", "msan_blacklist.txt", "dfsan_abilist.txt", "new_ignorelist.txt"} {
		if !slices.Contains(got, dir+"/share/"+name) {
			t.Errorf("no %s in %q", name, got)
		}
	}
	for _, own := range [][]string{nil, {"/usr/include"}, {"/usr/lib/gcc/x86_64-linux-gnu/12/include"}, {"include"}} {
		if got := SanitizerLists(own); got != nil {
			t.Errorf("%q: %q", own, got)
		}
	}
}

// TestSearchOfRoots: gcc says itself what a root comes to, if its name means the same everywhere.
func TestSearchOfRoots(t *testing.T) {
	for _, c := range []struct {
		family Family
		words  []string
		ok     bool
	}{
		{GCC, []string{"--sysroot=/sdk", "-c", "a.c"}, true},
		{GCC, []string{"--sysroot", "/sdk", "-c", "a.c"}, true},
		{GCC, []string{"-isysroot", "/sdk", "-c", "a.c"}, true},
		{GCC, []string{"--sysroot=sdk", "-c", "a.c"}, false},
		{GCC, []string{"-iprefix", "/sdk", "-c", "a.c"}, false},
		{Clang, []string{"--sysroot=/sdk", "-c", "a.c"}, false},
		{Clang, []string{"-isysroot", "/sdk", "-c", "a.c"}, false},
	} {
		plan := Parse(c.words, Driver{Family: c.family}, func(string) (string, bool) { return "", false })
		s, ok := plan.Search(nil)
		if ok != c.ok || ok && !slices.Equal(s.Ask, c.words[:len(c.words)-2]) {
			t.Errorf("%q: %t, %q", c.words, ok, s.Ask)
		}
	}
}
