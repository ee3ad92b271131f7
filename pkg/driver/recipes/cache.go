// Package recipes asks gcc drivers which programs they would run, and keeps the
// answers (package driver).
package recipes

import (
	"bytes"
	"context"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/driver"
)

// Bounds of a Cache. A build has a handful of option sets, and a recipe takes
// some 2 KB: a full cache is 1 MB.
const (
	maxRecipes = 512
	maxSeen    = 8192
)

// Cache keeps recipes by compiler and options. Its zero value is ready for use,
// by any number of goroutines.
type Cache struct {
	mu      sync.Mutex
	seen    map[uint64]bool   // guarded by mu: sets that were asked for once
	recipes map[string]*entry // guarded by mu
}

type entry struct {
	once   sync.Once
	recipe *driver.Recipe // nil: run the driver
}

// Get returns the recipe for args of the compiler at path, identified by id, or
// nil: then run the driver. The driver is asked when a set of options comes for
// the second time, as some builds give every source a set of its own. The
// answer of a compiler that has been replaced is never found: its id differs.
func (c *Cache) Get(ctx context.Context, id, path string, args, env []string, dir string) *driver.Recipe {
	e := c.entry(key(id, path, args, env), false)
	if e == nil {
		return nil
	}
	return e.get(ctx, path, args, env, dir)
}

// Need is Get for a command that cannot do without: the driver is asked at once.
func (c *Cache) Need(ctx context.Context, id, path string, args, env []string, dir string) *driver.Recipe {
	return c.entry(key(id, path, args, env), true).get(ctx, path, args, env, dir)
}

func key(id, path string, args, env []string) string {
	return id + "\x00" + path + "\x00" + strings.Join(args, "\x00") + "\x01" + strings.Join(env, "\x00")
}

func (e *entry) get(ctx context.Context, path string, args, env []string, dir string) *driver.Recipe {
	e.once.Do(func() {
		if r, err := Expand(ctx, path, args, env, dir); err == nil {
			e.recipe = r
		}
	})
	return e.recipe
}

// Len returns the number of option sets whose driver was asked.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.recipes)
}

// entry returns the place of a recipe; nil at the first time, unless at once.
func (c *Cache) entry(key string, atOnce bool) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.recipes[key]; e != nil {
		return e
	}
	if sum := maphash.String(seed, key); !c.seen[sum] && !atOnce {
		if c.seen == nil || len(c.seen) >= maxSeen {
			c.seen = make(map[uint64]bool)
		}
		c.seen[sum] = true
		return nil
	}
	if c.recipes == nil || len(c.recipes) >= maxRecipes {
		// Starting over is rare, simple, and costs one driver run an option set.
		c.recipes = make(map[string]*entry)
	}
	e := &entry{}
	c.recipes[key] = e
	return e
}

var seed = maphash.MakeSeed()

// askLimit bounds one question, which takes a driver 1 ms.
const askLimit = 2 * time.Second

// Expand asks the driver at path what it would run for args, with the
// environment env and in the directory dir. args must name driver.Source as the
// only input. driver.ErrNotPlain: the command needs the driver itself, as does
// all that is a script, which might do more than answer.
func Expand(ctx context.Context, path string, args, env []string, dir string) (*driver.Recipe, error) {
	if isScript(path) {
		return nil, driver.ErrNotPlain
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	c := exec.CommandContext(ctx, path, append([]string{"-###"}, args...)...)
	c.Env, c.Dir = env, dir
	var out bytes.Buffer
	c.Stderr = &out
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s -###: %w", path, err)
	}
	return driver.Parse(out.String())
}

func isScript(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var start [2]byte
	_, err = io.ReadFull(f, start[:])
	return err != nil || string(start[:]) == "#!"
}
