package caches

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestBaseDir: two checkouts in different directories share results, exactly where the local compiler would write the same.
func TestBaseDir(t *testing.T) {
	part.Skip(t)
	for _, cc := range []string{"gcc", "clang"} {
		t.Run(cc, func(t *testing.T) {
			if _, err := exec.LookPath(cc); err != nil {
				need.Skipf(t, need.Tools, "no %s", cc)
			}
			baseDir(t, cc)
		})
	}
}

func baseDir(t *testing.T, cc string) {
	s := start(t, "")
	one, two := filepath.Join(s.Dir, "one"), filepath.Join(s.Dir, "another", "and-a-longer-name")
	for _, base := range []string{one, two} {
		for name, text := range map[string]string{
			"src/a.c":         "#include <assert.h>\n#include \"a.h\"\n#include \"sub/b.h\"\nint f(int x) { assert(x != A); return x + B; }\n",
			"inc/a.h":         "#define A 1\n",
			"inc/sub/b.h":     "#define B 2\n",
			"build/.keep":     "",
			"src/root.c":      "void f(char *p) { __builtin_strcpy(p, ROOT); }\n", // in pieces: as numbers
			"src/name.c":      "const unsigned long n = sizeof __FILE__;\n",
			"src/warning.c":   "int g(void) { int unused; return 0; }\n",
			"src/not-there.c": "#if __has_include(\"maybe.h\")\n#include \"maybe.h\"\n#endif\nint h;\n",
		} {
			name = filepath.Join(base, name)
			if err := os.MkdirAll(filepath.Dir(name), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
	}
	const mapped = "-ffile-prefix-map=$B=."
	for _, c := range []struct {
		words []string
		share bool
	}{
		{[]string{"-O2", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, true}, // CMake's and others' relative names
		{[]string{"-O2", "-g", "-gdwarf-5", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, cc == "gcc" && gccMajor(t) >= 11 && gccMajor(t) <= 15},
		{[]string{"-O2", "-g", mapped, "-MD", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, true},
		{[]string{"-O2", "-g", mapped, "-MD", "-MF", "$B/build/a.d", "-I$B/inc", "-c", "$B/src/a.c", "-o", "$B/build/a.o"}, true},
		{[]string{"-O2", "-I$B/inc", "-c", "$B/src/a.c", "-o", "a.o"}, false},
		{[]string{"-c", "$B/src/name.c", "-o", "a.o"}, false},
		{[]string{mapped, "-c", "$B/src/name.c", "-o", "a.o"}, true},
		{[]string{"-O2", mapped, "-DROOT=\"$B\"", "-c", "../src/root.c", "-o", "a.o"}, false},
		{[]string{"-O2", mapped, "-DROOT=\".\"", "-c", "../src/root.c", "-o", "a.o"}, true},
		{[]string{mapped, "-Wall", "-c", "$B/src/warning.c", "-o", "a.o"}, false}, // its message names the file
		{[]string{mapped, "-Wall", "-c", "../src/warning.c", "-o", "a.o"}, true},
		{[]string{mapped, "-c", "$B/src/not-there.c", "-o", "a.o"}, true},
	} {
		for i, base := range []string{one, two} {
			s.work = filepath.Join(base, "build")
			want := "remote"
			if i == 1 && c.share {
				want = "cached:manager"
			}
			args := []string{cc}
			for _, w := range c.words {
				args = append(args, os.Expand(w, func(string) string { return base }))
			}
			before := len(s.kept())
			s.compilesWith(want, []string{"RDISTCC_BASE_DIR=" + base}, args...)
			if want == "remote" {
				s.settle(before + 1)
			}
		}
	}
	// A header that appears in one of them is not there in the other.
	s.work = filepath.Join(one, "build")
	s.write("../src/maybe.h", "int i;\n")
	args := []string{cc, "-ffile-prefix-map=" + one + "=.", "-c", one + "/src/not-there.c", "-o", "a.o"}
	s.compilesWith("remote", []string{"RDISTCC_BASE_DIR=" + one}, args...)
	if err := os.Remove(filepath.Join(one, "src/maybe.h")); err != nil {
		t.Fatal(err)
	}
	s.compilesWith("cached:manager", []string{"RDISTCC_BASE_DIR=" + one}, args...)
}

// TestBaseDirOnHosts: checkouts in different directories on different machines share results by the hosts that have made
// them, exactly where the local compiler would write the same.
func TestBaseDirOnHosts(t *testing.T) {
	s := start(t, "cache: {farm: true}\n")
	one, two := filepath.Join(s.Dir, "one"), filepath.Join(s.Dir, "another", "and-a-longer-name")
	for _, base := range []string{one, two} {
		s.work = base
		s.write("src/a.c", "#include \"a.h\"\nint f(int x) { return x + A; }\n")
		s.write("src/big.c", "#include \"a.h\"\nint big[20000] = {"+strings.Repeat("A, ", 2000)+"};\n")
		s.write("inc/a.h", "#define A 1\n")
		s.write("src/name.c", "const char n[] = __FILE__;\n")
		s.write("build/.keep", "")
	}
	const mapped = "-ffile-prefix-map=$B=."
	cases := []struct {
		words []string
		share bool
	}{
		{[]string{"-O2", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, true},
		{[]string{"-O2", "-g", "-gdwarf-5", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, gccMajor(t) >= 11 && gccMajor(t) <= 15},
		{[]string{"-O2", "-g", "-gdwarf-4", "-I../inc", "-c", "../src/a.c", "-o", "a.o"}, false},
		{[]string{"-O2", "-g", mapped, "-MD", "-MF", "$B/build/a.d", "-I$B/inc", "-c", "$B/src/a.c", "-o", "$B/build/a.o"}, true},
		{[]string{"-O2", mapped, "-I$B/inc", "-c", "$B/src/big.c", "-o", "a.o"}, true},
		{[]string{"-c", "$B/src/name.c", "-o", "a.o"}, false},
		{[]string{mapped, "-c", "$B/src/name.c", "-o", "a.o"}, true},
	}
	compile := func(base, want string, words []string) {
		t.Helper()
		s.work = filepath.Join(base, "build")
		args := []string{"gcc"}
		for _, w := range words {
			args = append(args, os.Expand(w, func(string) string { return base }))
		}
		s.compilesWith(want, []string{"RDISTCC_BASE_DIR=" + base}, args...)
	}
	for _, c := range cases {
		compile(one, "remote", c.words)
	}
	s.forget()
	for _, c := range cases {
		compile(one, "cached:farm", c.words)
	}
	s.forget()
	for _, c := range cases {
		want := "remote"
		if c.share {
			want = "cached:farm"
		}
		compile(two, want, c.words)
	}
}
