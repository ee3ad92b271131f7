// Package compilers is what the compilers of this machine have been asked: the words that they run
// themselves with, what "native" is here, where they look for headers, how their objects begin. Each
// is asked once.
package compilers

import (
	"context"

	"github.com/rdistcc/rdistcc/pkg/driver/recipes"
	"github.com/rdistcc/rdistcc/pkg/toolchain"
)

// ObjectMaker says how objects begin that a compiler makes with such words; nil where it
// makes none.
type ObjectMaker func(c *Compiler, language string, words []string) []byte

// Table remembers the answers. It is safe for concurrent use.
type Table struct {
	ctx     context.Context // ends questions that are under way
	object  ObjectMaker
	recipes recipes.Cache
	native  recipes.NativeCache
	objects recipes.ObjectCache
	search  recipes.SearchCache
}

// New returns a table that has asked nothing yet; object is the compiler's own word where it
// is nil.
func New(ctx context.Context, object ObjectMaker) *Table {
	if object == nil {
		object = makeObject
	}
	return &Table{ctx: ctx, object: object}
}

// Compiler is one of this machine's.
type Compiler struct {
	toolchain.Toolchain
	path  string // as the command names it, made absolute
	table *Table
}

// Of returns the compiler that a command names with path.
func (t *Table) Of(tc toolchain.Toolchain, path string) Compiler {
	return Compiler{Toolchain: tc, path: path, table: t}
}

// env is all that a driver is told when it is asked for its recipe. The
// variables that would change the answer keep a command from coming here.
var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}

func (c *Compiler) id() string { return string(c.ID[:]) }

// Native returns what those of a command's words stand for that end in "=native"; ok is false
// where that cannot be said.
func (c *Compiler) Native(words []string) (n recipes.Native, ok bool) {
	if len(words) == 0 {
		return n, true
	}
	return c.table.native.Get(c.table.ctx, c.id(), c.path, c.Family, words, env)
}

// Search returns where the compiler looks for headers by itself, if that is known or ask is set.
func (c *Compiler) Search(language string, words []string, ask bool) recipes.Search {
	return c.table.search.Get(c.table.ctx, c.id(), c.path, language, words, env, ask)
}

// Forget has the compiler asked anew for that.
func (c *Compiler) Forget(language string, words []string) {
	c.table.search.Forget(c.id(), c.path, language, words)
}

// Direct returns what the compiler's driver would run for a command of these words, or nil when the
// driver itself has to run.
func (c *Compiler) Direct(words []string) []string {
	if len(words) == 0 || c.Family != "gcc" {
		return nil
	}
	r := c.table.recipes.Get(c.table.ctx, c.id(), c.path, words, env, "/")
	if r == nil || r.Steps() != 1 {
		return nil
	}
	return r.Words(0)
}

// Object returns how objects begin that the compiler makes with such words, or nil.
func (c *Compiler) Object(language string, words []string) []byte {
	return c.table.object(c, language, words)
}

// makeObject has the compiler compile nothing, once for each set of words.
func makeObject(c *Compiler, language string, words []string) []byte {
	return c.table.objects.Get(c.table.ctx, c.id(), c.path, language, words, env)
}
