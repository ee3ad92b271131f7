// Package recipes asks gcc drivers which programs they would run, and keeps the
// answers (package driver).
package recipes

import (
	"bytes"
	"fmt"
	"os/exec"
	"strings"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/driver"
)

// cacheLimit bounds the recipes kept. A build has a handful of option sets; at
// some 2 KB each a full cache is 1 MB.
const cacheLimit = 512

// Cache keeps recipes by compiler and options. Its zero value is ready for use,
// by any number of goroutines.
type Cache struct {
	mu      sync.Mutex
	recipes map[string]*entry // guarded by mu
}

type entry struct {
	once   sync.Once
	recipe *driver.Recipe
	err    error
}

// Get returns the recipe for args of the compiler at path, identified by id;
// the first call for a set of options asks the driver (see Expand). The answer
// of a compiler that has been replaced is never found: its id differs.
func (c *Cache) Get(id, path string, args, env []string, dir string) (*driver.Recipe, error) {
	e := c.entry(id + "\x00" + path + "\x00" + strings.Join(args, "\x00") + "\x01" + strings.Join(env, "\x00"))
	e.once.Do(func() { e.recipe, e.err = Expand(path, args, env, dir) })
	return e.recipe, e.err
}

func (c *Cache) entry(key string) *entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.recipes[key]; e != nil {
		return e
	}
	if c.recipes == nil || len(c.recipes) >= cacheLimit {
		// Starting over is rare, simple, and costs one driver run an option set.
		c.recipes = make(map[string]*entry)
	}
	e := &entry{}
	c.recipes[key] = e
	return e
}

// Expand asks the driver at path what it would run for args, with the
// environment env and in the directory dir. args must name driver.Source as the
// only input. driver.ErrNotPlain: the command needs the driver itself.
func Expand(path string, args, env []string, dir string) (*driver.Recipe, error) {
	c := exec.Command(path, append([]string{"-###"}, args...)...)
	c.Env, c.Dir = env, dir
	var out bytes.Buffer
	c.Stderr = &out
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%s -###: %w", path, err)
	}
	return driver.Parse(out.String())
}
