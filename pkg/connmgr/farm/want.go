package farm

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/scheduler"
)

// Want starts the connections that a job of list may need. eager, if not nil, is how soon after a loss the
// job wants a host dialled again.
func (f *Farm) Want(list []scheduler.Host, eager *time.Duration) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sched.Ensure(now, list)
	for i := range list {
		f.hostLocked(list[i].Addr).wantLocked(now, eager)
	}
	f.refreshViewsLocked(now, list)
}

// hostLocked returns the host at an address, and starts its goroutine if it is new.
func (f *Farm) hostLocked(addr string) *Host {
	h := f.hosts[addr]
	if h == nil {
		h = &Host{f: f, Addr: addr, grow: make(chan struct{}, 1), kick: make(chan struct{}, 1), lastWant: time.Now()}
		if f.o.Held != nil {
			h.Holds.Recall(f.o.Held(addr))
		}
		f.hosts[addr] = h
		f.running.Go(func() { h.run(f.ctx) })
	}
	return h
}

// ViewFresh is how old the view of a host's load may be when a host is about to be chosen.
const ViewFresh = 500 * time.Millisecond

// refreshViewsLocked refreshes the views of a list's hosts if that helps to choose. What is requested now has
// arrived by the time that the preprocessor has ended.
func (f *Farm) refreshViewsLocked(now time.Time, list []scheduler.Host) {
	if len(list) < 2 {
		return
	}
	for i := range list {
		if h := f.hosts[list[i].Addr]; h != nil && h.link != nil {
			h.link.Refresh(now, ViewFresh)
		}
	}
}
