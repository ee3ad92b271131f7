package scheduler

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
)

// place is the verdict on a host.
type place uint8

const (
	nowhere place = iota
	busy          // until one of our jobs there has ended
	free
)

// takes returns whether h has a place for j. If not, it notes in w whether waiting is
// worthwhile, or in no why not.
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
		// It usually drains to be restarted.
		if end := s.returnEnd(now, h, j); j.Strict && now.Before(end) {
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
		switch come := s.equipped(now, h, j); {
		case now.Before(come):
			w.back(come)
			return nowhere
		case !come.IsZero():
			no.stalled = true
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
		// Memory becomes free when running jobs end.
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
	// A running job of ours will end and bring a credit back. If none runs, other managers have
	// the credits, or the host grants none.
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

// Trees reports whether a job should be made for a private tree: some host of list that may
// take it shows trees. If no such host is known yet and the first connection to one is still
// under way, until says how long that is worth waiting for: a job made in a form that no
// host takes has to run here.
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

// places returns how many jobs of ours h may have at a time by entry e.
func (h *host) places(e *Host) int {
	n := max(h.capacity.Jobs, 1)
	if e.Slots > 0 {
		n = min(n, e.Slots)
	}
	return n
}

// better reports whether a comes before b, which stands earlier in the list, given their places, for a job of that name.
func better(t time.Duration, a *host, aPlaces int, b *host, bPlaces int, name uint64) bool {
	// running/places, cross-multiplied.
	if x, y := len(a.runs)*bPlaces, len(b.runs)*aPlaces; x != y {
		return x < y
	}
	// The same for the jobs of other managers.
	aOthers, aLoad := a.busy(t)
	bOthers, bLoad := b.busy(t)
	if x, y := aOthers*max(b.capacity.Jobs, 1), bOthers*max(a.capacity.Jobs, 1); x != y {
		return x < y
	}
	if aLoad != bLoad {
		return aLoad < bLoad
	}
	return name != 0 && Weight(name, a.addr) > Weight(name, b.addr)
}

// Weight returns how much a job of that name belongs to the host with an address (D. G. Thaler, C. V. Ravishankar: Using
// name-based mappings to increase hit rates, 1998). Managers that want the same result at the same time so tend to choose
// the same host, which compiles it once. A host that leaves or joins changes no choice but its own.
func Weight(name uint64, addr string) uint64 {
	h := name ^ 14695981039346656037
	for i := range len(addr) {
		h = (h ^ uint64(addr[i])) * 1099511628211
	}
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	return h ^ h>>33
}

// viewOld is the age at which a view of a host's load no longer counts.
const viewOld = 10 * time.Second

// busy returns what the host's view of itself says: the jobs of other managers, and the
// load average per place. Both are whole numbers: finer ones are noise, and would keep the
// order of the list from deciding.
func (h *host) busy(t time.Duration) (others, load int) {
	if !h.viewed || t-h.loadAt >= viewOld {
		return 0, 0
	}
	return h.others, int(h.load.Average) / max(h.capacity.Jobs, 1)
}

// fits reports whether h has n bytes of memory free: by its latest view, while that is recent
// enough, less what jobs sent there since need.
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

// waiting collects what a job can wait for. The answer may change without an event at until;
// zero: it does not.
type waiting struct {
	any   bool
	own   bool // because of what this job needs
	gone  bool // for a host that is not connected, or closed, and may come back
	stale bool // one of those hosts is worth an attempt to connect
	until time.Time
}

// add notes that a host is busy, or about to be connected.
func (w *waiting) add(until time.Time) {
	w.any = true
	w.look(until)
}

// back notes that a host that is not connected is worth waiting for.
func (w *waiting) back(until time.Time) {
	w.gone = true
	w.look(until)
}

// look notes when to look again.
func (w *waiting) look(until time.Time) {
	if !until.IsZero() && (w.until.IsZero() || until.Before(w.until)) {
		w.until = until
	}
}

// objections collects why hosts cannot take a job.
type objections struct {
	tried                                   int
	toolchain, tree, tooBig, draining, full string // each an example of a host with that objection
	memory, drained                         string
	gone, denied, suspect                   *host
	unlisted                                bool
	identifying                             bool // toolchain: the host may yet turn out to have the compiler
	stalled                                 bool // toolchain: a host was to be sent it, and has got no more of it for so long that a strict job gives up
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

// decision returns the objection that is easiest to remedy: a connected host that lacks
// something comes before one that is not connected.
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
