package farm

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Build builds the programs into dir as `make` does, for tests, which may be
// run without it.
func Build(ctx context.Context, dir string) error {
	args := []string{"build", "-trimpath", "-o", dir + "/"}
	for _, p := range []string{"rdistcc", "rdistcc-cm", "rdistccd"} {
		args = append(args, "github.com/rdistcc/rdistcc/cmd/"+p)
	}
	if err := look(); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// look reads the directories of the programs' sources: the go command takes what
// a test has read for its inputs, and shows a cached result only while they are
// as they were.
func look() error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			return nil // not called in the module: nothing is cached for it
		}
		root = filepath.Dir(root)
	}
	for _, dir := range []string{"cmd", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}
