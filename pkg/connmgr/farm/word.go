package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// tryLocked asks the scheduler about r once. It reports whether there is a decision.
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
		if r.early { // a credit would be unused while the preprocessor runs
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

// grantLocked takes a credit of the host that the scheduler has chosen for r.
func (f *Farm) grantLocked(now time.Time, r *Request, addr string) Grant {
	h := f.hosts[addr]
	l := h.bestLocked()
	h.served = h.link
	f.sched.Started(now, r.ID, addr, &r.Job)
	r.Job.Tried[addr] = true
	return Grant{Req: r, Host: h, conn: l, Credit: l.takeLocked()}
}
