package connmgr

import (
	"context"
	"slices"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/digest"
	"github.com/rdistcc/rdistcc/pkg/inputs"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// holdings is what a host holds of this manager's contents, as far as that is believed:
// it may drop any of them at any time, and says so when a job names it.
//
// A content is sent by one job at a time. Others that need it wait until that job's message is
// posted: the daemon looks at jobs in the order in which they come.
type holdings struct {
	mu    sync.Mutex // behind Manager.mu
	epoch uint64     // of the host's store
	known map[job.ContentID]*holding
	// wrong are contents of the system's headers that the host was taken to have itself (job.IsSystemFile), and
	// has not. Beyond maxWrong its system is another one: then it is sent all.
	wrong  map[job.ContentID]bool
	unlike bool   // it could not make a list whole that was abridged
	spared uint64 // bytes of contents that did not need to be sent
}

// maxWrong is how often a host may lack a header of the system's before it is not taken to have any.
const maxWrong = 64

// holding is one content.
type holding struct {
	posted chan struct{} // closed when its job is posted, or comes to nothing
	way    way           // that it went over; nil: the host has confirmed it
}

// way is what contents travel over: a *link.Link.
type way interface {
	Welcome() *job.Welcome
	Dead() <-chan struct{}
	Err() error
}

// maxHoldings bounds what is remembered of a host; beyond, all is forgotten.
const maxHoldings = 200_000

// load is the contents that one job brings to a host.
type load struct {
	h   *holdings
	way way
	ids []job.ContentID
	ch  chan struct{} // posted, of all of them; nil once it is closed
}

// need finds out which contents a job of set that goes over l must bring, of its files but the source, and of its
// lists. It waits for other jobs that are about to bring some of them. The load is to be ended.
func (h *holdings) need(ctx context.Context, l way, set *inputs.Set) (*load, error) {
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

// claim is need, but that it does not wait: what is to be waited for is a load without
// holdings.
func (h *holdings) claim(l way, set *inputs.Set) *load {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch := l.Welcome().StoreEpoch; h.known == nil || h.epoch != epoch || len(h.known) > maxHoldings {
		h.epoch, h.known, h.wrong = epoch, make(map[job.ContentID]*holding), make(map[job.ContentID]bool)
		h.unlike = false
	}
	w := &load{h: h, way: l}
	look := func(id *job.ContentID, own bool) (wait chan struct{}) {
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
			return &load{ch: wait}
		}
	}
	for _, id := range listsOf(set) {
		if wait := look(&id, false); wait != nil {
			return &load{ch: wait}
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

// posted says that the job's message is on its way.
func (w *load) posted() {
	if w == nil || w.ch == nil {
		return
	}
	close(w.ch)
	w.ch = nil
}

// end says what came of the job: held, the host has all that it brought; else nothing of it
// is believed to be there. The first word counts.
func (w *load) end(held bool) {
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
	w.posted()
}

// forget has contents be sent again that the host has not, or may not have. Those of own that it was only taken to
// have are sent from now on.
func (h *holdings) forget(ids []job.ContentID, own map[job.ContentID]bool) {
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

// spare notes bytes of contents that a job named and did not bring.
func (h *holdings) spare(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.spared += n
}

// differs says that the host has not, of the system's headers, all that this machine has.
func (h *holdings) differs() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unlike = true
}

// alike reports whether the host has the system's headers that this machine has, as far as that is known.
func (h *holdings) alike() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.unlike && len(h.wrong) == 0
}

// stats says how many contents the host is believed to hold, and how many bytes jobs did
// not need to send there for that.
func (h *holdings) stats() (files int, spared uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.known), h.spared
}

// lacked has a job whose host has not all that it names be sent to it again, with what the host says that it lacks: with
// all where it does not say which, or has dropped the list of them.
func (m *Manager) lacked(r *request, a *attempt) {
	if a.known != nil {
		ids, lists := a.out.lacked, listsOf(a.known.set)
		noList := slices.ContainsFunc(lists, func(id job.ContentID) bool { return slices.Contains(ids, id) })
		if noList && a.abridged { // what else it has, it has not said yet
			a.at.holds.differs()
		}
		own := make(map[job.ContentID]bool)
		all := len(ids) == 0 || noList && !a.abridged
		if all {
			ids = lists
		}
		for _, f := range a.known.set.Files {
			if f.System && !noList {
				own[f.ID] = true
			}
			if all {
				ids = append(ids, f.ID)
			}
		}
		a.at.holds.forget(ids, own)
	}
	m.metrics.lacks.Inc()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(r.job.Tried, a.at.addr)
}

// lackedOf reads which contents a host lacks from its answer, whose content lies in mem; nil: it does not say.
func lackedOf(r *job.Result, mem []byte) (ids []job.ContentID) {
	const size = uint64(len(job.ContentID{}))
	n := r.Stdout.Len
	if r.Stdout.Off != 0 || n == 0 || n%size != 0 || n > uint64(len(mem)) || digest.Sum(mem[:n]) != r.Digest {
		return nil
	}
	for mem = mem[:n]; len(mem) > 0; mem = mem[size:] {
		ids = append(ids, job.ContentID(mem[:size]))
	}
	return ids
}

// maxWeighed is how many hosts are asked content by content what they hold of a job. In a
// longer list a host counts as one that holds all of it or nothing.
const maxWeighed = 16

// heldOf is how many bytes of t each of the hosts is believed to hold; nil: nothing, or
// there is no choice.
func (m *Manager) heldOf(t *task, hosts []scheduler.Host) map[string]uint64 {
	if t.known == nil || len(hosts) < 2 {
		return nil
	}
	there := make(map[string]*holdings, len(hosts))
	m.mu.Lock()
	for i := range hosts {
		if h := m.hosts[hosts[i].Addr]; h != nil && h.link != nil {
			there[h.addr] = &h.holds
		}
	}
	m.mu.Unlock()
	held := make(map[string]uint64, len(there))
	for addr, h := range there {
		if n := h.bytes(t.known.set, len(hosts) <= maxWeighed); n > 0 {
			held[addr] = n
		}
	}
	return held
}

// bytes is how many bytes of a set the host is believed to hold.
func (h *holdings) bytes(set *inputs.Set, each bool) (n uint64) {
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
