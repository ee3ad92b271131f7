package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// lookHere is how old the view of this machine's own load may be.
const lookHere = 100 * time.Millisecond

// hereLocked tells the scheduler the load of this machine apart from the jobs that it has placed here:
// listing and preprocessing for hosts, linking, and whatever else runs.
func (f *Farm) hereLocked(now time.Time) {
	if now.Sub(f.here.looked) < lookHere {
		return
	}
	f.here.looked = now
	f.sched.Load(now, scheduler.LocalHost, f.o.Here())
}

// A job that a host could take at once runs here only if that is clearly better: it ends in less than
// plainPart of the time, and plainTime earlier. The estimate for a host may be wrong, and the cores here have
// to feed the hosts.
const (
	plainPart = 0.5
	plainTime = 500 * time.Millisecond
)

// chooseLocked asks the scheduler about j: first for a host, and if j has to wait for that, or it is clearly
// slower, whether to begin on this machine instead.
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
			return d // a connection and its first credits are about to come
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

// plainly reports whether this machine is clearly better than a host that would be done after finish.
func plainly(list []scheduler.Considered, finish time.Duration) bool {
	for _, x := range list {
		if x.Host == scheduler.LocalHost {
			return x.Finish < time.Duration(plainPart*float64(finish)) && x.Finish+plainTime < finish
		}
	}
	return false
}

// servedLocked reports whether some host of a list is up and has taken a job since it came up.
func (f *Farm) servedLocked(list []scheduler.Host) bool {
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil && h.state == Up && h.served == h.link {
			return true
		}
	}
	return false
}

// startHereLocked records that a job that the scheduler has placed here begins.
func (f *Farm) startHereLocked(now time.Time, id uint64, j *scheduler.Job) {
	f.sched.Started(now, id, scheduler.LocalHost, j)
	f.here.jobs++
}

// endHereLocked records that such a job has ended.
func (f *Farm) endHereLocked(out scheduler.Outcome, r scheduler.Report) {
	f.sched.Done(time.Now(), scheduler.LocalHost, out, r)
	f.here.jobs--
}
