package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// takeTurn waits at a gate; an error says that the wrapper is gone.
func (c *client) takeTurn(g *machine.Gate, limit int) error {
	if !g.Try(limit) {
		c.Watch()
		if err := g.Acquire(c.Context(), limit); err != nil {
			return err
		}
	}
	c.turn = g
	return nil
}

func (c *client) endTurn() {
	if c.turn != nil {
		c.turn.Release()
		c.turn = nil
	}
}

// build says which build the wrapper belongs to, for a fair share among builds: the
// one that RDISTCC_BUILD names, else that of its process.
func (c *client) build() uint64 {
	if c.lease.Build != "" {
		return machine.NamedBuild(c.uid, c.lease.Build)
	}
	return c.m.turns.builds.Of(int(c.pid))
}

// endShare says that the command has ended which the scheduler chose to run here.
func (c *client) endShare() {
	if !c.share {
		return
	}
	r := scheduler.Report{ID: c.id, Source: c.record.Source, Failed: c.record.Exit != 0}
	out := scheduler.Unused
	if c.record.Finished && !c.began.IsZero() {
		// What it took of a core nobody tells; with no more commands at a time than
		// there are cores that is about what it took.
		out, r.Wall = scheduler.OK, time.Since(c.began)
		r.CPU = r.Wall
	}
	c.m.farm.EndHere(out, r)
}
