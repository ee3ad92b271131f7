package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

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
