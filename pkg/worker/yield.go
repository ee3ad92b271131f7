package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// Cores are given job by job, and a compile can take as long as Settings.JobTimeout: who
// filled all of them with endless ones while nobody else built would keep them for that
// long. So a tenant that has less than its part of the cores, and has waited for twice
// as long as its jobs take, gets the core of a tenant that has more: the job there
// that has lost least is ended, and answered as refused, so that its client takes it
// elsewhere. That one then keeps to its part while somebody else builds, and for a while
// after that: a build has pauses.

const (
	// yieldLeast and yieldMost bound the wait: short enough that an honest client's build
	// goes on, long enough that cores change hands by themselves where jobs are short.
	yieldLeast, yieldMost = 2 * time.Second, 20 * time.Second
	// heldTime is how long who had to yield keeps to its part after nobody else builds.
	heldTime = 30 * time.Second
)

// yieldAfter is how long a job of the tenant's waits before somebody else's yields.
func (t *tenant) yieldAfter() time.Duration {
	return min(max(2*t.meanWall, yieldLeast), yieldMost)
}

// yieldLocked ends one job of a tenant that has more than its part, for each one with
// less that has waited for long. The tasks are returned: their programs are to be
// stopped without the lock.
func (s *Server) yieldLocked(now time.Time) (victims []*task) {
	busy := 0
	for _, t := range s.tenants {
		if t.queued+t.runs > 0 {
			busy++
		}
	}
	for _, t := range s.tenants {
		if busy > 1 && now.Before(t.held) {
			t.held = now.Add(heldTime)
		}
	}
	if s.running < s.o.Jobs {
		return nil // there is a core: what waits has another reason
	}
	p := s.partsLocked(now)
	fair := p.fair
	for _, t := range s.tenants {
		if t.queued == 0 || t.runs >= fair || !s.mayRunLocked(t, p, now) || !t.waitsLocked(now) {
			continue
		}
		var most *tenant
		for _, o := range s.tenants {
			if o != t && o.runs-o.yielding > fair && (most == nil || o.runs-o.yielding > most.runs-most.yielding) {
				most = o
			}
		}
		if most == nil {
			return victims
		}
		var last *task
		for r := range s.runs {
			if r.c.client.tenant == most && !r.yields && (last == nil || r.started.After(last.started)) {
				last = r
			}
		}
		if last == nil {
			continue
		}
		last.yields = true
		most.yielding++
		most.held = now.Add(heldTime)
		victims = append(victims, last)
		s.o.Metrics.limited(limitYield)
		s.o.Log.Info("a job gives its place to another client", "job", last.m.ID, "client", last.c.id, "ran", now.Sub(last.started))
	}
	return victims
}

// waitsLocked says whether a job of the tenant's has waited for so long that somebody
// else's is to yield.
func (t *tenant) waitsLocked(now time.Time) bool {
	for _, cl := range t.clients {
		if len(cl.queue) > 0 && now.Sub(cl.queue[0].queued) > t.yieldAfter() {
			return true
		}
	}
	return false
}

// yielded makes the answer of a job whose place went to somebody else.
func (t *task) yielded(r *job.Result) {
	if t.yields && r.Status == job.StatusFailed && r.Cause == job.CauseCancelled {
		r.Status, r.Cause, r.Detail = job.StatusRefused, job.CauseFull, "gave its place to another client"
	}
}
