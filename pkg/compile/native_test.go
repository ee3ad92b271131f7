package compile

import (
	"slices"
	"strings"
	"testing"
)

// TestNativeWords: the words for native come before all other words, which keep their order; if the order
// shows, the command stays here.
func TestNativeWords(t *testing.T) {
	expansion := []string{"-march=znver3", "-mavx", "--param=l1-cache-size=48"}
	for _, c := range []struct {
		compiler, args, machine string
		order                   bool
		whole                   string // or the reason; "front: " if the host has to do without the driver
	}{
		{"gcc", "-O2 -mno-avx -march=native -c a.c", "-mno-avx -march=native", true,
			"-march=znver3 -mavx --param=l1-cache-size=48 -O2 -mno-avx -c a.c"},
		{"gcc", "-march=native -mtune=native -g -c a.c", "-march=native -mtune=native", true,
			"front: -march=znver3 -mavx --param=l1-cache-size=48 -g -c a.c"},
		{"gcc", "-march=native -g -c a.c", "-march=native", false, "-march=znver3 -mavx --param=l1-cache-size=48 -g -c a.c"},
		{"gcc", "-march=native -flto -c a.c", "-march=native", true, "front: -march=znver3 -mavx --param=l1-cache-size=48 -flto -c a.c"},
		{"gcc", "-march=native -g -pipe -c a.c", "-march=native", true, "not-reproducible:native"},
		{"gcc", "-march=native -g -save-temps -c a.c", "-march=native", true, "not-reproducible:native"},
		{"gcc", "-march=native -pipe -c a.c", "-march=native", true, "-march=znver3 -mavx --param=l1-cache-size=48 -pipe -c a.c"},
		{"gcc", "-march=native -frecord-gcc-switches -c a.c", "-march=native", true,
			"front: -march=znver3 -mavx --param=l1-cache-size=48 -frecord-gcc-switches -c a.c"},
		{"clang", "-march=native -g -c a.c -m64", "-march=native -m64", true, "-march=znver3 -mavx --param=l1-cache-size=48 -g -c a.c -m64"},
		{"clang", "-march=native -grecord-gcc-switches -c a.c", "-march=native", true, "not-reproducible:native"},
		{"gcc", "-march=x86-64 -c a.c", "", true, "-march=x86-64 -c a.c"},
	} {
		p := Parse(words(c.args), testDriver(t, c.compiler), nil)
		if got := strings.Join(p.Machine(), " "); got != c.machine {
			t.Errorf("%s %s: machine %q, want %q", c.compiler, c.args, got, c.machine)
		}
		front, got := p.Native(expansion, c.order, true)
		if got == "" {
			got = strings.Join(p.Whole(), " ")
			if front > 0 {
				got = "front: " + got
			}
			if front != 0 && front != len(expansion) {
				t.Errorf("%s %s: %d words in front", c.compiler, c.args, front)
			}
			if text, _ := p.Remote(12, "/"); c.machine != "" && (slices.Contains(text, "-march=native") || text[0] != expansion[0] && !slices.Contains(text, expansion[0])) {
				t.Errorf("%s %s: as text %q", c.compiler, c.args, text)
			}
		}
		if got != c.whole {
			t.Errorf("%s %s: %q, want %q", c.compiler, c.args, got, c.whole)
		}
	}
	for _, cc := range []string{"gcc", "clang"} {
		if p := Parse(words("-mcpu=native -c a.c"), testDriver(t, cc), nil); p.Local != x86 {
			t.Errorf("%s -mcpu=native: local %v, want %v: it is warned of on x86 only", cc, p.Local, x86)
		}
	}
	p := Parse(words("-march=native -c a.c"), testDriver(t, "gcc"), nil)
	if _, reason := p.Native(nil, false, true); reason == "" {
		t.Error("native travels without words")
	}
	p = Parse(words("-march=native -g -c a.c"), testDriver(t, "gcc"), nil)
	if _, reason := p.Native(expansion, true, false); reason == "" {
		t.Error("the order shows in the text form")
	}
}
