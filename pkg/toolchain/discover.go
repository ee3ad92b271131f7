package toolchain

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
)

// Discover identifies the compilers in directories, by path. Of several
// names of one toolchain the first is kept: gcc rather than gcc-12 for the same
// file. A directory that is not there is skipped; a compiler that cannot be
// identified is given to skipped, if that is not nil.
func (c *Cache) Discover(ctx context.Context, dirs []string, skipped func(path string, err error)) ([]Toolchain, error) {
	paths, err := candidates(dirs)
	if err != nil {
		return nil, err
	}
	found := make([]Toolchain, len(paths))
	errs := make([]error, len(paths))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, path := range paths {
		g.Go(func() error {
			found[i], errs[i] = c.Identify(ctx, path)
			return nil
		})
	}
	_ = g.Wait() // they keep their errors
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var list []Toolchain
	for i := range found {
		switch {
		case errs[i] != nil && skipped != nil:
			skipped(paths[i], errs[i])
		case errs[i] == nil && !slices.ContainsFunc(list, func(t Toolchain) bool { return t.ID == found[i].ID }):
			list = append(list, found[i])
		}
	}
	return list, nil
}

// candidates lists what may be compilers in directories, one name for each that
// could be a toolchain of its own.
func candidates(dirs []string) ([]string, error) {
	type key struct{ dir, real, name string }
	seen := make(map[key]bool)
	var paths []string
	add := func(path string) {
		if !compilerName(filepath.Base(path)) || !executable(path) {
			return
		}
		k := key{dir: filepath.Dir(path)}
		k.real, _ = filepath.EvalSymlinks(path) // executable has looked at it
		if strings.Contains(k.real, "clang") {
			k.name, _ = cutVersion(filepath.Base(path)) // one program goes by many names
		}
		if !seen[k] {
			seen[k] = true
			paths = append(paths, path)
		}
	}
	for _, dir := range dirs {
		names, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("look for compilers: %w", err)
		}
		for _, d := range names {
			path := filepath.Join(dir, d.Name())
			add(path)
			// A driver may go by the directory that it was called from, so it is
			// another one at the other end of its link.
			if to := linked(path); to != "" {
				add(to)
			}
		}
	}
	return paths, nil
}

// linked is what a link names in another directory, or empty. Debian's
// alternatives lead back to where the link was.
func linked(path string) string {
	to, err := os.Readlink(path)
	if err != nil {
		return ""
	}
	if !filepath.IsAbs(to) {
		to = filepath.Join(filepath.Dir(path), to)
	}
	if filepath.Dir(to) == filepath.Dir(path) || strings.HasPrefix(to, "/etc/") {
		return ""
	}
	return to
}

func executable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}
