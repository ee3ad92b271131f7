package recipes

import (
	"context"

	"github.com/rdistcc/rdistcc/pkg/driver"
)

// maxSearch bounds a SearchCache: a compiler has a handful of languages.
const maxSearch = 256

// SearchCache keeps where compilers look for headers by themselves. Its zero value
// is ready for use, by any number of goroutines.
type SearchCache struct {
	dirs memo[[]string] // nil: it did not say
}

// Get returns the directories, in order, where the compiler at path, identified by
// id, looks for headers of a language (as -x names it). Without ask it returns
// nil where nobody has asked yet; else the compiler is run once, which takes some
// milliseconds. nil is also the answer of a compiler that does not tell.
func (c *SearchCache) Get(ctx context.Context, id, path, language string, env []string, ask bool) []string {
	key := id + "\x00" + path + "\x00" + language
	if !ask {
		dirs, _ := c.dirs.known(key)
		return dirs
	}
	return c.dirs.get(key, maxSearch, func() []string {
		a := asker{ctx, path, env, "/"}
		_, text, err := a.ask("", driver.SearchWords(language)...)
		if err != nil {
			return nil
		}
		return driver.ParseSearch(text)
	})
}
