package scheduler

import (
	"fmt"
	"time"
)

// Pick chooses a host for j. The first of these that applies:
//
//   - Run on the host with a free credit that has the smallest part of its places
//     taken; with equal parts, the one with fewer jobs of other managers, then with
//     the lower load, then the first in the list (or any, with Random).
//   - Local, as the list's local share has a free place and the hosts are busy, or
//     there is nothing but a local share.
//   - Wait while some host can be expected to have a place.
//   - Local, with the reason that is nearest to a cure.
func (s *Scheduler) Pick(now time.Time, j *Job) Decision {
	var w waiting
	var no objections
	if h := s.choose(now, j, "", &w, &no); h != nil {
		s.take(now, h)
		return Decision{Verdict: Run, Host: h.addr}
	}
	if j.Share > 0 && !j.NoLocal && (w.any && s.local.running < j.Share || len(j.Hosts) == 0) {
		s.local.running++
		return Decision{Verdict: Local, Reason: ReasonShare, Share: true}
	}
	if w.any {
		return Decision{Verdict: Wait, Until: w.until}
	}
	d := no.decision()
	d.Verdict = Local
	return d
}

// take uses one of h's credits.
func (s *Scheduler) take(now time.Time, h *host) {
	h.credits--
	h.running++
	h.moved = now
}

// choose is the best host for j but not, or nil.
func (s *Scheduler) choose(now time.Time, j *Job, not string, w *waiting, no *objections) *host {
	var best *host
	var bestPlaces int
	offset := 0
	if j.Random && len(j.Hosts) > 0 {
		offset = int(s.c.Rand() * float64(len(j.Hosts)))
	}
	for i := range j.Hosts {
		e := &j.Hosts[(i+offset)%len(j.Hosts)]
		if e.Addr == not || j.Tried[e.Addr] {
			no.tried++
			continue
		}
		h := s.hosts[e.Addr]
		if h == nil {
			no.lost(nil)
			continue
		}
		if !s.takes(now, h, e, j, w, no) {
			continue
		}
		places := h.places(e)
		if best == nil || better(now, h, places, best, bestPlaces) {
			best, bestPlaces = h, places
		}
	}
	return best
}

// takes says whether h has a place for j now. If not, it says in w whether it is
// worth waiting, or in no why not.
func (s *Scheduler) takes(now time.Time, h *host, e *Host, j *Job, w *waiting, no *objections) bool {
	since := j.Since
	if since.IsZero() {
		since = now
	}
	switch h.state {
	case Unknown, Connecting:
		// The first connection is worth a moment; one to a lost host is not, as
		// every job of a build would pay for it.
		first := h.why == ""
		end := h.firstDue.Add(s.c.Grace)
		if j.NoLocal {
			first, end = true, later(end, since.Add(s.c.Grace))
		}
		if first && now.Before(end) {
			w.add(end)
		} else {
			no.lost(h)
		}
		return false
	case Lost:
		// Where this job's end would be the build's, a restart is waited for.
		if end := since.Add(s.c.Grace); j.NoLocal && now.Before(end) {
			w.add(end)
		} else {
			no.lost(h)
		}
		return false
	case Draining:
		no.draining = h.addr
		return false
	case Up:
	}
	if h.drained {
		no.drained = h.addr
		return false
	}
	if now.Before(h.suspect) {
		no.suspect = h
		return false
	}
	if !h.toolchains[j.Toolchain] {
		if end := h.since.Add(s.c.Grace); !h.capable() && now.Before(end) {
			w.add(end)
		} else {
			no.toolchain = h.addr
		}
		return false
	}
	if j.Tree && !h.capacity.Tree {
		no.tree = h.addr
		return false
	}
	if h.capacity.MaxBody > 0 && j.Size > h.capacity.MaxBody {
		no.tooBig = h.addr
		return false
	}
	if now.Before(h.open) {
		no.lost(h)
		return false
	}
	full := e.Slots > 0 && h.running >= e.Slots || h.halfOpen() && h.running > 0
	if h.credits > 0 && !full {
		return true
	}
	// What runs there ends, and brings a credit back. Where nothing of ours runs
	// the credits are with others, or the host gives none.
	patience := s.c.Patience
	if j.NoLocal {
		patience *= strictPatience
	}
	end := later(h.moved, since).Add(patience)
	switch {
	case h.running > 0:
		w.add(time.Time{})
	case now.Before(end):
		w.add(end)
	default:
		no.full = h.addr
	}
	return false
}

