package caches

import (
	"os/exec"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestHostWithoutTrees: a host without private trees compiles text, and what became of a text is kept under the text. So a header that
// changes, that appears where it is looked for sooner, or that is found by other words counts at once, and one that changes
// back is found again.
func TestHostWithoutTrees(t *testing.T) {
	s := startWith(t, "", "daemon: {tree: off}\n")
	s.write("a.c", "#include \"h.h\"\n#if __has_include(\"k.h\")\nint k;\n#endif\nint x = H;\n")
	s.write("second/h.h", "#define H 1\n")
	kept := 0
	compiles := func(where string, args ...string) {
		t.Helper()
		s.compiles(where, args...)
		if where == "remote" {
			kept++
			s.settle(kept)
		}
	}
	cc := []string{"gcc", "-O1", "-Ifirst", "-Isecond", "-c", "a.c"}
	compiles("remote", cc...)
	compiles("cached", cc...)
	s.write("second/h.h", "#define H 2\n")
	compiles("remote", cc...)
	s.write("first/h.h", "#define H 3\n") // found sooner
	compiles("remote", cc...)
	s.write("first/h.h", "#define H 2\n")
	compiles("remote", cc...) // the text names another file
	s.write("k.h", "")
	compiles("remote", cc...)
	s.write("second/h.h", "#define H 1\n")
	compiles("remote", "gcc", "-O1", "-Isecond", "-c", "a.c")
	compiles("remote", "gcc", "-O2", "-Isecond", "-c", "a.c")
	compiles("cached", "gcc", "-O1", "-Isecond", "-MD", "-c", "a.c") // the list is written here
	s.write("warns.c", "int f(void) { int unset; return unset; }\n")
	for _, where := range []string{"local", "cached"} { // what runs here by rule is kept too
		compiles(where, "gcc", "-Wall", "-O1", "-c", "warns.c")
		compiles(where, "gcc", "-g", "-Isecond", "-c", "a.c")
		if where == "local" {
			kept += 2
			s.settle(kept)
		}
	}
	s.again() // what is kept outlives the manager
	compiles("cached", "gcc", "-O2", "-Isecond", "-c", "a.c")
	if n := len(s.kept()); n != kept {
		t.Errorf("%d results are kept, want %d", n, kept)
	}
}

// TestListedCommands: of a command whose search for headers only its compiler knows, the result is kept under the command and all
// files that it has read: a header that changes, or that appears where it is found sooner
// and a list of what is not to be sanitized count at once.
func TestListedCommands(t *testing.T) {
	part.Skip(t)
	if _, err := exec.LookPath("clang"); err != nil {
		need.Skipf(t, need.Tools, "no clang")
	}
	s := start(t, "")
	s.write("a.c", "#include <h.h>\nint f(int *p) { return p[H]; }\nint g(void) { int unset; return unset; }\n")
	s.write("root/usr/include/h.h", "#define H 1\n")
	s.write("ignore.txt", "fun:f\n")
	kept := 0
	compiles := func(where string, args ...string) {
		t.Helper()
		s.compiles(where, args...)
		if where == "remote" {
			kept++
			s.settle(kept)
		}
	}
	root := []string{"clang", "-O1", "-g", "--sysroot=root", "-c", "a.c"}
	asan := []string{"clang", "-O1", "-fsanitize=address", "-fsanitize-ignorelist=ignore.txt", "--sysroot=root", "-Xclang", "-fno-validate-pch", "-c", "a.c"}
	for range 2 {
		where := "remote"
		if kept >= 2 {
			where = "cached"
		}
		compiles(where, root...)
		compiles(where, asan...)
	}
	s.write("ignore.txt", "fun:g\n")
	compiles("remote", asan...)
	compiles("cached", root...)
	s.write("root/usr/include/h.h", "#define H 2\n")
	compiles("remote", root...)
	compiles("remote", asan...)
	s.write("root/usr/local/include/h.h", "#define H 3\n") // found sooner
	compiles("remote", root...)
	warns := append([]string{"clang", "-Wall"}, root[1:]...)
	compiles("remote", warns...)
	compiles("cached", warns...)
	s.again()
	compiles("cached", warns...)
	compiles("cached", root...)
}
