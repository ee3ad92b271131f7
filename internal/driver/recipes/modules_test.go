package recipes

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/need"
)

// TestModules: of every clang from 16 on it is known that its compiled modules are read as they are meant, whatever its version. It is
// not of a compiler that makes none, that writes others in their place, or of a script.
func TestModules(t *testing.T) {
	paths, _ := filepath.Glob("/usr/bin/clang++-[0-9]*") // the pattern is right
	real, tried := "", 0
	for _, path := range paths {
		var c ModuleCache
		old := filepath.Base(path) < "clang++-16"
		if got := c.Reads(t.Context(), "id", path, nil); got == old {
			t.Errorf("%s: %v", path, got)
		}
		if !old {
			real = path
			tried++
		}
	}
	if tried == 0 {
		need.Skipf(t, need.Tools, "no clang++ 16 or later with a number in its name")
	}
	dir := t.TempDir()
	build := func(name, code string) string {
		source := filepath.Join(dir, name+".go")
		if err := os.WriteFile(source, []byte("package main\n\nimport (\n\t\"os\"\n\t\"os/exec\"\n)\n\nfunc main() {\n"+code+"}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(dir, name), source)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return filepath.Join(dir, name)
	}
	run := "\tif err := exec.Command(\"" + real + "\", os.Args[1:]...).Run(); err != nil {\n\t\tos.Exit(1)\n\t}\n"
	for name, code := range map[string]string{
		"honest":  run,
		"another": run + "\tb, _ := os.ReadFile(\"a.pcm\")\n\t_ = os.WriteFile(os.Args[3], b, 0o600)\n", // each module is the first one
		"none":    run + "\t_ = os.Remove(os.Args[3])\n",
		"short":   run + "\t_ = os.Truncate(os.Args[3], 4096)\n",
		"less":    "\tos.Args = append(os.Args, \"-nostdinc\")\n\tif os.Args[3] == \"b.pcm\" {\n\t\tos.Args = append(os.Args, \"-Iq\", \"-Ir\")\n\t}\n" + run,
	} {
		var c ModuleCache
		if got := c.Reads(t.Context(), "id", build(name, code), nil); got != (name == "honest") {
			t.Errorf("%s: %v", name, got)
		}
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nexec "+real+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var c ModuleCache
	if c.Reads(t.Context(), "id", script, nil) {
		t.Error("a script is believed")
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "rdistcc-modules-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
