package farm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Build builds the programs into dir as `make` does, for tests, which may be run without it.
func Build(ctx context.Context, dir string) error {
	return BuildOnly(ctx, dir, nil, "rdistcc", "rdistcc-cm", "rdistccd")
}

// BuildOnly builds some programs of cmd into dir, with flags for the go command. `go run` keeps what it has
// linked in the build cache, while `go build` links again each time, and a dozen tests begin with this.
func BuildOnly(ctx context.Context, dir string, flags []string, programs ...string) error {
	if err := look(); err != nil {
		return err
	}
	errs := make([]error, len(programs))
	var wait sync.WaitGroup
	for i, p := range programs {
		wait.Go(func() {
			args := slices.Concat([]string{"run", "-trimpath", "-exec", "cp -t '" + dir + "'"}, Link(p), flags)
			cmd := exec.CommandContext(ctx, "go", append(args, "github.com/rdistcc/rdistcc/cmd/"+p)...)
			cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("build of %s: %w: %s", p, err, strings.TrimSpace(string(out)))
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Link returns the flags of the go command with which a program of cmd is linked as `make` does.
func Link(program string) []string {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil
	}
	begin := map[string]string{"rdistcc": "short", "rdistcc-cm": "long", "rdistccd": "long"}[program]
	if begin == "" {
		return nil
	}
	return []string{"-ldflags=-E github.com/rdistcc/rdistcc/internal/entrypoint." + begin}
}

// look reads the directories of the programs' sources: the go command takes what a test has read for its
// inputs, and reuses a cached result only while they are unchanged.
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
			return nil // not called within the module: nothing is cached for it
		}
		root = filepath.Dir(root)
	}
	for _, dir := range []string{"cmd", "internal", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}
