package farm

import (
	"context"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// queue are the jobs that wait for the scheduler's word; Farm.mu guards it.
type queue struct {
	waiting []*Request       // for a credit, in order of arrival
	asking  []*question      // for their form
	jobs    []*scheduler.Job // dispatchLocked works in it
	alarm   *time.Timer      // asks again, as something may have changed just by the time
}

// Pick waits until the job may go to a host or has to be done here.
func (f *Farm) Pick(ctx context.Context, r *Request) (Grant, error) {
	f.mu.Lock()
	// Those that came earlier go first; what none of them can use may serve r.
	f.queue.waiting = append(f.queue.waiting, r)
	f.hereLocked(time.Now())
	f.dispatchLocked()
	if len(f.queue.waiting) > 0 { // else it was counted while it was prepared
		f.demandsLocked(time.Now())
	}
	f.mu.Unlock()
	select {
	case g := <-r.ready:
		return g, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	if i := slices.Index(f.queue.waiting, r); i >= 0 {
		f.queue.waiting = slices.Delete(f.queue.waiting, i, i+1)
	}
	f.mu.Unlock()
	select {
	case g := <-r.ready: // it came at the same moment
		f.GiveBack(g)
	default:
	}
	return Grant{}, context.Cause(ctx)
}

// dispatchLocked asks the scheduler for the jobs that take too long where they are,
// and for all that wait, in the order that is fair among builds.
func (f *Farm) dispatchLocked() {
	if len(f.queue.waiting) == 0 && len(f.queue.asking) == 0 && len(f.racing) == 0 {
		return
	}
	now := time.Now()
	next := f.formsLocked(now)
	soon := func(t time.Time) {
		if !t.IsZero() && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	soon(f.hedgesLocked(now)) // before the others take the place
	f.queue.jobs = f.queue.jobs[:0]
	for _, r := range f.queue.waiting {
		f.queue.jobs = append(f.queue.jobs, &r.Job)
	}
	served := 0
	for _, i := range f.sched.Order(now, f.queue.jobs) {
		r := f.queue.waiting[i]
		g, ok := f.tryLocked(now, r)
		if !ok {
			soon(g.Decision.Until)
			continue
		}
		r.ready <- g
		f.queue.jobs[i] = nil
		served++
	}
	if served > 0 {
		left := f.queue.waiting[:0]
		for i, r := range f.queue.waiting {
			if f.queue.jobs[i] != nil {
				left = append(left, r)
			}
		}
		clear(f.queue.waiting[len(left):])
		f.queue.waiting = left
	}
	clear(f.queue.jobs)
	soon(f.hedgesLocked(now)) // those that went just now can become late
	if !next.IsZero() {
		f.queue.alarm.Reset(max(next.Sub(now), time.Millisecond))
	}
}

// wake is what the alarm does: something may have changed just by the time.
func (f *Farm) wake() {
	f.mu.Lock()
	f.dispatchLocked()
	f.mu.Unlock()
}

// tryLocked asks the scheduler once.
func (f *Farm) tryLocked(now time.Time, r *Request) (Grant, bool) {
	d := f.chooseLocked(now, &r.Job)
	switch d.Verdict {
	case scheduler.Local:
		r.why = f.sched.Consider(now, &r.Job, &d)
		r.rule = ruleOf(r.why, &d, &r.Job)
		if d.Share {
			f.startHereLocked(now, r.ID, &r.Job)
		}
		return Grant{Req: r, Decision: d}, true
	case scheduler.Run:
		if r.early { // the credit would lie idle while the preprocessor runs
			f.sched.Done(now, d.Host, scheduler.Unused, scheduler.Report{})
			f.hosts[d.Host].creditsLocked()
			return Grant{Req: r, Decision: d}, true
		}
		r.why = f.sched.Consider(now, &r.Job, &d)
		r.rule = ruleOf(r.why, &d, &r.Job)
		return f.grantLocked(now, r, d.Host), true
	case scheduler.Wait:
		if d.Redial {
			f.redialLocked(now)
		}
		if r.early && !d.Gone {
			return Grant{Req: r, Decision: d}, true
		}
	}
	return Grant{Decision: d}, false
}

// grantLocked takes the credit that the scheduler has chosen for r.
func (f *Farm) grantLocked(now time.Time, r *Request, addr string) Grant {
	h := f.hosts[addr]
	l := h.bestLocked()
	h.served = h.link
	f.sched.Started(now, r.ID, addr, &r.Job)
	r.Job.Tried[addr] = true
	return Grant{Req: r, Host: h, conn: l, Credit: l.takeLocked()}
}
