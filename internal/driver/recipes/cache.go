// Package recipes asks gcc drivers which programs they would run, and keeps the
// answers (package driver).
package recipes

import (
	"context"
	"hash/maphash"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// Bounds of a Cache. A build has a handful of option sets, and a recipe takes
// some 2 KB: a full cache is 1 MB.
const (
	maxRecipes = 512
	maxSeen    = 8192
)

// Cache keeps recipes by compiler and options. Its zero value is ready for concurrent use.
type Cache struct {
	recipes memo[*driver.Recipe] // nil: run the driver

	mu   sync.Mutex
	seen map[uint64]bool // guarded by mu: sets that were asked for once
}

// Get returns the recipe for args of the compiler at path, identified by id, or nil, which means that the
// driver must be run. The driver is asked when a set of options comes for the second time, as some builds
// give every source a set of its own. The answer of a compiler that has been replaced is never found, as
// its id differs.
func (c *Cache) Get(ctx context.Context, id, path string, args, env []string, dir string) *driver.Recipe {
	k := key(id, path, args, env)
	if _, asked := c.recipes.known(k); !asked && c.isNew(k) {
		return nil
	}
	return c.get(ctx, k, path, args, env, dir)
}

// Need is Get for a command that cannot do without a recipe: the driver is asked at once.
func (c *Cache) Need(ctx context.Context, id, path string, args, env []string, dir string) *driver.Recipe {
	return c.get(ctx, key(id, path, args, env), path, args, env, dir)
}

// Runner runs the driver with args, and returns what it prints on standard error.
type Runner func(args []string) (stderr string, err error)

// GetBy is Get, or Need, for a caller that runs the driver itself: args may be the words of an untrusted
// client. -### executes nothing, but a driver reads files and writes temporary ones.
func (c *Cache) GetBy(id, path string, args, env []string, need bool, run Runner) *driver.Recipe {
	k := key(id, path, args, env)
	if _, asked := c.recipes.known(k); !need && !asked && c.isNew(k) {
		return nil
	}
	return c.recipes.get(k, maxRecipes, func() *driver.Recipe {
		if isScript(path) {
			return nil
		}
		text, err := run(append([]string{"-###"}, args...))
		if err != nil {
			return nil
		}
		r, err := driver.Parse(text)
		if err != nil {
			return nil
		}
		return r
	})
}

func (c *Cache) get(ctx context.Context, key, path string, args, env []string, dir string) *driver.Recipe {
	return c.recipes.get(key, maxRecipes, func() *driver.Recipe {
		r, err := Expand(ctx, path, args, env, dir)
		if err != nil {
			return nil
		}
		return r
	})
}

func key(id, path string, args, env []string) string {
	return id + "\x00" + path + "\x00" + strings.Join(args, "\x00") + "\x01" + strings.Join(env, "\x00")
}

// Len returns the number of option sets about which a driver was asked.
func (c *Cache) Len() int { return c.recipes.len() }

// isNew reports whether key comes for the first time.
func (c *Cache) isNew(key string) bool {
	sum := maphash.String(seed, key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[sum] {
		return false
	}
	if c.seen == nil || len(c.seen) >= maxSeen {
		c.seen = make(map[uint64]bool)
	}
	c.seen[sum] = true
	return true
}

var seed = maphash.MakeSeed()

// Expand asks the driver at path what it would run for args, with the environment env and in the directory
// dir. args must name driver.Source as the only input. The error is driver.ErrNotPlain if the command needs
// the driver itself, and for scripts, which might do more than answer.
func Expand(ctx context.Context, path string, args, env []string, dir string) (*driver.Recipe, error) {
	a := asker{ctx, path, env, dir}
	_, text, err := a.ask("", append([]string{"-###"}, args...)...)
	if err != nil {
		return nil, err
	}
	return driver.Parse(text)
}
