package farm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Build builds programs into dir as `make` does, all of them if none is named, with
// further flags of the go command's. It is for tests, which may be run without make.
//
// `go run` keeps what it has linked in the build cache, while `go build` links anew each
// time: a dozen tests begin with this.
func Build(ctx context.Context, dir string, flags []string, programs ...string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	if err := look(root); err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(root, "cmd", "*"))
	if err != nil {
		return err
	}
	at := make(map[string]string) // the directory of each program, in the module
	for _, d := range append(dirs, filepath.Join(root, "lab", "rdistcc-perf")) {
		at[filepath.Base(d)] = strings.TrimPrefix(d, root)
	}
	if len(programs) == 0 {
		programs = slices.Sorted(maps.Keys(at))
	}
	errs := make([]error, len(programs))
	var wait sync.WaitGroup
	for i, p := range programs {
		wait.Go(func() {
			args := slices.Concat([]string{"run", "-trimpath", "-exec", "cp -t '" + dir + "'"}, link(p), flags)
			cmd := exec.CommandContext(ctx, "go", append(args, "github.com/rdistcc/rdistcc"+filepath.ToSlash(at[p]))...)
			cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
			if out, err := cmd.CombinedOutput(); err != nil {
				errs[i] = fmt.Errorf("build of %s: %w: %s", p, err, strings.TrimSpace(string(out)))
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// link returns the flags of the go command's by which a program is linked as `make` does.
func link(program string) []string {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil
	}
	begin := map[string]string{"rdistcc": "pkg/connmgr/quick.start", "rdistcc-cm": "internal/entrypoint.long", "rdistccd": "internal/entrypoint.long"}[program]
	if begin == "" {
		return nil
	}
	return []string{"-ldflags=-E github.com/rdistcc/rdistcc/" + begin}
}

// moduleRoot returns the directory of go.mod, which is this one or above.
func moduleRoot() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("no go.mod in %s or above", wd)
		}
	}
}

// look reads the directories of the programs' sources: the go command takes what
// a test has read for its inputs, and shows a cached result only while they are
// as they were.
func look(root string) error {
	for _, dir := range []string{"cmd", "internal", "lab", "pkg"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}
