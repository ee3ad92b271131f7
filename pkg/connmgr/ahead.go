package connmgr

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/outputs"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Nothing that uses a precompiled header can be compiled before that is there, and each host has to make it first. So hosts
// make it while it is made here, by jobs that do nothing else: otherwise the first compile on each host would wait for it.

// mostAhead bounds the hosts that make one header ahead. In a larger farm, the others make it when they get a compile that uses
// it.
const mostAhead = 16

// ahead is the making of one precompiled header on hosts while it is made here.
type ahead struct {
	m      *Manager
	t      *attempt.Task
	job    scheduler.Job
	ctx    context.Context    // ends all of it
	cancel context.CancelFunc // ends ctx
	picks  context.Context    // ends the search for hosts
	enough context.CancelFunc // ends picks

	// owned by run
	flying int           // attempts that have not landed yet, as far as run has heard
	landed chan struct{} // one for each attempt that ends
}

// makeAhead has hosts of the command's list make the header that it makes here. It returns nil if no host can.
func (c *client) makeAhead(f *ipc.Lease, id unit.ToolchainID) *ahead {
	k := c.makes.Ahead()
	if k == nil {
		return nil
	}
	return c.sendAhead(f, id, k)
}

// sendAhead has hosts of the command's list do the job k, which makes the header. It returns nil if there are none.
func (c *client) sendAhead(f *ipc.Lease, id unit.ToolchainID, k *known.Job) *ahead {
	list := c.m.lists.Of(f.Hosts)
	if list.Err != nil || list.Empty() || f.Mode == ipc.ModeLocal {
		return nil
	}
	c.lease = f
	a := &ahead{m: c.m, landed: make(chan struct{}, mostAhead), job: scheduler.Job{Hosts: list.Sched, Tried: make(map[string]bool), Toolchain: id, Tree: true, NoLocal: true,
		Since: time.Now(), Bytes: k.Images[0].Len, Build: c.build()}}
	a.t = &attempt.Task{Base: &c.m.base, UID: c.uid, Toolchain: id, Name: f.Source, Limit: c.timeLimit(), Compress: list.Compress, Body: k.Body, Known: k,
		Object: func() (outputs.Object, bool) { return outputs.Object{}, false }}
	c.lease = nil
	a.ctx, a.cancel = context.WithCancel(c.m.ctx)
	a.picks, a.enough = context.WithCancel(a.ctx)
	c.m.farm.Want(list.Sched, nil)
	c.m.clients.Go(a.run)
	return a
}

// run sends the job to one host after the other, and returns when all have ended.
func (a *ahead) run() {
	defer a.cancel()
	a.m.clients.Go(func() {
		select {
		case <-a.m.service.stopping:
			a.cancel()
		case <-a.ctx.Done():
		}
	})
	var all sync.WaitGroup
	defer all.Wait()
	for range min(mostAhead, len(a.job.Hosts)) {
		x := a.next()
		if x == nil {
			return
		}
		a.flying++
		all.Go(func() {
			defer func() { a.landed <- struct{}{} }()
			x.Run()
			a.m.o.Log.Debug("precompiled header ahead", "source", a.t.Name, "host", x.Host.Addr, "made", x.Out.Result != nil)
			x.Release()
		})
	}
}

// next returns an attempt on one more host, or nil if there is none, or the header has been made here.
func (a *ahead) next() *attempt.Attempt {
	sink := a.sink()
	if sink == nil {
		return nil
	}
	j := a.job
	j.Tried = maps.Clone(a.job.Tried) // attempts go on with theirs
	r := farm.NewRequest(a.m.ids.Add(1), j)
	g, err := a.m.farm.Pick(a.picks, r)
	if err != nil || g.Host == nil {
		sink.Drop()
		return nil
	}
	a.job.Tried[g.Host.Addr] = true
	x := attempt.New(a.ctx, a.t, g, sink, time.Now())
	x.Ahead = true
	return x
}

// sink returns memory for one more attempt, or nil. It takes none from compiles that wait for some; while there is none, it
// waits for that of its own attempts.
func (a *ahead) sink() *slots.Hold {
	for {
		sink, err := a.m.memory.TrySink(a.t.UID)
		if sink != nil || err != nil || a.flying == 0 {
			return sink
		}
		select {
		case <-a.landed:
			a.flying--
		case <-a.picks.Done():
			return nil
		}
	}
}

// end says that the command here has ended. If it has made no header, hosts need none.
func (a *ahead) end(made bool) {
	switch {
	case a == nil:
	case made:
		a.enough()
	default:
		a.cancel()
	}
}
