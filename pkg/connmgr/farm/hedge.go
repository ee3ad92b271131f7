package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// hedgesLocked offers a second host to jobs that the scheduler says are late. It returns when to ask the
// scheduler again, zero if no job can become late.
func (f *Farm) hedgesLocked(now time.Time) time.Time {
	if len(f.racing) == 0 {
		return time.Time{}
	}
	list, next := f.sched.Hedges(now)
	var back []*Host
	for _, x := range list {
		r := f.racing[x.ID]
		if r == nil || len(r.second) > 0 { // its race has just ended
			f.sched.Done(now, x.Host, scheduler.Unused, scheduler.Report{})
			back = append(back, f.hosts[x.Host])
			continue
		}
		r.second <- f.grantLocked(now, r, x.Host)
	}
	for _, h := range back { // only now, because the scheduler counts those of the list until they are taken
		h.creditsLocked()
	}
	return next
}
