package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestAssemblerTells: gcc's assembler says what it reads; clang's own does not.
func TestAssemblerTells(t *testing.T) {
	var c AssemblerCache
	for name, want := range map[string]bool{"gcc": true, "clang": false} {
		t.Run(name, func(t *testing.T) {
			path, err := exec.LookPath(name)
			if err != nil {
				need.Skipf(t, need.Tools, "no %s", name)
			}
			if got := c.Tells(t.Context(), name, path, os.Environ()); got != want {
				t.Errorf("its assembler tells what it reads: %t, want %t", got, want)
			}
		})
	}
	if c.Tells(t.Context(), "none", filepath.Join(t.TempDir(), "none"), os.Environ()) {
		t.Error("an assembler that is not there tells what it reads")
	}
}
