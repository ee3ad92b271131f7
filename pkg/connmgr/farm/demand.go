package farm

import (
	"math"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// demandPause is the default of Options.DemandPause. It is not zero because a build starts many jobs at a time.
const demandPause = 20 * time.Millisecond

// Prepare counts n more jobs of a list as being prepared.
func (f *Farm) Prepare(list []scheduler.Host, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.demand.preparing[&list[0]]
	if p == nil {
		p = &preparing{hosts: list}
		f.demand.preparing[&list[0]] = p
	}
	if p.jobs += n; p.jobs == 0 {
		delete(f.demand.preparing, &list[0])
	}
	if n > 0 {
		f.demandsLocked(time.Now())
	}
}

// use is how much work there is for one host.
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

// usesLocked returns how many jobs wait, or soon will, by address.
func (f *Farm) usesLocked() map[string]*use {
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
	for _, r := range f.queue.waiting {
		if len(r.Job.Hosts) > 0 {
			at(r.Job.Hosts).add(1, r.Job.Build)
		}
	}
	for _, p := range f.demand.preparing {
		at(p.hosts).add(p.jobs)
	}
	uses := make(map[string]*use)
	for key, u := range lists {
		for i := range hosts[key] {
			addr := hosts[key][i].Addr
			if f.hosts[addr] == nil || f.hosts[addr].link == nil || f.drains.on[addr] {
				continue // it gets no new jobs
			}
			if uses[addr] == nil {
				uses[addr] = new(use)
			}
			uses[addr].add(u.jobs, u.builds...)
		}
	}
	return uses
}

// demandsLocked tells daemons how much work there is for them, if that has changed. It is called when it may
// have grown; the next tick of a link notices when it has become less.
func (f *Farm) demandsLocked(now time.Time) {
	if wait := f.o.DemandPause - now.Sub(f.demand.counted); wait > 0 {
		if !f.demand.again {
			f.demand.again = true
			f.demand.timer.Reset(wait)
		}
		return
	}
	f.demand.counted, f.demand.again = now, false
	uses := f.usesLocked()
	for addr, h := range f.hosts {
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

// count runs when the timer fires, and counts what has changed since it was set.
func (f *Farm) count() {
	f.mu.Lock()
	f.demand.again = false
	f.demandsLocked(time.Now())
	f.mu.Unlock()
}
