package compile

import (
	"errors"
	"os"
	"testing"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// TestPlaceClangModule: clang 16 replaces a compiled module, clang 19 writes into it. Place makes one where both leave the
// same, and leaves everything else as it is.
func TestPlaceClangModule(t *testing.T) {
	for name, start := range starts(t) {
		dir := t.TempDir() + "/"
		start(dir, "a.pcm")
		p := &Plan{Driver: testDriver(t, "clang++"), Outputs: []unit.Output{{Kind: unit.OutputObject, Name: dir + "a.o"}, {Kind: unit.OutputModule, Name: dir + "a.pcm"}}}
		content := dir + "content"
		must(t, os.WriteFile(content, []byte("CPCH new"), 0o600))
		f, err := os.Open(content)
		must(t, err)
		before, _ := os.Lstat(dir + "a.pcm")
		err = p.Place(p.Outputs[1], int(f.Fd()), 0, 8)
		must(t, f.Close())
		text, _ := os.ReadFile(dir + "a.pcm")
		after, _ := os.Lstat(dir + "a.pcm")
		switch {
		case before == nil && (err != nil || string(text) != "CPCH new"):
			t.Errorf("%s: %q, %v", name, text, err)
		case before == nil:
		case before.Mode() != after.Mode():
			t.Errorf("%s: mode %v, was %v", name, after.Mode(), before.Mode())
		case err == nil && (!before.Mode().IsRegular() || before.Mode() != mode(t, content+"2")):
			t.Errorf("%s: was written, a file of mode %v", name, before.Mode())
		case err != nil && !errors.Is(err, ErrPlace):
			t.Errorf("%s: %v", name, err)
		case err != nil && !os.SameFile(before, after):
			t.Errorf("%s: %v, and another file", name, err)
		}
	}
	p := &Plan{Driver: testDriver(t, "clang++")}
	if out := (unit.Output{Kind: unit.OutputModule, Name: t.TempDir() + "/none/a.pcm"}); p.CanPlace(out, 1) == nil {
		t.Error("clang makes no directory for a compiled module")
	}
}

// mode returns the mode of a new file.
func mode(t *testing.T, name string) os.FileMode {
	f, err := os.Create(name)
	must(t, err)
	must(t, f.Close())
	st, err := os.Stat(name)
	must(t, err)
	return st.Mode()
}
