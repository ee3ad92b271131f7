package rdistcc

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/farmtest"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
)

// TestInstallAndUninstall: what `make` has built is installed without Go, as by root with sudo, and uninstall leaves nothing
// of it behind, but other files.
func TestInstallAndUninstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the programs")
	}
	part.Skip(t)
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	tree, dest := t.TempDir(), t.TempDir()
	for _, dir := range []string{"deploy", "man", "docs"} {
		if err := os.CopyFS(filepath.Join(tree, dir), os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "Makefile", "go.mod") {
		text, err := os.ReadFile(file)
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, file), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// make looks for the programs' sources to know their names.
	if err := errors.Join(os.CopyFS(filepath.Join(tree, "cmd"), os.DirFS("cmd")), os.CopyFS(filepath.Join(tree, "lab"), os.DirFS("lab")), os.Symlink(farmtest.Programs(t), filepath.Join(tree, "bin"))); err != nil {
		t.Fatal(err)
	}
	run := func(target string) {
		t.Helper()
		cmd := exec.Command("make", target, "GO=/nowhere/go", "SUDO_USER=somebody", "DESTDIR="+dest, "PREFIX=/usr")
		cmd.Dir = tree
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
	}
	run("install")
	for _, name := range []string{"bin/rdistcc", "lib/rdistcc/gcc", "share/man/man1/rdistcc.1", "lib/systemd/system/rdistccd.service", "share/doc/rdistcc/README.md"} {
		if _, err := os.Lstat(filepath.Join(dest, "usr", name)); err != nil {
			t.Errorf("not installed: %v", err)
		}
	}
	other := filepath.Join(dest, "usr/bin/other")
	if err := os.WriteFile(other, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	run("uninstall")
	err = filepath.WalkDir(dest, func(path string, d fs.DirEntry, err error) error {
		if err == nil && (path != other && !d.IsDir() || d.IsDir() && strings.Contains(d.Name(), "rdistcc")) {
			t.Errorf("left: %s", path)
		}
		return err
	})
	if _, there := os.Stat(other); err != nil || there != nil {
		t.Error(err, there)
	}
}

// TestOldGo: a Go that cannot read go.mod gets one line that says which version to install, and no other does.
func TestOldGo(t *testing.T) {
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("make is not installed")
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for version, old := range map[string]bool{"1.9": true, "1.18.1": true, "1.19.8": true, "1.20": true, "1.20.14": true, "1.21.0": false, "1.26rc1": false, "1.100": false} {
		dir := t.TempDir()
		bin := filepath.Join(dir, "go")
		script := "#!/bin/sh\n[ \"$1\" = version ] && echo go version go" + version + " linux/amd64\nexit 0\n"
		if err := errors.Join(os.WriteFile(bin, []byte(script), 0o755), os.Symlink(root+"/go.mod", dir+"/go.mod")); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("make", "-f", root+"/Makefile", "all", "GO="+bin)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		said := strings.Contains(string(out), "go"+version+" is too old: install Go 1.")
		if said != old || (err != nil) != old {
			t.Errorf("Go %s: %v: %s", version, err, out)
		}
	}
}
