package clusters

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/reapiserver"
)

// TestEqual: what the cluster makes is what the build host would have made, byte for byte: objects with debug information, side
// files, messages, exit status. Its workers have no file of this machine but what the actions bring.
func TestEqual(t *testing.T) { equals(t, prepare(t, reapiserver.Options{})) }

// TestEqualElsewhere: so it is with a cluster that is not ours.
func TestEqualElsewhere(t *testing.T) { equals(t, prepareOther(t)) }

func equals(t *testing.T, s *site) {
	s.write("a.c", "#include <stdio.h>\n#include \"sub/a.h\"\n#define twice(x) ((x) * 2)\nint main(int argc, char **argv) { printf(\"%s %d\\n\", argv[0], twice(argc) + A); return 0; }\n")
	s.write("sub/a.h", "#pragma once\n#define A 7\n")
	s.write("b.cc", "#include <string>\n#include <vector>\nint f(const std::vector<std::string> &v) { int n = 0; for (auto &s : v) n += s.size(); return n; }\n")
	s.write("warns.c", "int f(int x) { if (x = 1) return 2; }\n")
	s.write("bad.c", "#include <stdio.h>\nint f(void) { return nothing; }\n")
	s.start()
	for _, cc := range compilers(t, "gcc", "clang") {
		cxx := map[string]string{"gcc": "g++", "clang": "clang++"}[cc]
		for _, args := range [][]string{
			{cc, "-c", "a.c"},
			{cc, "-O2", "-g", "-c", "a.c", "-o", "a.o"},
			{cc, "-g3", "-MD", "-MF", "dep/x.d", "-c", s.work + "/a.c", "-o", "obj.o"},
			{cc, "-O1", "-g", "-c", "a.c", "-o", "sub/a.o"},
			{cc, "-S", "-fstack-usage", "a.c"},
			{cc, "-Wall", "-g", "-c", "warns.c"},
			{cc, "-Wall", "-Werror", "-c", "warns.c"},
			{cc, "-c", "bad.c", "-MMD"},
			{cxx, "-O2", "-g", "-std=c++17", "-c", "b.cc"},
			{cxx, "-O1", "-fsyntax-only", "-Wall", "b.cc"},
			{cc, "-g", "-fdebug-prefix-map=" + s.work + "=/x", "-c", "../work/a.c", "-o", "../work/up.o"},
		} {
			s.write("dep/keep", "")
			s.both("remote:", args...)
		}
		if cc == "clang" { // two of gcc's differ, wherever they are made
			s.both("remote:", cc, "-O1", "-g", "-gsplit-dwarf", "-c", "a.c", "-o", "sub/a.o")
		}
	}
	if st := s.status(); st.Ran == 0 || st.Failed != 0 {
		t.Errorf("%+v", st)
	}
}
