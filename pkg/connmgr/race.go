package connmgr

import (
	"encoding/binary"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/attempt"
	"github.com/rdistcc/rdistcc/pkg/connmgr/farm"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/results"
	"github.com/rdistcc/rdistcc/pkg/connmgr/slots"
	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// maxRefusals bounds how many hosts are asked when each one refuses at once.
const maxRefusals = 8

// maxAttempts bounds the attempts at one task: those in sequence, and a second host for each that is slow.
const maxAttempts = 2 * maxRefusals

// race runs a task's attempts, in sequence and sometimes two in parallel. The first good result counts. The
// client's goroutine owns it.
type race struct {
	c       *client
	t       *attempt.Task
	req     *farm.Request
	ended   chan *attempt.Attempt // has room for all attempts, so that none waits for a reader
	running []*attempt.Attempt
	started uint8
	last    *ipc.GoLocal // why the last attempt has failed
	trouble int          // attempts that ended in trouble
	died    int          // of these, attempts whose compiler died
	lost    int          // attempts whose host was lost
	lacks   int          // attempts whose host lacked contents that it was believed to hold
}

// mostLosses is how many hosts a job may lose, strictLosses how many a job may that must not run locally,
// whose failure would end the build. A lost host is usually not the job's fault, and others work; but a job
// that crashes daemons must not get to all hosts of a farm.
const (
	mostLosses   = 3
	strictLosses = 4
)

// mostLacks is how often hosts may lack contents that a job names before they are sent everything: once for
// a list, abridged or not, once for the contents of that list, and then once more.
const mostLacks = 2

// compile runs a task on a host, and on another one if that meets trouble. It returns either the result or
// the reason why the command has to run locally. tree restricts it to hosts that show trees. When it returns,
// other hosts may still be working on the task; memory that they use no longer belongs to the client.
func (c *client) compile(t *attempt.Task, tree bool) (*ipc.Result, *ipc.GoLocal) {
	r := &race{c: c, t: t, ended: make(chan *attempt.Attempt, maxAttempts),
		req: farm.NewRequest(t.ID, c.request(t.Total(), tree))}
	if !r.req.Job.Strict {
		if no := c.m.past.hungry.objects(time.Now(), t.Key); no != nil {
			return nil, no
		}
	}
	r.req.Job.Cost, r.req.Job.Name = t.Cost, binary.LittleEndian.Uint64(t.Result[:])
	r.req.Job.Held = t.Held(r.req.Job.Hosts)
	r.req.Races = true
	won, no := r.run()
	r.stop()
	c.m.farm.Leave(r.req)
	if no != nil {
		if r.died >= c.m.live().Attempts {
			c.m.past.hungry.add(time.Now(), t.Key)
		}
		return nil, no
	}
	res := won.Answer(r.started)
	c.note(res)
	if won.Out.Result.Joined {
		res.Cached = resultcache.TierFarm
		c.record.Cached, c.record.Made = res.Cached, time.Now()
		c.m.metrics.Cached(res.Cached, results.Joined)
	}
	c.record.CPUUS, c.record.Memory = won.Out.Result.CPU, won.Out.Result.MaxRSS
	c.record.Carrier = won.Carrier.String()
	if won.Sink != c.sink {
		c.sink.Drop()
		c.sink, res.Moved = won.Sink.Share(), true
	}
	if !c.m.audited(r.req, won) {
		won.Release()
	}
	return res, nil
}

// run returns the attempt that has won, which the caller has to release, or why none has.
func (r *race) run() (*attempt.Attempt, *ipc.GoLocal) {
	c := r.c
	for {
		if len(r.running) == 0 {
			if no := r.next(); no != nil {
				return nil, no
			}
		}
		select {
		case <-c.Context().Done():
			return nil, attempt.Interrupted
		case a := <-r.ended:
			if a.Out.Result != nil {
				r.remove(a)
				if a.Hedge {
					c.m.metrics.Hedged("won")
				}
				return a, nil
			}
			if no := r.failed(a); no != nil {
				return nil, no
			}
		case g := <-r.req.Second():
			r.hedge(g)
		}
	}
}

// next starts an attempt on the host that the scheduler picks. It returns why there is none, or nil.
func (r *race) next() *ipc.GoLocal {
	c, asked := r.c, time.Now()
	// Wait without a limit: a full farm is no reason to give up, and the scheduler judges hosts that give no
	// credit.
	g, no := r.pick()
	if no != nil {
		return no
	}
	c.consider(r.req)
	if g.Host == nil {
		if r.last != nil {
			c.m.farm.GiveBack(g)
			return r.last
		}
		c.share = g.Decision.Share
		c.untried = true
		return c.localDecision(&g.Decision)
	}
	if r.started > 0 {
		c.m.metrics.Retried()
	}
	r.start(g, c.sink.Share(), asked)
	return nil
}

// hedge also sends the task to a second host, because the first one is slow.
func (r *race) hedge(g farm.Grant) {
	c := r.c
	sink, err := c.m.memory.TrySink(c.uid)
	if sink == nil || len(r.running) != 1 || r.started >= maxAttempts {
		if sink != nil {
			sink.Drop() // unused
		}
		c.m.o.Log.Debug("no second host", "job", r.t.ID, "err", err)
		c.m.farm.GiveBack(g)
		return
	}
	c.m.o.Log.Info("second host", "job", r.t.ID, "host", g.Host.Addr, "slow", r.running[0].Host.Addr)
	c.record.Hedged = g.Host.Addr
	r.start(g, sink, time.Now()).Hedge = true
}

// start sends the task to one more host. The attempt takes ownership of sink.
func (r *race) start(g farm.Grant, sink *slots.Hold, asked time.Time) *attempt.Attempt {
	a := attempt.New(r.c.Context(), r.t, g, sink, asked)
	r.started++
	r.running = append(r.running, a)
	r.c.place.Sent(g.Host.Addr)
	ended := r.ended
	r.c.m.clients.Go(func() {
		a.Run()
		ended <- a
	})
	return a
}

// failed records an attempt that has failed. It returns nil if another attempt may follow, otherwise the
// answer for the wrapper.
func (r *race) failed(a *attempt.Attempt) *ipc.GoLocal {
	r.remove(a)
	a.Release()
	if a.Hedge {
		r.c.m.metrics.Hedged("lost")
	}
	if r.c.Context().Err() != nil {
		return attempt.Interrupted
	}
	r.c.m.o.Log.Info("attempt failed", "job", r.t.ID, "host", a.Host.Addr, "reason", a.Out.Local.Reason, "detail", a.Out.Local.Detail)
	r.last = a.Out.Local
	r.c.compiled = r.c.compiled || a.Compiled()
	if a.Out.Died {
		r.died++
	}
	if a.Out.Lacks {
		if r.lacks++; r.lacks > mostLacks {
			r.t.SendAll()
		}
		a.Lacked()
	}
	switch a.Out.Blame {
	case scheduler.Gone:
		r.lost++
		r.c.m.farm.Again(r.req, a.Host)
	case scheduler.Killed, scheduler.Fault:
		r.trouble++
	case scheduler.Unused, scheduler.OK, scheduler.Refused, scheduler.Full:
	}
	losses := max(mostLosses, r.c.m.live().Attempts)
	if r.req.Job.Strict {
		losses = max(strictLosses, losses)
	}
	if a.Out.Final || len(r.running) == 0 && (r.trouble >= r.c.m.live().Attempts || r.lost >= losses || r.started >= maxRefusals) {
		return r.last
	}
	return nil
}

func (r *race) remove(a *attempt.Attempt) {
	for i, b := range r.running {
		if a == b {
			r.running = append(r.running[:i], r.running[i+1:]...)
			r.c.place.Taken(a.Host.Addr)
			return
		}
	}
}

// stop cancels the attempts that still run and has them cleaned up after the answer, in the background: a
// host may write to its sink until it has said that it will not.
func (r *race) stop() {
	n := len(r.running)
	if n == 0 {
		return
	}
	for _, a := range r.running {
		a.Cancel()
		if a.Hedge {
			r.c.m.metrics.Hedged("lost")
		}
	}
	ended := r.ended
	r.c.m.clients.Go(func() {
		for range n {
			(<-ended).Release()
		}
	})
}
