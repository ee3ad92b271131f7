package connmgr

import (
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/reason"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// hopeless says whether the job can be done here without further ado: before the
// preprocessor has run for nothing. Where all hosts that it could go to are not there, it
// waits as long for one as the scheduler does.
func (c *client) hopeless() *ipc.GoLocal {
	r := farm.NewRequest(c.id, c.request(0, c.lease.NeedTree))
	g, err := c.m.farm.Early(c.ctx, r, c.watch)
	if err != nil {
		return attempt.Interrupted
	}
	if g.Decision.Verdict != scheduler.Local {
		return nil
	}
	c.share = g.Decision.Share
	c.consider(r)
	return localDecision(g.Decision)
}

// localDecision is what the wrapper hears of the scheduler's refusal.
func localDecision(d scheduler.Decision) *ipc.GoLocal {
	no := &ipc.GoLocal{Reason: d.Reason, Detail: d.Detail, Host: d.Host}
	no.Code = reason.Status(d.Reason)
	no.Trouble = no.Code != 0 && d.Reason != reason.Toolchain // tell decides about that one, once a build
	return no
}