// Trees says whether a job should be made for a private tree: some host of list
// that may take it shows trees. While none of them is known to and one's first
// connection is still under way, until says how long it is worth waiting for that:
// a job made in the form that no host takes has to run here.
func (s *Scheduler) Trees(now time.Time, list []Host, toolchain [16]byte) (tree bool, until time.Time) {
	known := false
	for i := range list {
		h := s.hosts[list[i].Addr]
		switch {
		case h == nil:
		case h.state == Up && h.toolchains[toolchain]:
			if h.capacity.Tree {
				return true, time.Time{}
			}
			known = true
		case h.why != "":
		case h.state == Unknown || h.state == Connecting:
			if end := h.firstDue.Add(s.c.Grace); now.Before(end) {
				until = later(until, end)
			}
		}
	}
	return !known, until
}

// strictPatience is how many times longer a job waits for a credit that may not be
// done here: its end would be the build's. But not for ever, as a daemon owes
// every client a credit.
const strictPatience = 12

// places is how many jobs of ours h may have at a time by entry e.
func (h *host) places(e *Host) int {
	n := max(h.capacity.Jobs, 1)
	if e.Slots > 0 {
		n = min(n, e.Slots)
	}
	return n
}

// better says whether a, with its places, comes before b, which stands earlier in
// the list.
func better(now time.Time, a *host, aPlaces int, b *host, bPlaces int) bool {
	// running/places, cross-multiplied.
	if x, y := a.running*bPlaces, b.running*aPlaces; x != y {
		return x < y
	}
	// The same of what other managers have there.
	aOthers, aLoad := a.busy(now)
	bOthers, bLoad := b.busy(now)
	if x, y := aOthers*max(b.capacity.Jobs, 1), bOthers*max(a.capacity.Jobs, 1); x != y {
		return x < y
	}
	return aLoad < bLoad
}

// viewOld is the age from which on a view of a host's load counts for nothing.
const viewOld = 10 * time.Second

// busy is what the host's view of itself says: the jobs of other managers, and the
// load average a place, in whole units: closer views are noise, and would keep the
// list's order from deciding.
func (h *host) busy(now time.Time) (others, load int) {
	if now.Sub(h.loadAt) >= viewOld {
		return 0, 0
	}
	return h.others, int(h.load.Average) / max(h.capacity.Jobs, 1)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// waiting collects what a job can wait for: at until the answer may change
// without an event, zero = never.
type waiting struct {
	any   bool
	until time.Time
}

func (w *waiting) add(until time.Time) {
	w.any = true
	if !until.IsZero() && (w.until.IsZero() || until.Before(w.until)) {
		w.until = until
	}
}

// objections collect why hosts cannot take a job.
type objections struct {
	tried                                   int
	toolchain, tree, tooBig, draining, full string // a host that objects so
	memory, drained                         string
	gone, denied, suspect                   *host
	unlisted                                bool
}

func (o *objections) lost(h *host) {
	switch {
	case h == nil:
		o.unlisted = true
	case h.refused == ReasonDenied:
		o.denied = h
	case o.gone == nil || o.gone.why == "":
		o.gone = h
	}
}

// decision names the objection that is nearest to a cure: a host that is there and
// lacks something comes before one that is not there.
func (o *objections) decision() Decision {
	switch {
	case o.full != "":
		return Decision{Reason: ReasonFull, Detail: o.full + " has no free place for this machine"}
	case o.tooBig != "":
		return Decision{Reason: ReasonTooBig, Detail: "the source does not fit a slot of " + o.tooBig}
	case o.draining != "":
		return Decision{Reason: ReasonDraining, Detail: o.draining + " is draining"}
	case o.drained != "":
		return Decision{Reason: ReasonDraining, Detail: o.drained + " was drained by hand (rdistcc undrain " + o.drained + ")"}
	case o.suspect != nil:
		return Decision{Reason: ReasonSuspect, Detail: o.suspect.addr + " is in quarantine (" + o.suspect.doubt + ")"}
	case o.tree != "":
		return Decision{Reason: ReasonPaths, Detail: o.tree + " cannot show private trees"}
	case o.toolchain != "":
		return Decision{Reason: ReasonToolchain, Detail: o.toolchain + " does not have this compiler"}
	case o.denied != nil:
		return Decision{Reason: ReasonDenied, Detail: o.denied.addr + " refuses this machine (" + o.denied.why + ")"}
	case o.gone != nil && o.gone.why != "":
		return Decision{Reason: ReasonLost, Detail: fmt.Sprintf("%s lost (%s)", o.gone.addr, o.gone.why)}
	case o.gone != nil:
		return Decision{Reason: ReasonLost, Detail: o.gone.addr + " does not answer"}
	case o.tried > 0:
		return Decision{Reason: ReasonLost, Detail: "every host was tried"}
	case o.unlisted:
		return Decision{Reason: ReasonLost, Detail: "the hosts are not known yet"}
	}
	return Decision{Reason: ReasonNoHosts, Detail: "no hosts configured"}
}
