package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// lookHere is how old a view of this machine's own load may be.
const lookHere = 100 * time.Millisecond

// hereLocked tells the scheduler what this machine does beside the jobs that it has
// placed here: lists and preprocessors for the hosts, links, and whatever else runs.
func (f *Farm) hereLocked(now time.Time) {
	if now.Sub(f.here.looked) < lookHere {
		return
	}
	f.here.looked = now
	f.sched.Load(now, scheduler.LocalHost, f.o.Here())
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
func (f *Farm) chooseLocked(now time.Time, j *scheduler.Job) scheduler.Decision {
	local := j.Local
	j.Local = false
	d := f.sched.Pick(now, j)
	j.Local = local
	if !local || f.here.jobs >= f.pace.LocalJobs {
		return d
	}
	switch d.Verdict {
	case scheduler.Wait:
		if !f.servedLocked(j.Hosts) {
			return d // a connection, and its first credits, are about to be there
		}
	case scheduler.Run:
		if !j.Cost.Known || !plainly(f.sched.Consider(now, j, &d), d.Finish) {
			return d
		}
		f.sched.Done(now, d.Host, scheduler.Unused, scheduler.Report{})
		f.hosts[d.Host].creditsLocked()
	case scheduler.Local:
		return d
	}
	return f.sched.Pick(now, j)
}

// plainly reports whether this machine is that much better than a host that would be
// done after finish.
func plainly(list []scheduler.Considered, finish time.Duration) bool {
	for _, x := range list {
		if x.Host == scheduler.LocalHost {
			return x.Finish < time.Duration(plainPart*float64(finish)) && x.Finish+plainTime < finish
		}
	}
	return false
}

// servedLocked reports whether some host of a list is up and has taken a job since.
func (f *Farm) servedLocked(list []scheduler.Host) bool {
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil && h.state == Up && h.served == h.link {
			return true
		}
	}
	return false
}

// startHereLocked says that a job which the scheduler has placed here begins.
func (f *Farm) startHereLocked(now time.Time, id uint64, j *scheduler.Job) {
	f.sched.Started(now, id, scheduler.LocalHost, j)
	f.here.jobs++
}

// endHereLocked ends that.
func (f *Farm) endHereLocked(out scheduler.Outcome, r scheduler.Report) {
	f.sched.Done(time.Now(), scheduler.LocalHost, out, r)
	f.here.jobs--
}
