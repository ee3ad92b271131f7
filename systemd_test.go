package rdistcc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// systemd itself reads the units, as `make install` writes them.
func TestUnitsAreValid(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		need.Skipf(t, need.Tools, "systemd-analyze is not installed")
	}
	units, err := filepath.Glob("deploy/systemd/*/*")
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	prefix := t.TempDir()
	if err := os.Mkdir(filepath.Join(prefix, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"verify", "--man=no"}
	for _, u := range units {
		text, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		installed := strings.ReplaceAll(string(text), "@PREFIX@", prefix)
		for _, line := range strings.Split(installed, "\n") {
			if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
				program, _, _ := strings.Cut(command, " ")
				if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
		path := filepath.Join(prefix, filepath.Base(u))
		if err := os.WriteFile(path, []byte(installed), 0o644); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	// It says what it does not understand, and still succeeds.
	if out, err := exec.Command(analyze, args...).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
