package recipes

import (
	"context"
	"slices"
	"strings"

	"github.com/rdistcc/rdistcc/internal/driver"
)

// maxSearch bounds a SearchCache: a compiler has a handful of languages.
const maxSearch = 256

// SearchCache keeps where compilers look for headers by themselves. Its zero value is ready for concurrent use.
type SearchCache struct {
	dirs memo[Search]
}

// Search says where a compiler looks for headers by itself.
type Search struct {
	Dirs    []string // in order; nil: it does not say
	Missing []string // would be in Dirs if they existed
}

// Get returns where the compiler at path, identified by id, looks for headers of a language (as -x names
// it) by itself, when called with words. Without ask it returns nothing if the compiler has not been asked
// yet; otherwise it runs the compiler once, which takes some milliseconds.
func (c *SearchCache) Get(ctx context.Context, id, path, language string, words, env []string, ask bool) Search {
	return c.by(ctx, id, path, language, words, env, ask, func() []string {
		return append(slices.Clone(words), driver.SearchWords(language)...)
	})
}

// Tidy does the same for clang-tidy and words for the driver in it.
func (c *SearchCache) Tidy(ctx context.Context, id, path, language string, words, env []string, ask bool) Search {
	return c.by(ctx, id, path, language, words, env, ask, func() []string { return driver.TidySearchWords(words, language) })
}

// by does the work of Get by running the program with argv.
func (c *SearchCache) by(ctx context.Context, id, path, language string, words, env []string, ask bool, argv func() []string) Search {
	key := searchKey(id, path, language, words)
	if !ask {
		s, _ := c.dirs.known(key)
		return s
	}
	return c.dirs.get(key, maxSearch, func() Search {
		a := asker{ctx, path, env, "/"}
		_, text, err := a.ask("", argv()...)
		if err != nil {
			return Search{}
		}
		return Search{driver.ParseSearch(text), driver.ParseMissing(text)}
	})
}

// Forget makes the next Get ask the compiler again.
func (c *SearchCache) Forget(id, path, language string, words []string) {
	c.dirs.forget(searchKey(id, path, language, words))
}

func searchKey(id, path, language string, words []string) string {
	return id + "\x00" + path + "\x00" + language + "\x00" + strings.Join(words, "\x00")
}
