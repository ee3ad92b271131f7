package farm

import (
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// GiveBack returns a grant that was not used.
func (f *Farm) GiveBack(g Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case g.conn != nil:
		f.sched.Done(time.Now(), g.Host.Addr, scheduler.Unused, scheduler.Report{ID: g.Req.ID})
		delete(g.Req.Job.Tried, g.Host.Addr)
		if slices.Contains(g.Host.links, g.conn) { // otherwise the credit has ended with the link
			g.conn.addLocked(g.Credit)
		}
		f.dispatchLocked()
	case g.Decision.Share:
		f.endHereLocked(scheduler.Unused, scheduler.Report{ID: g.Req.ID})
	}
}

// Again allows the scheduler to place a job once more on a host that was lost during it, if there is no other
// way. A host that is lost twice may have been crashed by the job; then only a job that must not run locally
// goes there again.
func (f *Farm) Again(r *Request, h *Host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	j := &r.Job
	j.Lost = time.Now()
	if j.Again == nil {
		j.Again = make(map[string]bool)
	}
	_, before := j.Again[h.Addr]
	j.Again[h.Addr] = !before || j.Strict
}

// Unspent takes back the credit of a grant whose attempt did not spend it. The caller still reports the
// attempt (Ended).
func (f *Farm) Unspent(g Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.Contains(g.Host.links, g.conn) {
		g.conn.addLocked(g.Credit)
	}
}

// OnTheWay tells the farm that a source is being written to g's host, for which another connection may be
// worth opening.
func (f *Farm) OnTheWay(g Grant) {
	if f.o.LinksMax <= 1 {
		return // hosts get no further connections
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	g.Host.growLocked(time.Now())
}

// Retry allows the scheduler to place a job once more on a host where it has been.
func (f *Farm) Retry(r *Request, h *Host) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(r.Job.Tried, h.Addr)
}

// End is the outcome of an attempt.
type End struct {
	Outcome scheduler.Outcome
	Report  scheduler.Report
	Refusal string // why the host refused the job, or ""
	Result  uint64 // bytes of the result
}

// Ended tells the scheduler the outcome of g, and returns how fast the host is with its toolchain, relative
// to the average of all hosts.
func (f *Farm) Ended(g Grant, e End) (speed float64) {
	h := g.Host
	if e.Outcome == scheduler.OK {
		h.moved(0, e.Result)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Done(time.Now(), h.Addr, e.Outcome, e.Report)
	switch e.Outcome {
	case scheduler.OK:
		h.jobs.ok++
		h.refused = ""
	case scheduler.Unused:
	default:
		h.jobs.failed++
		if e.Refusal != "" {
			h.refused = e.Refusal
		}
	}
	f.dispatchLocked()
	return f.sched.Speed(h.Addr, g.Req.Job.Toolchain)
}

// EndHere tells the scheduler that a job that was placed on this machine has ended.
func (f *Farm) EndHere(out scheduler.Outcome, r scheduler.Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endHereLocked(out, r)
	f.dispatchLocked()
}
