package link

import (
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// demandLast is how long the demand must have been lower before the daemon is told. A daemon divides its
// credits among the managers by how many jobs each has for it. It is told of a rise at once, because a core
// may be idle. A fall can wait, because the next jobs of a build usually follow.
const demandLast = 500 * time.Millisecond

// Inherit takes over the demand that another link to the same daemon, which has ended, has told it.
func (l *Link) Inherit(other *Link) {
	other.mu.Lock()
	from := other.demand
	other.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.demand
	d.jobs, d.builds, d.peak, d.low, d.lowPeak = from.jobs, from.builds, from.peak, from.low, from.lowPeak
}

// Demand tells the daemon how many jobs there are for it, and of how many builds. It sends nothing if the
// daemon has been told the same, or has not acknowledged the last Demand yet.
func (l *Link) Demand(now time.Time, jobs, builds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.demandLocked(now, jobs, builds)
}

func (l *Link) demandLocked(now time.Time, jobs, builds int) {
	if !l.ready || l.ended {
		return
	}
	d := &l.demand
	switch {
	case jobs >= d.peak:
		d.peak, d.low = jobs, time.Time{}
	case d.low.IsZero():
		d.low, d.lowPeak = now, jobs
	case now.Sub(d.low) < demandLast:
		d.lowPeak = max(d.lowPeak, jobs)
	default:
		d.peak, d.low = max(d.lowPeak, jobs), time.Time{}
	}
	jobs = min(d.peak, math.MaxUint16)
	builds = max(builds, min(jobs, 1)) // the build of a job that is being prepared is not known yet
	if d.seq != d.acked || jobs == d.jobs && (builds <= d.builds || jobs == 0) {
		return
	}
	d.jobs, d.builds = jobs, builds
	d.seq++
	l.sendLocked(&job.Demand{Seq: d.seq, Jobs: uint16(jobs), Builds: uint16(builds)}, 0)
}

// NoMore tells the daemon that the jobs that run there are all that there will be, even if it was told the
// same last.
func (l *Link) NoMore(now time.Time, jobs, builds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.demand.peak, l.demand.jobs = 0, -1 // sent even if it is the same as before
	l.demandLocked(now, jobs, builds)
}
