package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// goLocal answers that the wrapper has to do it, once it is its turn.
func (c *client) goLocal(no *ipc.GoLocal) error {
	c.record.Reason, c.record.Detail, c.record.Trouble = no.Reason, no.Detail, no.Trouble
	no.NoFallback = c.m.live().NoFallback
	if c.untried {
		c.tell(no)
	}
	c.place.EnterHere(report.PhaseWaits)
	c.endTurn()
	if c.free {
		c.endLease() // the compile there needs the memory
	}
	if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
		return nil // the wrapper is gone
	}
	c.began = time.Now()
	c.place.EnterHere(report.PhaseRuns)
	return c.Send(no)
}

// onLocal gives a command that runs there its turn. A lease ends.
func (c *client) onLocal(f *ipc.Local) error {
	switch {
	case c.id == 0:
		c.begin(f.Source, f.Output, f.Compiler)
		c.list = c.m.lists.Of("")
	case c.turn != nil && c.turn != &c.m.turns.cpp:
		return errProtocol // it has its turn
	}
	c.record.Reason = f.Reason
	c.place.EnterHere(report.PhaseWaits)
	c.endTurn()
	c.free = c.free || f.Closed
	c.endLease()
	switch f.Gate {
	case ipc.GateNone:
		c.place.EnterHere(report.PhaseRuns)
		return nil
	case ipc.GateCPP:
		if c.takeTurn(&c.m.turns.cpp, c.list.Preprocessors(c.m.live().Preprocessors)) != nil {
			return nil
		}
	case ipc.GateLocal:
		if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
			return nil
		}
	}
	c.place.EnterHere(report.PhaseRuns)
	return c.SendFrame(ipc.AppendBare(nil, ipc.KindGo))
}
