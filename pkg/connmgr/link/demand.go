package link

import (
	"math"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// A daemon divides its credits among the managers by what each has use for, so it is
// told: a rise at once, as a core may be waiting for it; a fall when it has lasted
// demandLast, as the next jobs of a build mostly follow.
const demandLast = 500 * time.Millisecond

// Inherit takes over what another link to the same daemon has said, which has ended.
func (l *Link) Inherit(other *Link) {
	other.mu.Lock()
	from := other.demand
	other.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	d := &l.demand
	d.jobs, d.builds, d.peak, d.low, d.lowPeak = from.jobs, from.builds, from.peak, from.low, from.lowPeak
}

// Demand tells the daemon how many jobs there are for it, of so many builds, if the last
// word is acknowledged and no longer true.
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
	builds = max(builds, min(jobs, 1)) // of a job that is being prepared the build is not known yet
	if d.seq != d.acked || jobs == d.jobs && (builds <= d.builds || jobs == 0) {
		return
	}
	d.jobs, d.builds = jobs, builds
	d.seq++
	l.sendLocked(&job.Demand{Seq: d.seq, Jobs: uint16(jobs), Builds: uint16(builds)}, 0)
}

// NoMore tells the daemon that there is no use for more than these jobs, which run there,
// even if that is what it was told last.
func (l *Link) NoMore(now time.Time, jobs, builds int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.demand.peak, l.demand.jobs = 0, -1 // said even if it was the last word
	l.demandLocked(now, jobs, builds)
}
