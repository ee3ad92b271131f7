// Package compilers asks the compilers of this machine about themselves, each question once: which programs
// and words a driver would run, what "native" means here, where they look for headers, how their objects
// begin.
package compilers

import (
	"context"

	"github.com/rdistcc/rdistcc/internal/driver/recipes"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/compile"
)

// ObjectMaker returns the beginning of objects that a compiler makes with these words, or nil if it makes none.
type ObjectMaker func(c *Compiler, language string, words []string) []byte

// Table remembers the answers. It is safe for concurrent use.
type Table struct {
	ctx     context.Context // ends runs of compilers that are under way
	object  ObjectMaker
	recipes recipes.Cache
	native  recipes.NativeCache
	objects recipes.ObjectCache
	search  recipes.SearchCache
	flags   recipes.FlagCache
	modules recipes.ModuleCache
	as      recipes.AssemblerCache
}

// New returns an empty table. If object is nil, the compiler is asked.
func New(ctx context.Context, object ObjectMaker) *Table {
	if object == nil {
		object = makeObject
	}
	return &Table{ctx: ctx, object: object}
}

// Compiler is a compiler of this machine.
type Compiler struct {
	toolchain.Toolchain
	path  string // as the command names it, made absolute
	table *Table
}

// Of returns the compiler that a command names with path.
func (t *Table) Of(tc toolchain.Toolchain, path string) Compiler {
	return Compiler{Toolchain: tc, path: path, table: t}
}

// env is the whole environment of a driver that is asked for its recipe. A command with variables that would
// change the answer does not get here.
var env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}

func (c *Compiler) id() string { return string(c.ID[:]) }

// Native returns what the words of a command that end in "=native" stand for. ok is false if that is not known.
func (c *Compiler) Native(words []string) (n recipes.Native, ok bool) {
	if len(words) == 0 {
		return n, true
	}
	return c.table.native.Get(c.table.ctx, c.id(), c.path, c.Family, words, env)
}

// NoFlag returns the first of words that the compiler does not take for a flag, or "". Only words that the option tables
// lack are asked about.
func (c *Compiler) NoFlag(words []string) string {
	for _, w := range words {
		if !compile.Askable(w) || !c.table.flags.Takes(c.table.ctx, c.id(), c.path, c.Family, w, env) {
			return w
		}
	}
	return ""
}

// ReadsModules reports whether what compiled modules of this clang say of themselves is read here as it is meant.
func (c *Compiler) ReadsModules() bool {
	return c.Family == "clang" && c.table.modules.Reads(c.table.ctx, c.id(), c.path, env)
}

// AssemblerTells reports whether the compiler's assembler is a program that names all files that it reads (-Wa,--MD).
func (c *Compiler) AssemblerTells() bool {
	return c.Family == "gcc" && c.table.as.Tells(c.table.ctx, c.id(), c.path, env)
}

// Search returns where the compiler looks for headers by default, if that is known already or ask is set.
func (c *Compiler) Search(language string, words []string, ask bool) recipes.Search {
	if c.Family == toolchain.Tidy {
		return c.table.search.Tidy(c.table.ctx, c.id(), c.path, language, words, env, ask)
	}
	return c.table.search.Get(c.table.ctx, c.id(), c.path, language, words, env, ask)
}

// Forget makes the next Search with these words ask the compiler again.
func (c *Compiler) Forget(language string, words []string) {
	c.table.search.Forget(c.id(), c.path, language, words)
}

// Direct returns what the compiler's driver would run for a command of these words, or nil if the driver
// itself has to run.
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

// Object returns the beginning of objects that the compiler makes with these words, or nil.
func (c *Compiler) Object(language string, words []string) []byte {
	return c.table.object(c, language, words)
}

// makeObject returns the beginning of the object that the compiler makes from an empty source. It is compiled
// once for each set of words.
func makeObject(c *Compiler, language string, words []string) []byte {
	return c.table.objects.Get(c.table.ctx, c.id(), c.path, language, words, env)
}
