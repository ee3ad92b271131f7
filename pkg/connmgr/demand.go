package connmgr

import (
	"math"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// demandPause is between two counts of what there is for the daemons to do: a build
// starts many jobs at a time.
const demandPause = 20 * time.Millisecond

// preparing are the leased jobs of one host list whose wrappers are listing or
// preprocessing: they want a place soon.
type preparing struct {
	hosts []scheduler.Host
	jobs  int
}

// prepareLocked counts n more jobs of a list as about to come.
func (m *Manager) prepareLocked(list []scheduler.Host, n int) {
	p := m.preparing[&list[0]]
	if p == nil {
		p = &preparing{hosts: list}
		m.preparing[&list[0]] = p
	}
	if p.jobs += n; p.jobs == 0 {
		delete(m.preparing, &list[0])
	}
	if n > 0 {
		m.demandsLocked(time.Now())
	}
}

// use is what there is for one host to do.
type use struct {
	jobs   int
	builds []uint64
}

func (u *use) add(n int, builds ...uint64) {
	u.jobs += n
	for _, b := range builds {
		if !slices.Contains(u.builds, b) && len(u.builds) < math.MaxUint16 {
			u.builds = append(u.builds, b)
		}
	}
}

// usesLocked counts, by address, what waits or will soon.
func (m *Manager) usesLocked() map[string]*use {
	// Most jobs have the same list, and lists can be long.
	lists := make(map[*scheduler.Host]*use)
	hosts := make(map[*scheduler.Host][]scheduler.Host)
	at := func(list []scheduler.Host) *use {
		u := lists[&list[0]]
		if u == nil {
			u = new(use)
			lists[&list[0]], hosts[&list[0]] = u, list
		}
		return u
	}
	for _, r := range m.waiting {
		if len(r.job.Hosts) > 0 {
			at(r.job.Hosts).add(1, r.job.Build)
		}
	}
	for _, p := range m.preparing {
		at(p.hosts).add(p.jobs)
	}
	uses := make(map[string]*use)
	for key, u := range lists {
		for i := range hosts[key] {
			addr := hosts[key][i].Addr
			if m.hosts[addr] == nil || m.hosts[addr].link == nil || m.drains.on[addr] {
				continue // nothing new goes there
			}
			if uses[addr] == nil {
				uses[addr] = new(use)
			}
			uses[addr].add(u.jobs, u.builds...)
		}
	}
	return uses
}

// demandsLocked tells all daemons what there is for them to do, where that changed. It
// is called where that may have grown; what became less a link's next tick sees.
func (m *Manager) demandsLocked(now time.Time) {
	if wait := demandPause - now.Sub(m.counted); wait > 0 {
		if !m.recount {
			m.recount = true
			m.counter.Reset(wait)
		}
		return
	}
	m.counted, m.recount = now, false
	uses := m.usesLocked()
	for addr, h := range m.hosts {
		if h.link == nil {
			continue
		}
		u := uses[addr]
		if u == nil {
			u = new(use)
		}
		for _, l := range h.links {
			for _, build := range l.Builds() {
				u.add(1, build)
			}
		}
		h.link.Demand(now, u.jobs, len(u.builds))
	}
}

// count is the timer's: what changed meanwhile is counted.
func (m *Manager) count() {
	m.mu.Lock()
	m.recount = false
	m.demandsLocked(time.Now())
	m.mu.Unlock()
}
