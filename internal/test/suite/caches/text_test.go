package caches

import "testing"

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
