package connmgr

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// usualCompile is how long a compile is taken to last of which nothing is known.
const usualCompile = 500 * time.Millisecond

// maxWaits is how many waits in vain a job has at most. After the first one, it waits for no job any more, but takes a
// result that is there.
const maxWaits = 3

// nearPart is how many round trips to a host have to fit into a compile if it is to be asked for news before.
const nearPart = 8

// others returns what waits for the result of t that a host is making for another manager; nil: nothing does.
func (c *client) others(t *attempt.Task) *shelved.Others {
	if t.Result == (resultcache.Key{}) || !t.Join || c.waits >= maxWaits {
		return nil
	}
	o := &shelved.Others{Farm: c.m.farm, List: c.list.Sched, Keys: []resultcache.Key{t.Result}, Most: len(c.sink.Bytes()),
		Near: cmp.Or(t.Cost.Time, usualCompile) / nearPart, Patience: c.patience(t)}
	if t.Below != "" {
		o.Keys = []resultcache.Key{t.Moved, t.Result}
	}
	if c.waits > 0 {
		o.Patience = func(time.Time, *shelved.UnderWay) time.Duration { return 0 }
	}
	return o
}

// atOnce is how long the scheduler's decision takes at most for a job that need not wait for a host.
const atOnce = 5 * time.Millisecond

// elsewhere says that a task is not sent to a host because another manager has it compiled, or has had.
var elsewhere = &ipc.GoLocal{Reason: reason.Manager, Detail: "another manager has it compiled"}

// pick waits until the scheduler has decided about the race's job, or another manager turns out to have it compiled:
// then no is elsewhere.
func (r *race) pick() (g farm.Grant, no *ipc.GoLocal) {
	c := r.c
	ctx, cancel := context.WithCancel(c.Context())
	defer cancel()
	o := c.others(r.t)
	if r.started > 0 {
		o = nil
	}
	found := false
	var watch sync.WaitGroup
	if o != nil {
		watch.Go(func() {
			if found = o.Appears(ctx); found {
				cancel()
			}
		})
	}
	asked := time.Now()
	g, err := c.m.farm.Pick(ctx, r.req)
	cancel()
	watch.Wait()
	switch {
	case c.Context().Err() != nil && err != nil:
		return g, attempt.Interrupted
	case err == nil && g.Host != nil && o != nil && (found || o.Known(c.Context(), time.Since(asked) > atOnce)):
		c.m.farm.GiveBack(g)
		return g, elsewhere
	case err != nil:
		return g, elsewhere
	}
	return g, nil
}

// onOthers returns the result of a task that a host is making for another manager, once that has it, with its outputs
// in the client's sink. It returns nil if it is better to have the task compiled.
func (c *client) onOthers(k *known.Job, t *attempt.Task) *resultcache.Entry {
	o := c.others(t)
	if o == nil {
		return nil
	}
	end := o.Wait(c.Context())
	if end == shelved.Nobody || c.Context().Err() != nil {
		return nil
	}
	if o.Waited {
		c.m.metrics.Waited(string(end))
	}
	if end != shelved.Made {
		c.waits++
		return nil
	}
	hosts, _ := c.shelves()
	e, _ := c.findIn(k, &results.Look{Farm: hosts, Only: resultcache.TierFarm, Joined: o.Waited})
	if e == nil {
		c.waits = maxWaits // what is there is of no use, and stays there
	}
	return e
}

// prospectPause is the least time between two estimates of what can be expected of a job that is under way.
const prospectPause = 100 * time.Millisecond

// patience returns how long t waits for another manager's compile, for shelved.Others.
func (c *client) patience(t *attempt.Task) func(now time.Time, u *shelved.UnderWay) time.Duration {
	var j *scheduler.Job // made when it is needed, which is seldom
	var at string
	var asked, first time.Time
	var p farm.Prospect
	var there time.Duration
	return func(now time.Time, u *shelved.UnderWay) time.Duration {
		if u.Host != at || now.Sub(asked) >= prospectPause {
			if j == nil {
				x := c.request(t.Total(), true)
				x.Cost, x.Held, x.Local = t.Cost, t.Held(x.Hosts), false
				j = &x
			}
			at, asked, p = u.Host, now, c.m.farm.Prospect(j, u.Host)
			if !t.Cost.Known && u.Expect > 0 { // the other manager may know more
				p.Length = min(max(u.Expect, p.Length/mostOff), p.Length*mostOff)
			}
		}
		if u.Since != first { // the job, or that it runs, is news
			first, there = u.Since, p.There-now.Sub(u.Since)
		}
		p.There = there
		return patience(&p, now.Sub(u.Since), u.Running)
	}
}

// mostOff is by how many times another manager's prediction may differ from ours to be believed.
const mostOff = 4

// overMost is how much longer than expected a compile is waited for at most.
const overMost = 3 * time.Second

// clearly is by which fraction (1/n) the job has to be done sooner on another host for a second compile to be worth while.
const clearly = 4

// patience returns for how much longer it is worth waiting for a compile that has been under way for some time:
// running, or waiting for a place. p.There is of the time when that began.
func patience(p *farm.Prospect, since time.Duration, running bool) time.Duration {
	left := p.Length - since
	switch {
	case !running:
		left = max(p.There-since, p.Length) // at most: another job would have come behind it
	case left < 0:
		left = -left // it is late, and may be as late again
	}
	if p.Free && left > p.Anew+p.Anew/clearly {
		return 0
	}
	return p.Length + overMost - since
}
