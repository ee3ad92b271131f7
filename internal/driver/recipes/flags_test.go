package recipes

import (
	"os/exec"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestFlags: a compiler tells which words are flags of its target or optimizations, and what it does not know, or what may
// write files, is none.
func TestFlags(t *testing.T) {
	for cc, words := range map[string]map[string]bool{
		"gcc": {"-mavx2": true, "-mno-avx2": true, "-mtune=haswell": true, "-ftree-vectorize": true, "-fno-tree-vectorize": true,
			"-mno-such-feature": false, "-fno-such-flag": false, "-fstack-usage": false, "-fcallgraph-info": false, "-m": false},
		"clang": {"-mavx2": true, "-mno-avx2": true, "-mno-such-feature": false, "-mllvm": false, "-fapinotes": false, "-fno-such-flag": false},
	} {
		t.Run(cc, func(t *testing.T) {
			part.SkipCase(t)
			path, err := exec.LookPath(cc)
			if err != nil {
				need.Skipf(t, need.Tools, "no %s", cc)
			}
			if out, err := exec.Command(path, "-dumpmachine").Output(); err != nil || string(out[:min(6, len(out))]) != "x86_64" {
				t.Skip("the words are x86's")
			}
			var c FlagCache
			for w, want := range words {
				if got := c.Takes(t.Context(), "id", path, cc, w, []string{"PATH=/usr/bin:/bin", "LC_ALL=C"}); got != want {
					t.Errorf("%s is taken for a flag: %v", w, got)
				}
			}
			lies := func([]string) (string, error) { return " \"cc1\" \"-quiet\" \"-plugin\" \"x.so\"\n", nil }
			if cc == "gcc" && c.TakesBy("liar", path, cc, "-mnew", lies) {
				t.Error("an answer without the word was believed")
			}
		})
	}
}
