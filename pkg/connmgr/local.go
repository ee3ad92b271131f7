package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/machine"
	"github.com/rdistcc/rdistcc/pkg/connmgr/report"
)

// goLocal waits for a local turn, and answers that the wrapper has to run the command.
func (c *client) goLocal(no *ipc.GoLocal) error {
	c.record.Reason, c.record.Detail, c.record.Trouble = no.Reason, no.Detail, no.Trouble
	no.NoFallback = c.m.live().NoFallback
	if c.untried {
		c.tell(no)
	}
	if scarce(no.Reason) {
		c.place.Wants()
	}
	c.place.EnterHere(report.PhaseWaits)
	c.endTurn()
	if c.free {
		c.endLease() // the local compile needs the memory
	}
	if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
		return nil // the wrapper is gone
	}
	no.Tell = c.watchHere()
	c.startHere()
	return c.Send(no)
}

// startHere records that the command begins to run locally.
func (c *client) startHere() {
	c.began = time.Now()
	c.record.TurnUS = micros(c.began.Sub(c.record.Began))
	c.place.EnterHere(report.PhaseRuns)
}

// onLocal gives a command that runs locally its turn, and ends its lease, if it has one.
func (c *client) onLocal(f *ipc.Local) error {
	switch {
	case c.id == 0:
		c.begin(f.Source, f.Output, f.Compiler)
		c.record.Link = f.Link
		if f.Build != "" { // otherwise nobody asks, and finding out takes time
			c.belongsTo(machine.NamedBuild(c.uid, f.Build))
		}
		c.list = c.m.lists.Of("")
	case c.turn != nil && c.turn != &c.m.turns.cpp:
		return errProtocol // it has its turn already
	}
	c.record.Reason = f.Reason
	c.place.EnterHere(report.PhaseWaits)
	c.endTurn()
	c.free = c.free || f.Closed
	c.endLease()
	switch f.Turn {
	case ipc.TurnNone:
		c.startHere()
		return nil
	case ipc.TurnCPP:
		if c.takeTurn(&c.m.turns.cpp, c.list.Preprocessors(c.m.live().Preprocessors)) != nil {
			return nil
		}
	case ipc.TurnLocal:
		if c.takeTurn(&c.m.turns.local, c.list.LocalJobs(c.m.live().LocalJobs)) != nil {
			return nil
		}
	}
	answer := [...]ipc.Kind{ipc.TellNot: ipc.KindGo, ipc.TellRan: ipc.KindTell, ipc.TellReads: ipc.KindTellReads}[c.watchHere()]
	c.startHere()
	return c.SendFrame(ipc.AppendBare(nil, answer))
}
