package caches

import "testing"

// TestHostWithoutTrees: a host without private trees compiles text, as it does without the cache, and none of that is kept.
func TestHostWithoutTrees(t *testing.T) {
	s := startWith(t, "", "daemon: {tree: off}\n")
	s.write("a.c", "int x;\n")
	for range 2 {
		s.compiles("remote", "gcc", "-c", "a.c")
	}
	if n := len(s.kept()); n != 0 {
		t.Errorf("%d results are kept", n)
	}
}
