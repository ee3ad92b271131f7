package scheduler

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// verdict on a host.
type place uint8

const (
	nowhere place = iota
	busy          // when one of our jobs there has ended
	free
)

// takes says whether h has a place for j. If not, it says in w whether it is worth
// waiting, or in no why not.
func (s *Scheduler) takes(now time.Time, h *host, e *Host, j *Job, w *waiting, no *objections) place {
	since := j.Since
	if since.IsZero() {
		since = now
	}
	switch {
	case h.drained:
		no.drained = h.addr
		return nowhere
	case now.Before(h.suspect):
		no.suspect = h
		return nowhere
	}
	switch h.state {
	case Unknown, Connecting, Lost:
		s.absent(now, h, j, w, no)
		return nowhere
	case Draining:
		// Mostly to be started anew.
		if end := s.strictEnd(now, j); j.Strict && now.Before(end) {
			w.back(end)
		} else {
			no.draining = h.addr
		}
		return nowhere
	case Up:
	}
	if !h.toolchains[j.Toolchain] {
		end := h.since.Add(s.c.Grace)
		if h.identifying && j.Strict {
			end = later(end, s.strictEnd(now, j))
		}
		switch {
		case h.capable() && !h.identifying || !now.Before(end):
			no.toolchain, no.identifying = h.addr, h.identifying
		case now.Before(h.since.Add(s.c.Grace)):
			w.add(h.since.Add(s.c.Grace))
		default:
			w.back(end)
		}
		return nowhere
	}
	if j.Tree && !h.capacity.Tree {
		no.tree = h.addr
		return nowhere
	}
	if h.capacity.MaxBody > 0 && j.Size > h.capacity.MaxBody {
		no.tooBig = h.addr
		return nowhere
	}
	if now.Before(h.open) {
		if end := s.strictEnd(now, j); j.Strict && now.Before(end) {
			w.back(end)
			w.look(h.open)
		} else {
			no.lost(h)
		}
		return nowhere
	}
	if n := j.Cost.Memory; n > 0 && !h.fits(s.clock(now), n) {
		// Memory comes back with the end of what runs there.
		if end := since.Add(s.c.Patience); len(h.runs)+h.others > 0 && now.Before(end) {
			w.add(end)
			w.own = true
		} else {
			no.memory = h.addr
		}
		return nowhere
	}
	full := e.Slots > 0 && len(h.runs) >= e.Slots || h.halfOpen() && len(h.runs) > 0
	if e.Slots == 0 && h.capacity.Jobs > 0 {
		full = full || len(h.runs) >= h.capacity.Jobs+h.deep
	}
	if h.credits > 0 && !full {
		return free
	}
	// What runs there ends, and brings a credit back. Where nothing of ours runs
	// the credits are with others, or the host gives none.
	patience := s.c.Patience
	if j.Strict || j.NoLocal {
		patience = max(patience, s.c.Strict)
	}
	end := later(h.moved, since).Add(patience)
	switch {
	case len(h.runs) > 0:
		w.add(time.Time{})
		return busy
	case now.Before(end):
		w.add(end)
	default:
		no.full = h.addr
	}
	return nowhere
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
		case h.state == Up && h.identifying && !h.capacity.Tree:
			known = true // it may have the compiler, and takes only the other form
		case h.why != "":
		case h.state == Unknown || h.state == Connecting:
			if end := h.firstDue.Add(s.c.Grace); now.Before(end) {
				until = later(until, end)
			}
		}
	}
	return !known, until
}

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
func better(t time.Duration, a *host, aPlaces int, b *host, bPlaces int) bool {
	// running/places, cross-multiplied.
	if x, y := len(a.runs)*bPlaces, len(b.runs)*aPlaces; x != y {
		return x < y
	}
	// The same of what other managers have there.
	aOthers, aLoad := a.busy(t)
	bOthers, bLoad := b.busy(t)
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
func (h *host) busy(t time.Duration) (others, load int) {
	if !h.viewed || t-h.loadAt >= viewOld {
		return 0, 0
	}
	return h.others, int(h.load.Average) / max(h.capacity.Jobs, 1)
}

// fits says whether n bytes of memory are to be had at h: as far as its view is
// worth something, less what was sent there since.
func (h *host) fits(t time.Duration, n uint64) bool {
	if h.capacity.Memory > 0 && n > h.capacity.Memory {
		return false
	}
	if !h.viewed || t-h.loadAt >= viewOld || h.load.MemoryFree == 0 {
		return true
	}
	for _, r := range h.runs {
		if r.arrive > h.loadAt {
			n += r.memory
		}
	}
	return n <= h.load.MemoryFree
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
	own   bool // by what this job needs
	gone  bool // for a host that is not there, or closed, and may come back
	stale bool // one of those is worth an attempt to connect it
	until time.Time
}

// add says that a host is busy, or about to be there.
func (w *waiting) add(until time.Time) {
	w.any = true
	w.look(until)
}

// back says that a host that is not there is worth waiting for.
func (w *waiting) back(until time.Time) {
	w.gone = true
	w.look(until)
}

// look says when to look again.
func (w *waiting) look(until time.Time) {
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
	identifying                             bool // toolchain: it may yet have the compiler
}

func (o *objections) lost(h *host) {
	switch {
	case h == nil:
		o.unlisted = true
	case h.refused == reason.Denied:
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
		return Decision{Reason: reason.Full, Detail: o.full + " has no free place for this machine"}
	case o.tooBig != "":
		return Decision{Reason: reason.TooBig, Detail: "the source does not fit a slot of " + o.tooBig}
	case o.draining != "":
		return Decision{Reason: reason.Draining, Detail: o.draining + " is draining"}
	case o.memory != "":
		return Decision{Reason: reason.Memory, Detail: o.memory + " has not as much memory free as this takes"}
	case o.drained != "":
		return Decision{Reason: reason.Draining, Detail: o.drained + " was drained by hand (rdistcc undrain " + o.drained + ")"}
	case o.suspect != nil:
		return Decision{Reason: reason.Quarantine, Detail: o.suspect.addr + " is in quarantine (" + o.suspect.doubt + ")"}
	case o.tree != "":
		return Decision{Reason: reason.Paths, Detail: o.tree + " cannot show private trees"}
	case o.toolchain != "" && o.identifying:
		return Decision{Reason: reason.Toolchain, Detail: o.toolchain + " is starting: it has not found this compiler yet"}
	case o.toolchain != "":
		return Decision{Reason: reason.Toolchain, Detail: o.toolchain + " does not have this compiler"}
	case o.denied != nil:
		return Decision{Reason: reason.Denied, Detail: o.denied.addr + " refuses this machine (" + o.denied.why + ")"}
	case o.gone != nil && !o.gone.answered.IsZero():
		return Decision{Reason: reason.HostLost, Detail: o.gone.addr + " is starting: it has not said yet what it can do"}
	case o.gone != nil && o.gone.why != "":
		return Decision{Reason: reason.HostLost, Detail: fmt.Sprintf("%s lost (%s)", o.gone.addr, o.gone.why)}
	case o.gone != nil:
		return Decision{Reason: reason.HostLost, Detail: o.gone.addr + " does not answer"}
	case o.tried > 0:
		return Decision{Reason: reason.HostLost, Detail: "every host was tried"}
	case o.unlisted:
		return Decision{Reason: reason.HostLost, Detail: "the hosts are not known yet"}
	}
	return Decision{Reason: reason.NoHosts, Detail: "no hosts configured"}
}
