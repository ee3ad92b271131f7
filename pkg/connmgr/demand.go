package connmgr

import (
	"math"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// A daemon divides its credits among the managers by what each has use for, so it is
// told: a rise at once, as a core may be waiting for it; a fall when it has lasted, as
// the next jobs of a build mostly follow.
const (
	demandPause = 20 * time.Millisecond // between two counts: a build starts many jobs at a time
	demandLast  = 500 * time.Millisecond
)

// demand is what a link's daemon has been told, and is to be told.
type demand struct {
	seq, acked   uint32
	jobs, builds int       // said last
	peak         int       // the jobs, less falls that did not last
	low          time.Time // when there were fewer for the first time since; zero: there are not
	lowPeak      int       // the most since then
}

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
		if h.link == nil || !h.link.ready || h.link.ended {
			continue
		}
		u := uses[addr]
		if u == nil {
			u = new(use)
		}
		for _, l := range h.links {
			for _, f := range l.flights {
				u.add(1, f.build)
			}
		}
		h.link.demandLocked(now, u)
	}
}

// inherit takes over what another link of the host's has said.
func (d *demand) inherit(from *demand) {
	d.jobs, d.builds, d.peak, d.low, d.lowPeak = from.jobs, from.builds, from.peak, from.low, from.lowPeak
}

// demandLocked tells the daemon, if the last word is acknowledged and no longer true.
func (l *link) demandLocked(now time.Time, u *use) {
	d := &l.demand
	switch {
	case u.jobs >= d.peak:
		d.peak, d.low = u.jobs, time.Time{}
	case d.low.IsZero():
		d.low, d.lowPeak = now, u.jobs
	case now.Sub(d.low) < demandLast:
		d.lowPeak = max(d.lowPeak, u.jobs)
	default:
		d.peak, d.low = max(d.lowPeak, u.jobs), time.Time{}
	}
	jobs := min(d.peak, math.MaxUint16)
	builds := max(len(u.builds), min(jobs, 1)) // of a job that is being prepared the build is not known yet
	if d.seq != d.acked || jobs == d.jobs && (builds <= d.builds || jobs == 0) {
		return
	}
	d.jobs, d.builds = jobs, builds
	d.seq++
	l.sendLocked(&job.Demand{Seq: d.seq, Jobs: uint16(jobs), Builds: uint16(builds)}, 0)
}

// count is the timer's: what changed meanwhile is counted.
func (m *Manager) count() {
	m.mu.Lock()
	m.recount = false
	m.demandsLocked(time.Now())
	m.mu.Unlock()
}
