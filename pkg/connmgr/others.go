package connmgr

import (
	"cmp"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/known"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/shelved"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// nearPart is how many round trips to a host have to fit into a compile if it is to be asked for news before.
const nearPart = 8

// onOthers returns the result of a task that a host is making for another manager, once that has it, with its outputs
// in the client's sink. It returns nil if it is better to have the task compiled.
func (c *client) onOthers(k *known.Job, t *attempt.Task) *resultcache.Entry {
	if t.Result == (resultcache.Key{}) || !c.mayFind() {
		return nil
	}
	o := &shelved.Others{Farm: c.m.farm, List: c.list.Sched, Key: t.Result, Near: cmp.Or(t.Cost.Time, usualCompile) / nearPart, Patience: c.patience(t)}
	end := o.Wait(c.Context())
	if end != shelved.Nobody {
		c.m.metrics.Waited(string(end))
	}
	if end != shelved.Made || c.Context().Err() != nil {
		return nil
	}
	hosts, _ := shelved.New(c.m.farm, c.list.Sched, len(c.sink.Bytes()))
	e, _ := c.m.results.Find(c.Context(), &results.Look{Key: t.Result, Room: c.room, Check: c.checker(k), Farm: hosts, Only: resultcache.TierFarm, Joined: true})
	return e
}

// usualCompile is how long a compile is taken to last of which nothing is known.
const usualCompile = 500 * time.Millisecond

// anewPause is the least time between two estimates of how soon the task could be done elsewhere.
const anewPause = 100 * time.Millisecond

// patience returns how long t waits for another manager's compile, for shelved.Others.
func (c *client) patience(t *attempt.Task) func(now time.Time, u *shelf.UnderWay) time.Duration {
	j := c.request(t.Total(), true)
	j.Cost, j.Held, j.Local = t.Cost, t.Held(j.Hosts), false
	var asked time.Time
	var anew time.Duration
	var free bool
	return func(now time.Time, u *shelf.UnderWay) time.Duration {
		if now.Sub(asked) >= anewPause {
			asked = now
			anew, free = c.m.farm.Soonest(&j)
		}
		return patience(cmp.Or(t.Cost.Time, u.Expect, usualCompile), now.Sub(u.Since), u.Running, anew, free)
	}
}

// Bounds of a wait beyond the time that the compile is expected to take: half of that and a little more, up to some
// seconds.
const (
	overLeast = 200 * time.Millisecond
	overMost  = 3 * time.Second
)

// patience returns for how much longer it is worth waiting for a compile that is expected to take so long, and has been
// under way for some time: running, or waiting for a place. anew is how soon the job could be done if it were sent to
// a host that is free, if one is.
func patience(expect, since time.Duration, running bool, anew time.Duration, free bool) time.Duration {
	if free {
		left := expect - since
		switch {
		case !running:
			left = expect + since // it may have to wait as long again
		case left < 0:
			left = -left // it is late, and may be as late again
		}
		if left > anew {
			return 0
		}
	}
	return expect + min(expect/2+overLeast, overMost) - since
}
