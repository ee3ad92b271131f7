package connmgr

import (
	"github.com/rdistcc/rdistcc/internal/driver/recipes"
)

// native is what the command's words that end in "=native" stand for, if it has any.
func (c *client) native() (n recipes.Native, ok bool) {
	if len(c.lease.Machine) == 0 {
		return n, true
	}
	return c.m.compilers.native.Get(c.m.ctx, string(c.toolchain.ID[:]), c.lease.Compiler, c.toolchain.Family, c.lease.Machine, driverEnv)
}

// include lists where the job's compiler looks for headers by itself, if that is
// known or ask is set; else it is nil.
func (c *client) include(ask bool) []string {
	if c.lease.Language == "" {
		return nil
	}
	return c.m.compilers.search.Get(c.m.ctx, string(c.toolchain.ID[:]), c.lease.Compiler, c.lease.Language, nil, driverEnv, ask).Dirs
}

// driverEnv is all that a driver is told when it is asked for its recipe. The
// variables that would change the answer keep a command from coming here.
var driverEnv = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "LC_ALL=C"}

// direct is what the compiler's driver would run to list the sources, or without a
// tree to preprocess, or nil when the wrapper has to run the driver.
func (c *client) direct(tree bool) []string {
	words := c.lease.Preprocess
	if tree {
		words = c.lease.List
	}
	if len(words) == 0 || c.toolchain.Family != "gcc" || c.foreign() { // whose words are not for us to run anything with
		return nil
	}
	r := c.m.compilers.recipes.Get(c.m.ctx, string(c.toolchain.ID[:]), c.lease.Compiler, words, driverEnv, "/")
	if r == nil || r.Steps() != 1 {
		return nil
	}
	return r.Words(0)
}
