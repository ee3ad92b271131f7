package wholefile

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	for _, content := range []string{"first, which is long", "second", ""} {
		if err := Replace(name, []byte(content)); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(name); err != nil || string(b) != content {
			t.Errorf("%q, %v, want %q", b, err, content)
		}
	}
	if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	full := filepath.Join(dir, "directory")
	if err := os.MkdirAll(filepath.Join(full, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if Replace(full, nil) == nil || Replace(filepath.Join(dir, "none", "file"), nil) == nil {
		t.Error("a directory was replaced, or one was made")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
