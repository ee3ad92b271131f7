// Package holdings tracks which of a connection manager's contents each host's store holds, so that a job
// brings only what its host lacks. It knows nothing of connections. That a host lacks a content is known when
// it refuses a job that names it.
package holdings

import (
	"context"
	"sync"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Ledger records which of this manager's contents one host is believed to hold. The host may drop any of them
// at any time, and says so when a job names it. The zero value is that of a host that holds nothing. A Ledger
// is safe for concurrent use; its lock is taken after all others.
//
// A content is sent by one job at a time. Other jobs that need it wait until that job's message is posted,
// because the daemon takes in the contents of jobs in the order of arrival.
type Ledger struct {
	mu    sync.Mutex
	epoch uint64 // of the host's store
	known map[unit.ContentID]*holding
	// wrong are contents of system headers that the host was assumed to have itself (job.IsSystemFile) but
	// has not. If there are more than maxWrong, its system is a different one, and it is sent all of them.
	wrong  map[unit.ContentID]bool
	unlike bool // it could not complete an abridged list
	// loses means that it lacked what it has made itself (Made): it keeps no results, or not for long enough.
	loses bool
	// What a host keeps has a bound, beyond which it drops what was not used for longest. keeps is how many bytes it was sent at least
	// between two uses of a content when it lacked that the second time; 0: that has not been. What was not used for that long is
	// sent again, not named, which would cost a round trip. It grows, because the reason may have gone.
	keeps  uint64
	sent   uint64 // bytes of contents
	spared uint64 // bytes of contents that did not need to be sent

	recalled *Record // what an earlier manager knew, until the host's epoch is known; nil: nothing
}

// maxWrong is how many system headers a host may lack before it is assumed to have none of them.
const maxWrong = 64

// holding is one content.
type holding struct {
	posted chan struct{} // closed when its job is posted or given up
	way    Way           // the way that it was sent; nil: the host has confirmed it
	made   bool          // it was not sent, but is a result of the host's own
	used   uint64        // Ledger.sent when a job last named or brought it
	aged   uint64        // how far that was before the last time
}

// leastKept is the least value of Ledger.keeps, in bytes, and keptGrows the part of it by which it grows with each job that ran.
const (
	leastKept = 1 << 20
	keptGrows = 64
)

// Way is the connection on which contents are sent: a *link.Link.
type Way interface {
	Welcome() *job.Welcome
	Dead() <-chan struct{}
	Err() error
}

// maxHoldings bounds how many contents are remembered per host. Beyond that, all are forgotten.
const maxHoldings = 200_000

// Load is the contents that one job brings to a host.
type Load struct {
	h     *Ledger
	way   Way
	ids   []unit.ContentID
	bytes uint64        // of ids, about
	ch    chan struct{} // holding.posted of all of them; nil once closed
}

// IDs returns the contents. The caller must not change the slice, or read it after End.
func (w *Load) IDs() []unit.ContentID { return w.ids }

// Need returns which contents a job with the files of sets, sent over l, must bring: those of their lists and of
// their files except the sources. It waits for other jobs that are about to bring some of them. The caller ends
// the load (End).
func (h *Ledger) Need(ctx context.Context, l Way, sets ...*inputs.Set) (*Load, error) {
	for {
		wait := h.claim(l, sets)
		if wait.ch == nil || wait.h != nil {
			return wait, nil
		}
		select {
		case <-wait.ch:
		case <-l.Dead():
			return nil, l.Err()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// claim is Need without waiting. If it has to wait, it returns a load without holdings.
func (h *Ledger) claim(l Way, sets []*inputs.Set) *Load {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch := l.Welcome().StoreEpoch; h.known == nil || h.epoch != epoch || len(h.known) > maxHoldings {
		h.epoch, h.known, h.wrong = epoch, make(map[unit.ContentID]*holding), make(map[unit.ContentID]bool)
		h.unlike, h.loses, h.keeps, h.sent = false, false, 0, 0
		h.restoreLocked()
	}
	w := &Load{h: h, way: l}
	var named []*holding
	look := func(id *unit.ContentID, n uint64, own bool) (wait chan struct{}) {
		x := h.known[*id]
		if x == nil || h.faded(x) {
			if !own || h.wrong[*id] || len(h.wrong) > maxWrong {
				w.ids = append(w.ids, *id)
				w.bytes += n
			}
			return nil
		}
		named = append(named, x)
		select {
		case <-x.posted:
			return nil
		default:
			return x.posted
		}
	}
	for _, set := range sets {
		for _, f := range set.Files[1:] {
			if f.Len == 0 {
				continue
			}
			if wait := look(&f.ID, f.Len, f.System); wait != nil {
				return &Load{ch: wait}
			}
		}
		for s := set; s != nil; s = s.Base() {
			id, n := s.List()
			if wait := look(&id, uint64(n), false); wait != nil {
				return &Load{ch: wait}
			}
		}
	}
	if len(w.ids) > 0 {
		w.ch = make(chan struct{})
		for _, id := range w.ids {
			h.known[id] = &holding{posted: w.ch, way: l, used: h.sent}
		}
	}
	for _, x := range named {
		x.aged, x.used = h.sent-x.used, h.sent
	}
	h.sent += w.bytes
	return w
}

// faded reports whether the host will have dropped a content since its last use.
func (h *Ledger) faded(x *holding) bool {
	return h.keeps > 0 && x.way == nil && h.sent-x.used > h.keeps
}

// Posted records that the job's message has been posted.
func (w *Load) Posted() {
	if w == nil || w.ch == nil {
		return
	}
	close(w.ch)
	w.ch = nil
}

// End records the outcome of the job. If held is set, the host holds everything that the job brought;
// otherwise nothing of it is believed to be there. Only the first call counts.
func (w *Load) End(held bool) {
	if w == nil {
		return
	}
	w.h.mu.Lock()
	ids := w.ids
	w.ids = nil
	if held {
		w.h.keeps += w.h.keeps / keptGrows
	}
	for _, id := range ids {
		x := w.h.known[id]
		switch {
		case x == nil || x.way != w.way:
		case held:
			x.way = nil
		default:
			delete(w.h.known, id)
		}
	}
	w.h.mu.Unlock()
	w.Posted()
}

// Made records that the host has made a content of n bytes over l, which it then keeps like one that was sent to it.
func (h *Ledger) Made(l Way, id unit.ContentID, n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known == nil || h.loses || h.epoch == 0 || h.epoch != l.Welcome().StoreEpoch || h.known[id] != nil {
		return
	}
	h.known[id] = &holding{posted: past, made: true, used: h.sent}
	h.sent += n
}

// Dropped learns from contents that the host said it lacks how much it keeps. The caller forgets them (Forget).
func (h *Ledger) Dropped(ids []unit.ContentID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		x := h.known[id]
		switch {
		case x == nil || x.way != nil:
		case x.made:
			h.loses = true
		case x.aged > 0 && (h.keeps == 0 || x.aged < h.keeps):
			h.keeps = max(x.aged, leastKept)
		}
	}
}

// Forget makes jobs send contents again that the host lacks, or may lack. Contents in own, which the host was
// only assumed to have, are sent from now on.
func (h *Ledger) Forget(ids []unit.ContentID, own map[unit.ContentID]bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		x := h.known[id]
		if x == nil {
			if own[id] {
				h.wrong[id] = true
			}
			continue
		}
		select {
		case <-x.posted:
			delete(h.known, id)
		default: // it is being sent again already
		}
	}
}

// Spare counts n bytes of contents that a job named but did not have to bring.
func (h *Ledger) Spare(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spared += n
}

// Differs records that the host's system headers differ from those of this machine.
func (h *Ledger) Differs() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlike = true
}

// Alike reports whether the host is believed to have the same system headers as this machine.
func (h *Ledger) Alike() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.unlike && len(h.wrong) == 0
}

// Stats returns how many contents the host is believed to hold, and how many bytes jobs therefore did not
// have to send.
func (h *Ledger) Stats() (files int, spared uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.known), h.spared
}

// Bytes returns how many bytes of a set the host is believed to hold.
func (h *Ledger) Bytes(set *inputs.Set, each bool) (n uint64) {
	list, _ := set.List()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.known[list] != nil {
		return set.Len - set.Files[0].Len
	}
	if each {
		for _, f := range set.Files[1:] {
			if h.known[f.ID] != nil || len(h.wrong) <= maxWrong && !h.wrong[f.ID] && f.System {
				n += f.Len
			}
		}
	}
	return n
}

// ListsOf returns the list of a set, and its base if it has one.
func ListsOf(set *inputs.Set) (ids []unit.ContentID) {
	for ; set != nil; set = set.Base() {
		id, _ := set.List()
		ids = append(ids, id)
	}
	return ids
}
