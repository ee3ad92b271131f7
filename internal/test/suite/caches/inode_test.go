package caches

import (
	"os/exec"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestInodes: what has a file's identity in it is made here, and nothing of it is kept.
func TestInodes(t *testing.T) {
	if _, err := exec.LookPath("clang"); err != nil {
		need.Skipf(t, need.Tools, "no clang")
	}
	s := start(t, "")
	s.write("a.c", "int f(int x) {\n#pragma omp target map(tofrom : x)\n x++;\n return x; }\n")
	s.write("b.c", "#define REGION(x) _Pragma(#x)\n#include \"b.h\"\n")
	s.write("b.h", "int f(int x) {\nREGION(omp target)\n x++;\n return x; }\n")
	s.write("c.c", "void g(int *);\nvoid f(void) {\n#pragma omp parallel for\n for (int i = 0; i < 9; i++) g(&i); }\n")
	for range 2 {
		s.compiles("local:not-reproducible:inode", "clang", "-fopenmp", "-c", "a.c")
		s.compiles("local:not-reproducible:inode", "clang", "-fopenmp", "-S", "b.c")
		s.compiles("local:not-reproducible:inode", "clang", "-fopenmp", "-g", "-O2", "-gz", "-c", "a.c")
	}
	if n := len(s.kept()); n != 0 {
		t.Errorf("%d results are kept", n)
	}
	s.compiles("remote", "clang", "-c", "a.c")
	s.compiles("remote", "clang", "-fopenmp", "-O2", "-c", "a.c") // nothing is left of the region
	s.compiles("remote", "clang", "-fopenmp", "-c", "c.c")
}
