package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestAssemblerTells: gcc's assembler says what it reads; clang's own does not, nor does one that has other options.
func TestAssemblerTells(t *testing.T) {
	var c AssemblerCache
	env := os.Environ()
	tells := func(name string) bool {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("no %s", name)
		}
		return c.Tells(t.Context(), name, path, env)
	}
	t.Run("gcc", func(t *testing.T) {
		if !tells("gcc") {
			t.Error("gcc's assembler does not tell what it reads")
		}
	})
	t.Run("clang", func(t *testing.T) {
		if tells("clang") {
			t.Error("clang's assembler tells what it reads")
		}
	})
	t.Run("none", func(t *testing.T) {
		if c.Tells(t.Context(), "none", filepath.Join(t.TempDir(), "none"), env) {
			t.Error("an assembler that is not there tells what it reads")
		}
	})
}
