package connmgr

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// giveBack returns a grant that was not used.
func (f *farm) giveBack(g grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case g.conn != nil:
		f.sched.Done(time.Now(), g.host.addr, scheduler.Unused, scheduler.Report{ID: g.req.id})
		delete(g.req.job.Tried, g.host.addr)
		if slices.Contains(g.host.links, g.conn) { // otherwise the credit has ended with the link
			g.conn.addLocked(g.credit)
		}
		f.dispatchLocked()
	case g.decision.Share:
		f.endHereLocked(scheduler.Unused, scheduler.Report{ID: g.req.id})
	}
}

// again lets a job be placed once more on a host that was lost under it, where there is no
// other way. The one that loses it twice may be brought down by it: then only a job that
// may not be done here goes there again.
func (f *farm) again(r *request, h *host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &r.job
	j.Lost = time.Now()
	if j.Again == nil {
		j.Again = make(map[string]bool)
	}
	_, before := j.Again[h.addr]
	j.Again[h.addr] = !before || j.Strict
}

// unspent takes back the credit of a grant whose attempt did not spend it; what became of the
// attempt is still to be told (ended).
func (f *farm) unspent(g grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(g.host.links, g.conn) {
		g.conn.addLocked(g.credit)
	}
}

// onTheWay says that a source is being written to g's host, which may need a further
// connection for that.
func (f *farm) onTheWay(g grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g.host.growLocked(time.Now())
}

// retry lets a job be placed once more on a host where it has been.
func (f *farm) retry(r *request, h *host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(r.job.Tried, h.addr)
}

// end is what an attempt came to.
type end struct {
	outcome scheduler.Outcome
	report  scheduler.Report
	refusal string // the host's words where it refused the job
	result  uint64 // bytes that came back
}

// ended tells the scheduler what came of g, and returns how fast the host is with its
// toolchain, beside the average of all.
func (f *farm) ended(g grant, e end) (speed float64) {
	h := g.host
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Done(time.Now(), h.addr, e.outcome, e.report)
	switch e.outcome {
	case scheduler.OK:
		h.jobs.ok++
		h.refused = ""
		h.movedLocked(0, e.result)
	case scheduler.Unused:
	default:
		h.jobs.failed++
		if e.refusal != "" {
			h.refused = e.refusal
		}
	}
	f.dispatchLocked()
	return f.sched.Speed(h.addr, g.req.job.Toolchain)
}
