package connmgr

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// lookHere is how old a view of this machine's own load may be.
const lookHere = 100 * time.Millisecond

// openHere makes this machine's cores known to the scheduler: a job may run here
// where that is sooner.
func (m *Manager) openHere() {
	m.sched.Up(m.started, scheduler.LocalHost, scheduler.Capacity{Jobs: m.live().LocalJobs})
}

// hereLocked tells the scheduler what this machine does beside the jobs that it has
// placed here: lists and preprocessors for the hosts, links, and whatever else runs.
func (m *Manager) hereLocked(now time.Time) {
	if now.Sub(m.looked) < lookHere {
		return
	}
	m.looked = now
	cpp, _ := m.cpp.Load()
	local, queued := m.local.Load()
	m.sched.Load(now, scheduler.LocalHost, scheduler.Load{Running: cpp + local, Queued: queued, Average: m.o.LoadAverage()})
}

// A job that a host could have at once runs here only if that is a plain benefit: it
// ends in less than plainPart of the time, and plainTime earlier. What is expected of
// a host may be wrong, and the cores here have to feed the others.
const (
	plainPart = 0.5
	plainTime = 500 * time.Millisecond
)

// chooseLocked asks the scheduler for j: first for a host, and where that has to be
// waited for, or is plainly slower, whether it is better to begin here.
func (m *Manager) chooseLocked(now time.Time, j *scheduler.Job) scheduler.Decision {
	local := j.Local
	j.Local = false
	d := m.sched.Pick(now, j)
	j.Local = local
	if !local || m.here >= m.live().LocalJobs {
		return d
	}
	switch d.Verdict {
	case scheduler.Wait:
		if !m.servedLocked(j.Hosts) {
			return d // a connection, and its first credits, are about to be there
		}
	case scheduler.Run:
		if !j.Cost.Known || !plainly(m.sched.Consider(now, j, &d), d.Finish) {
			return d
		}
		m.sched.Done(now, d.Host, scheduler.Unused, scheduler.Report{})
		m.hosts[d.Host].creditsLocked()
	case scheduler.Local:
		return d
	}
	return m.sched.Pick(now, j)
}

// plainly says whether this machine is that much better than a host that would be
// done after finish.
func plainly(list []scheduler.Considered, finish time.Duration) bool {
	for _, x := range list {
		if x.Host == scheduler.LocalHost {
			return x.Finish < time.Duration(plainPart*float64(finish)) && x.Finish+plainTime < finish
		}
	}
	return false
}

// servedLocked says that some host of a list is up and has taken a job since.
func (m *Manager) servedLocked(list []scheduler.Host) bool {
	for i := range list {
		if h := m.hosts[list[i].Addr]; h != nil && h.state == hostUp && h.served == h.link {
			return true
		}
	}
	return false
}

// startHereLocked says that a job which the scheduler has placed here begins.
func (m *Manager) startHereLocked(now time.Time, id uint64, j *scheduler.Job) {
	m.sched.Started(now, id, scheduler.LocalHost, j)
	m.here++
}

// endHereLocked ends that.
func (m *Manager) endHereLocked(out scheduler.Outcome, r scheduler.Report) {
	m.sched.Done(time.Now(), scheduler.LocalHost, out, r)
	m.here--
}

// endShare says that the command has ended which the scheduler chose to run here.
func (c *client) endShare() {
	if !c.share {
		return
	}
	r := scheduler.Report{ID: c.id, Source: c.record.Source, Failed: c.record.Exit != 0}
	out := scheduler.Unused
	if c.record.Finished && !c.began.IsZero() {
		// What it took of a core nobody tells; with no more commands at a time than
		// there are cores that is about what it took.
		out, r.Wall = scheduler.OK, time.Since(c.began)
		r.CPU = r.Wall
	}
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	c.m.endHereLocked(out, r)
	c.m.dispatchLocked()
}
