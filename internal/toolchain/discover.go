package toolchain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// Discovery is what Discover has found so far.
type Discovery struct {
	List    []Toolchain      // identified, by path, each toolchain once
	Skipped map[string]error // compilers that cannot be identified, by path; not to be changed
	Left    int              // number of compilers still to be identified
}

const (
	// overdue is how long a compiler may take to be identified before the next one is asked in parallel:
	// it hangs, or waits for something slow.
	overdue = 500 * time.Millisecond
	// maxAsked bounds how many are asked at a time, including those that hang.
	maxAsked = 64
)

// Discover identifies the compilers in directories. Of several names of one toolchain it keeps the first by
// path: gcc rather than gcc-12 for the same file. A missing directory is skipped; one that cannot be read is
// among those Skipped. The error is that of ctx.
//
// progress, if it is not nil, is called with what is known from the files alone, before any compiler is asked,
// and then after each one that was. Calls do not overlap. The last Discovery, with none left, is the result.
func (c *Cache) Discover(ctx context.Context, dirs []string, progress func(Discovery)) (Discovery, error) {
	paths, unread := candidates(dirs)
	type answer struct {
		i    int
		tc   Toolchain
		err  error
		with []Toolchain // the same with plugins
	}
	known := make([]*answer, len(paths))
	var ask []int
	for i, path := range paths {
		if tc, err, ok := c.Known(path); ok {
			known[i] = &answer{i, tc, err, c.WithPlugins(ctx, &tc)}
		} else {
			ask = append(ask, i)
		}
	}
	left := len(ask)
	sum := func() Discovery {
		d := Discovery{Left: left, Skipped: maps.Clone(unread)}
		ids := make(map[unit.ToolchainID]bool)
		for i, a := range known {
			switch {
			case a == nil:
			case a.err != nil:
				d.Skipped[paths[i]] = a.err
			case a.tc.fit() != nil:
				d.Skipped[paths[i]] = a.tc.fit()
			case !ids[a.tc.ID]:
				ids[a.tc.ID] = true
				d.List = append(d.List, a.tc)
			}
		}
		for _, a := range known { // after all others, as whoever looks for a name means the plain one
			if a == nil || a.tc.fit() != nil {
				continue
			}
			for _, tc := range a.with {
				if !ids[tc.ID] {
					ids[tc.ID] = true
					d.List = append(d.List, tc)
				}
			}
		}
		return d
	}
	if progress != nil {
		progress(sum())
	}
	// The plainest names first: they are what most commands use.
	slices.SortStableFunc(ask, func(a, b int) int {
		return cmp.Compare(len(filepath.Base(paths[a])), len(filepath.Base(paths[b])))
	})
	answers := make(chan answer, len(ask))
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		turns, room := make(chan struct{}, runtime.GOMAXPROCS(0)), make(chan struct{}, maxAsked)
		for _, i := range ask {
			for _, c := range []chan struct{}{room, turns} {
				select {
				case c <- struct{}{}:
				case <-ctx.Done():
					return
				}
			}
			asking.Go(func() {
				var once sync.Once
				next := func() { once.Do(func() { <-turns }) }
				late := time.AfterFunc(overdue, next)
				tc, err := c.Identify(ctx, paths[i])
				late.Stop()
				next()
				<-room
				var with []Toolchain
				if err == nil {
					with = c.WithPlugins(ctx, &tc)
				}
				answers <- answer{i, tc, err, with}
			})
		}
	})
	for left > 0 {
		select {
		case a := <-answers:
			known[a.i] = &a
			left--
			if ctx.Err() != nil {
				return Discovery{}, context.Cause(ctx)
			}
			if progress != nil {
				progress(sum())
			}
		case <-ctx.Done():
			return Discovery{}, context.Cause(ctx)
		}
	}
	return sum(), nil
}

// candidates lists what may be compilers in directories, one name for each that could be a toolchain of its
// own, and the directories that cannot be read.
func candidates(dirs []string) ([]string, map[string]error) {
	type key struct{ dir, real, name string }
	seen := make(map[key]bool)
	var paths []string
	unread := make(map[string]error)
	add := func(path string) {
		if !compilerName(filepath.Base(path)) || !executable(path) {
			return
		}
		k := key{dir: filepath.Dir(path)}
		k.real, _ = filepath.EvalSymlinks(path) // executable has checked it
		if strings.Contains(k.real, "clang") {
			k.name, _ = cutVersion(filepath.Base(path)) // one program has many names
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
			unread[dir] = fmt.Errorf("look for compilers: %w", err)
			continue
		}
		for _, d := range names {
			path := filepath.Join(dir, d.Name())
			add(path)
			// A driver may act by the directory that it was called from, so at the other end of its link it is
			// another one. clang-tidy asks the kernel where it is.
			if to := linked(path); to != "" && !isTidy(to) {
				add(to)
			}
		}
	}
	return paths, unread
}

// linked returns the name in another directory that a link leads to, or "". Debian's alternatives lead back to
// where the link was.
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
