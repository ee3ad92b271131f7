package compile

import (
	"slices"
	"testing"
)

// TestAskable: a compiler is asked about words that look like flags for code, not about what is in the tables, names a file,
// or sounds like it.
func TestAskable(t *testing.T) {
	for w, want := range map[string]bool{
		"-mno-avx999": true, "-mavx99.2": true, "-mtune-more=fast": true, "-ftree-improve": true, "-fno-tree-improve": true,
		"-mavx2": false, "-fstack-usage": false, "-fno-stack-usage": false, "-mllvm": false, "-ftree-improve=2": false, "-mnew=/etc/x": false, "-mnew=": false,
		"-mnew,x": false, "-fdump-new": false, "-fplugin-new": false, "-fnew-map": false, "-m": false, "-Wnew": false, "--mnew": false, "-mNEW": false, "@mnew": false, "-f-": false,
	} {
		if Askable(w) != want {
			t.Errorf("%s: asked about: %v", w, !want)
		}
	}
	d := testDriver(t, "gcc")
	argv := []string{"-mno-avx999", "-O2", "-c", "a.c"}
	if p := Parse(argv, d, nil); !p.Local || p.Reason != "unknown-option:-mno-avx999" || p.Unlisted != nil {
		t.Errorf("%v %q %q", p.Local, p.Reason, p.Unlisted)
	}
	p := ParseUnlisted(argv, d, nil)
	if p.Local || !slices.Equal(p.Unlisted, argv[:1]) {
		t.Errorf("%v %q %q", p.Local, p.Reason, p.Unlisted)
	}
	if words, _ := p.Remote(12, "/"); !slices.Contains(words, argv[0]) {
		t.Errorf("the host would not get it: %q", words)
	}
}
