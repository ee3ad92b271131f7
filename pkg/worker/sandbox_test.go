package worker

import (
	"os"
	"path/filepath"
	"testing"
)

// TestClosedTo: a directory that compiles of another user could not get to is found
// before they fail there.
func TestClosedTo(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{filepath.Dir(dir), dir, filepath.Join(dir, "a"), inner} {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	if got := closedTo(inner); got != "" {
		t.Errorf("%s is closed by %s", inner, got)
	}
	if err := os.Chmod(filepath.Join(dir, "a"), 0o750); err != nil {
		t.Fatal(err)
	}
	if got := closedTo(inner); got != filepath.Join(dir, "a") {
		t.Errorf("closed by %q", got)
	}
}
