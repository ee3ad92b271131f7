package compile

import (
	"slices"
	"strings"
	"testing"
)

// TestSearchWords: commands that differ in names, values of macros and what is not about headers have the same words, and others not.
func TestSearchWords(t *testing.T) {
	words := func(f Family, line string) []string {
		p := Parse(strings.Fields(line), Driver{Family: f}, nil)
		if p.Local {
			t.Fatalf("%s: %s", line, p.Reason)
		}
		return p.SearchWords()
	}
	for _, c := range []struct {
		family Family
		a, b   string
		same   bool
	}{
		{GCC, "-Ia -Ib -DX=1 -O2 -Wall -c a.c -o a.o", "-Ic -DY -UZ -O2 -c b.c -MD -MF b.d", true},
		{GCC, "-c a.c -Wp,-MD,a.d", "-c b.c -Wp,-MD,b.d", true},
		{GCC, "-c a.c -frandom-seed=a", "-c a.c -frandom-seed=b", true},
		{GCC, "-c a.c -include a.h", "-c a.c -include b.h", true},
		{GCC, "-c a.c", "-c a.c -Ia", false},
		{GCC, "-c a.c -Ia", "-c a.c -isystem a", false},
		{GCC, "-c a.c", "-c a.c -include b.h", false},
		{GCC, "-c a.c -std=c99", "-c a.c -std=c11", false},
		{GCC, "-c a.c -m32", "-c a.c", false},
		{GCC, "-c a.c -nostdinc", "-c a.c", false},
		{Clang, "-c a.c --target=arm-linux", "-c a.c --target=avr", false},
		{Clang, "-c a.c -fms-extensions", "-c a.c", false},
	} {
		if a, b := words(c.family, c.a), words(c.family, c.b); slices.Equal(a, b) != c.same {
			t.Errorf("%s: %q; %s: %q; same: %v", c.a, a, c.b, b, c.same)
		}
	}
}
