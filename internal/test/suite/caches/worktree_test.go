package caches

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestWorktrees: two worktrees share results without a setting, also one inside the other, exactly where the local compiler would write
// the same. A change to what was not read costs no compile in either of them, and rules for make name the files of their own worktree.
func TestWorktrees(t *testing.T) {
	s := alone(t)
	one := filepath.Join(s.Dir, "one")
	trees := []string{one, filepath.Join(s.Dir, "elsewhere", "two"), filepath.Join(one, "inside", "three")}
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	put(one+"/.git/HEAD", "ref: refs/heads/main\n")
	for i, dir := range trees {
		if i > 0 {
			own := one + "/.git/worktrees/" + filepath.Base(dir)
			put(own+"/HEAD", "ref: refs/heads/other\n")
			put(dir+"/.git", "gitdir: "+own+"\n")
		}
		put(dir+"/src/a.c", "#include \"a.h\"\n#ifdef NEVER\n#include \"never.h\"\n#endif\nint f(int x) { return x + A; }\n")
		put(dir+"/src/root.c", "void f(char *p) { __builtin_strcpy(p, ROOT); }\n")
		put(dir+"/src/name.c", "const unsigned long n = sizeof __FILE__;\n")
		put(dir+"/src/line.c", "int f(void) { return 1; }\n#line 5 \""+one+"/build/made.c\"\nint g(void) { return f(); }\n") // as a generator has left it
		put(dir+"/inc/a.h", "#define A 1\n")
		put(dir+"/inc/never.h", "#define NEVER 1\n")
		put(dir+"/build/.keep", "")
	}
	runs := func(dir, where string, words ...string) {
		t.Helper()
		s.work = filepath.Join(dir, "build")
		args := []string{"gcc"}
		for _, w := range words {
			args = append(args, strings.ReplaceAll(w, "$B", dir))
		}
		n := len(s.kept())
		s.compiles(where, args...)
		if where == "local:no-hosts" {
			s.settle(n + 1)
		}
		s.remove()
	}
	holes := gccMajor(t) >= 11 && gccMajor(t) <= 15
	relative := []string{"-O2", "-MD", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}
	for _, c := range []struct {
		words []string
		share bool
	}{
		{relative, true},
		{[]string{"-O2", "-g", "-gdwarf-5", "-MD", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, holes}, // DW_AT_comp_dir is all
		{[]string{"-O2", "-g3", "-gdwarf-5", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, holes},
		{[]string{"-O2", "-g", "-gdwarf-4", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, false},
		{[]string{"-O2", "-g", "-gdwarf-5", "-I../inc", "-S", "../src/a.c", "-o", "a.s"}, false},
		{[]string{"-O2", "-g", "-gdwarf-5", "-gz", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, false},
		{[]string{"-g", "-gdwarf-5", "-c", "../src/line.c", "-o", "a.o"}, false}, // which names a file of the first one in each
		{[]string{"-g", "-gdwarf-5", "-c", "$B/src/a.c", "-I../inc", "-o", "a.o"}, false},
		{[]string{"-g", "-gdwarf-5", "-DROOT=\"$B\"", "-c", "../src/root.c", "-o", "a.o"}, false},
		{[]string{"-O2", "-g", "-gz", "-ffile-prefix-map=$B=.", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, false},
		{[]string{"-O2", "-g", "-ffile-prefix-map=$B=.", "-MD", "-MF", "$B/build/a.d", "-I$B/inc", "-c", "$B/src/a.c", "-o", "$B/build/a.o"}, true},
		{[]string{"-O2", "-ffile-prefix-map=$B=.", "-DROOT=\"$B\"", "-c", "../src/root.c", "-o", "a.o"}, false},
		{[]string{"-c", "$B/src/name.c", "-o", "a.o"}, false}, // sizeof tells
	} {
		for i, dir := range trees {
			where := "local:no-hosts"
			if i > 0 && c.share {
				where = "cached:manager"
			}
			runs(dir, where, c.words...)
		}
	}
	for i, dir := range trees { // the second step
		put(dir+"/inc/never.h", "#define NEVER "+strings.Repeat("2", i+1)+"\n")
		runs(dir, "cached:manager", relative...)
	}
	put(trees[1]+"/inc/a.h", "#define A 2\n")
	runs(trees[1], "local:no-hosts", relative...)
	put(one+"/inc/a.h", "#define A 2\n")
	put(one+"/inc/never.h", "#define NEVER 22\n")
	runs(one, "cached:manager", relative...)

	// Where it is in no checkout, or in what only looks like one, each directory has its own.
	for _, dir := range []string{filepath.Join(s.Dir, "four"), filepath.Join(s.Dir, "five")} {
		put(dir+"/.git", "gitdir: /nowhere/at/all\n")
		put(dir+"/src/a.c", "int four;\n")
		put(dir+"/build/.keep", "")
		runs(dir, "local:no-hosts", "-c", "../src/a.c", "-o", "a.o")
	}
}

// gccMajor returns the major version of gcc.
func gccMajor(t *testing.T) int {
	t.Helper()
	out, err := exec.Command("gcc", "-dumpversion").Output()
	if err != nil {
		t.Fatal(err)
	}
	major, _, _ := strings.Cut(strings.TrimSpace(string(out)), ".")
	n, err := strconv.Atoi(major)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
