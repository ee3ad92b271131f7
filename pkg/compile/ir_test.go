package compile

import (
	"os"
	"testing"
)

// TestMissingIndex: without the index of ThinLTO, clang 22 reports success and leaves an empty object, which no host's result is taken for.
func TestMissingIndex(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/a.o", []byte("text"), 0o666))
	for index, why := range map[string]string{"a.idx": "not-reproducible:input-file", "/dev/null": "", "there": ""} {
		must(t, os.WriteFile(dir+"/there", nil, 0o666))
		p := Parse(words("-c a.o -fthinlto-index="+index+" -o b.o"), testDriver(t, "clang"), nil)
		if got := p.FindModules(dir, nil); p.Local || got != why {
			t.Errorf("%s: %q, want %q; %s", index, got, why, p.Reason)
		}
	}
}
