// Package holdings keeps account of what the hosts' stores hold of a connection manager's
// contents, so that a job brings only what its host has not. It knows no connection: what
// a host lacks is what it says when a job names it.
package holdings

import (
	"context"
	"sync"

	"github.com/rdistcc/rdistcc/internal/inputs"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Ledger is what one host holds of this manager's contents, as far as that is believed: it may
// drop any of them at any time, and says so when a job names it. The zero value is one of
// a host that holds nothing. It is safe for concurrent use; its lock comes after all others.
//
// A content is sent by one job at a time. Others that need it wait until that job's message is
// posted: the daemon looks at jobs in the order in which they come.
type Ledger struct {
	mu    sync.Mutex
	epoch uint64 // of the host's store
	known map[unit.ContentID]*holding
	// wrong are contents of the system's headers that the host was taken to have itself (job.IsSystemFile), and
	// has not. Beyond maxWrong its system is another one: then it is sent all.
	wrong  map[unit.ContentID]bool
	unlike bool   // it could not make a list whole that was abridged
	spared uint64 // bytes of contents that did not need to be sent
}

// maxWrong is how often a host may lack a header of the system's before it is not taken to have any.
const maxWrong = 64

// holding is one content.
type holding struct {
	posted chan struct{} // closed when its job is posted, or comes to nothing
	way    Way           // that it went over; nil: the host has confirmed it
}

// Way is what contents travel over: a *link.Link.
type Way interface {
	Welcome() *job.Welcome
	Dead() <-chan struct{}
	Err() error
}

// maxHoldings bounds what is remembered of a host; beyond, all is forgotten.
const maxHoldings = 200_000

// Load is the contents that one job brings to a host.
type Load struct {
	h   *Ledger
	way Way
	ids []unit.ContentID
	ch  chan struct{} // posted, of all of them; nil once it is closed
}

// IDs returns what the contents are. The slice is not changed, and not read after End.
func (w *Load) IDs() []unit.ContentID { return w.ids }

// Need finds out which contents a job of set that goes over l must bring, of its files but the source, and of its
// lists. It waits for other jobs that are about to bring some of them. The load is to be ended.
func (h *Ledger) Need(ctx context.Context, l Way, set *inputs.Set) (*Load, error) {
	for {
		wait := h.claim(l, set)
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

// claim is Need, but that it does not wait: what is to be waited for is a load without
// holdings.
func (h *Ledger) claim(l Way, set *inputs.Set) *Load {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch := l.Welcome().StoreEpoch; h.known == nil || h.epoch != epoch || len(h.known) > maxHoldings {
		h.epoch, h.known, h.wrong = epoch, make(map[unit.ContentID]*holding), make(map[unit.ContentID]bool)
		h.unlike = false
	}
	w := &Load{h: h, way: l}
	look := func(id *unit.ContentID, own bool) (wait chan struct{}) {
		x := h.known[*id]
		if x == nil {
			if !own || h.wrong[*id] || len(h.wrong) > maxWrong {
				w.ids = append(w.ids, *id)
			}
			return nil
		}
		select {
		case <-x.posted:
			return nil
		default:
			return x.posted
		}
	}
	for _, f := range set.Files[1:] {
		if f.Len == 0 {
			continue
		}
		if wait := look(&f.ID, f.System); wait != nil {
			return &Load{ch: wait}
		}
	}
	for _, id := range ListsOf(set) {
		if wait := look(&id, false); wait != nil {
			return &Load{ch: wait}
		}
	}
	if len(w.ids) > 0 {
		w.ch = make(chan struct{})
		for _, id := range w.ids {
			h.known[id] = &holding{posted: w.ch, way: l}
		}
	}
	return w
}

// Posted says that the job's message is on its way.
func (w *Load) Posted() {
	if w == nil || w.ch == nil {
		return
	}
	close(w.ch)
	w.ch = nil
}

// End says what came of the job: held, the host has all that it brought; else nothing of it
// is believed to be there. The first word counts.
func (w *Load) End(held bool) {
	if w == nil {
		return
	}
	w.h.mu.Lock()
	ids := w.ids
	w.ids = nil
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

// Forget has contents be sent again that the host has not, or may not have. Those of own that it was only taken to
// have are sent from now on.
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
		default: // it is on its way again
		}
	}
}

// Spare notes bytes of contents that a job named and did not bring.
func (h *Ledger) Spare(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spared += n
}

// Differs says that the host has not, of the system's headers, all that this machine has.
func (h *Ledger) Differs() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlike = true
}

// Alike reports whether the host has the system's headers that this machine has, as far as that is known.
func (h *Ledger) Alike() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.unlike && len(h.wrong) == 0
}

// Stats returns how many contents the host is believed to hold, and how many bytes jobs did
// not need to send there for that.
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

// ListsOf names the list of a set, and the one that it rests on.
func ListsOf(set *inputs.Set) (ids []unit.ContentID) {
	for ; set != nil; set = set.Base() {
		id, _ := set.List()
		ids = append(ids, id)
	}
	return ids
}
