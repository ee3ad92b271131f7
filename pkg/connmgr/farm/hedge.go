package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// hedgesLocked offers jobs that are late a second host, as the scheduler names them,
// and says when to ask it again: zero when nothing can become late.
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
	for _, h := range back { // not before: those of the list are counted until they are taken
		h.creditsLocked()
	}
	return next
}
