package connmgr

import (
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
)

// onMaking finds out of what a precompiled header will be made by the command that the wrapper is about to run here. If that
// is not known, compiles that use the header will run here too.
func (c *client) onMaking(f *ipc.Lease) {
	if c.makes != nil || c.foreign() || f.Command == nil {
		return
	}
	found, err := c.m.o.Identify(c.Context(), f.Compiler, toolchain.Env{Path: f.Path, Cwd: f.Cwd, Libraries: f.Libraries})
	if err != nil {
		return
	}
	compiler := c.m.compilers.Of(found, f.Compiler)
	if c.makes = c.m.known.Make(&known.Command{Lease: f, Compiler: &compiler, Environ: c.environ}); c.makes != nil {
		c.ahead = c.makeAhead(f, compiler.ID)
	}
}

// onMade keeps how the precompiled header was made, before the wrapper's build goes on. If it is not certain what it was made of,
// the wrapper has to ask the compiler first.
func (c *client) onMade() error {
	if c.makes != nil {
		c.ahead.end(true)
		c.ahead = nil // whoever has got the job makes the header to its end
		if c.makes.Doubted() {
			return c.SendFrame(ipc.AppendBare(nil, ipc.KindList))
		}
	}
	return c.kept()
}

// onListed takes what the wrapper's compiler says that the header was made of.
func (c *client) onListed(f *ipc.Listed) error {
	if c.makes != nil {
		c.makes.Listed(f.Names, f.Dirs)
	}
	return c.kept()
}

// kept keeps how the header was made, and lets the wrapper's build go on.
func (c *client) kept() error {
	if c.makes != nil {
		c.makes.Made(c.Context())
		c.endMaking()
	}
	return c.SendFrame(ipc.AppendBare(nil, ipc.KindGo))
}

func (c *client) endMaking() {
	if c.makes != nil {
		c.ahead.end(false)
		c.makes.End()
		c.makes = nil
		c.m.clients.Go(c.m.saveHeaders)
	}
}
