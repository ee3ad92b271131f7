package connmgr

import (
	"cmp"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// takeTurn waits for a turn. An error means that the wrapper is gone.
func (c *client) takeTurn(g *machine.Turns, limit int) error {
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

// build returns the build that the wrapper belongs to, for fair sharing among builds: the one that
// RDISTCC_BUILD names, otherwise that of its process.
func (c *client) build() uint64 {
	if c.lease.Build != "" {
		return machine.NamedBuild(c.uid, c.lease.Build)
	}
	return c.m.turns.builds.Of(int(c.pid))
}

// endShare tells the farm that a command has ended which the scheduler had placed on this machine.
func (c *client) endShare() {
	if !c.share {
		return
	}
	r := scheduler.Report{ID: c.id, Source: c.record.Source, Failed: c.record.Exit != 0}
	out := scheduler.Unused
	if c.record.Finished && !c.began.IsZero() {
		out, r.Wall = scheduler.OK, time.Since(c.began)
		// Of a command that cannot be measured, the wall time is close, with no more at a time than cores.
		r.CPU = cmp.Or(time.Duration(c.record.CPUUS)*time.Microsecond, r.Wall)
	}
	c.m.farm.EndHere(out, r)
}
