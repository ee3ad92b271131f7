package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// join makes r known while hosts are at it, so that it can be given a second one.
func (m *Manager) join(r *request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.racing[r.id] = r
}

// leave ends that; a second host that was on offer is not wanted any more.
func (m *Manager) leave(r *request) {
	m.mu.Lock()
	delete(m.racing, r.id)
	m.mu.Unlock()
	select {
	case g := <-r.second:
		m.giveBack(g)
	default:
	}
}

// hedgesLocked offers jobs that are late a second host, as the scheduler names them,
// and says when to ask it again: zero when nothing can become late.
func (m *Manager) hedgesLocked(now time.Time) time.Time {
	if len(m.racing) == 0 {
		return time.Time{}
	}
	list, next := m.sched.Hedges(now)
	var back []*host
	for _, x := range list {
		r := m.racing[x.ID]
		if r == nil || len(r.second) > 0 { // its race has just ended
			m.sched.Done(now, x.Host, scheduler.Unused, scheduler.Report{})
			back = append(back, m.hosts[x.Host])
			continue
		}
		r.second <- m.grantLocked(now, r, x.Host)
	}
	for _, h := range back { // not before: those of the list are counted until they are taken
		h.creditsLocked()
	}
	return next
}
