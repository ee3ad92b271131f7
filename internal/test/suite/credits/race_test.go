package credits

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
)

// share is slots.Hold.Share.
func (k *sink) share() *sink {
	k.holds++
	return k
}

// come is a wrapper's Lease.
func (j *wrapper) come(w *world) {
	j.came = true
	j.sink = new(sink).share()
	j.man.demands(w)
}

// pick takes a credit of a connection for a job: farm.grantLocked, then race.start. Only the first attempt of those at the
// same time uses the wrapper's sink.
func (j *wrapper) pick(c *wire) {
	to := new(sink)
	if len(j.running) == 0 || c.w.left == sharesSink {
		to = j.sink
	}
	j.started++
	j.running = append(j.running, &attempt{
		job: j, id: uint64(100*j.man.id + 10*j.id + j.started), wire: c, credit: c.purse.Take(), sink: to.share(),
	})
	j.tried = append(j.tried, c)
}

// drop gives up an attempt that is not started: attempt.notLoaded with farm.Unspent.
func (a *attempt) drop() {
	a.over, a.err = true, true
	if c := a.wire; !c.lost && !c.retired {
		c.add(a.credit)
	}
}

// landed is race.run, and what race.stop leaves behind, for an attempt that has ended.
func (a *attempt) landed(w *world) {
	j := a.job
	j.running = slices.DeleteFunc(j.running, func(x *attempt) bool { return x == a })
	good := !a.err && a.status == job.StatusRan
	switch {
	case j.done:
		if w.left == lateWins && good {
			j.delivered++
		}
	case good:
		j.delivered++
		j.won = a.id
		if a.sink != j.sink {
			j.sink.holds--
			j.sink = a.sink.share()
		}
		j.stop()
	case len(j.running) == 0 && j.started >= w.sc.attempts:
		j.runsHere()
	}
	a.sink.holds--
	j.man.demands(w)
}

// stop is race.stop.
func (j *wrapper) stop() {
	j.done = true
	for _, a := range j.running {
		a.cancelled = true
	}
}

// runsHere ends the race without a result.
func (j *wrapper) runsHere() {
	j.local = true
	j.stop()
	j.sink.holds--
	j.sink = nil
}

// giveUp is the end of a wrapper that does not wait for its answer.
func (j *wrapper) giveUp() {
	j.gone = true
	j.stop()
	j.sink.holds--
	j.sink = nil
}

// finish lets the wrapper read its result.
func (j *wrapper) finish() error {
	k := j.sink
	j.sink = nil
	k.holds--
	if k.by != j.won {
		return fmt.Errorf("where the result of job %d should be is that of %d", j.won, k.by)
	}
	return nil
}
