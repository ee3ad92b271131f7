package recipes

import (
	"bytes"
	"context"
	"os/exec"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/driver"
)

// maxSearch bounds a SearchCache: a compiler has a handful of languages.
const maxSearch = 256

// SearchCache keeps where compilers look for headers by themselves. Its zero value
// is ready for use, by any number of goroutines.
type SearchCache struct {
	mu   sync.Mutex
	dirs map[string]*search // guarded by mu
}

type search struct {
	once sync.Once
	dirs []string // written once, under the cache's mu; nil: not known, or it did not say
}

// Get returns the directories, in order, where the compiler at path, identified by
// id, looks for headers of a language (as -x names it). Without ask it returns
// nil where nobody has asked yet; else the compiler is run once, which takes some
// milliseconds. nil is also the answer of a compiler that does not tell.
func (c *SearchCache) Get(ctx context.Context, id, path, language string, env []string, ask bool) []string {
	key := id + "\x00" + path + "\x00" + language
	c.mu.Lock()
	s := c.dirs[key]
	if s == nil && ask {
		if c.dirs == nil || len(c.dirs) >= maxSearch {
			c.dirs = make(map[string]*search)
		}
		s = &search{}
		c.dirs[key] = s
	}
	if !ask {
		defer c.mu.Unlock()
		if s == nil {
			return nil
		}
		return s.dirs
	}
	c.mu.Unlock()
	s.once.Do(func() {
		dirs := askSearch(ctx, path, language, env)
		c.mu.Lock()
		s.dirs = dirs
		c.mu.Unlock()
	})
	return s.dirs
}

func askSearch(ctx context.Context, path, language string, env []string) []string {
	if isScript(path) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	c := exec.CommandContext(ctx, path, driver.SearchWords(language)...)
	c.Env, c.Dir = env, "/"
	var out bytes.Buffer
	c.Stderr = &out
	if c.Run() != nil {
		return nil
	}
	return driver.ParseSearch(out.String())
}
