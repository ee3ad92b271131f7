package received

import (
	"os"
	"slices"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Use returns a toolchain for a job in a tree that shows it. The caller calls done when the job has ended; until then the
// toolchain stays. A tree may last longer, and show what has been removed meanwhile: it must not be used for a toolchain with
// another Parcel, even if that has the same ID.
//
// The first time since the start or since the toolchain came, Use reads all contents, and drops what a disk has damaged; then
// it lays the directory out again.
func (s *Store) Use(tenant string, id unit.ToolchainID) (tc Toolchain, done func(), err error) {
	h := s.take(tenant, id)
	if h == nil {
		return tc, nil, ErrUnknown
	}
	done = sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.users--
	})
	h.checked.Lock()
	defer h.checked.Unlock()
	if !h.whole {
		damaged, err := s.verify(h)
		if err != nil {
			done()
			return tc, nil, err
		}
		if len(damaged) > 0 {
			done()
			s.drop(h, damaged)
			return tc, nil, ErrUnknown
		}
		// Nothing shows it yet, and only what is laid out now is known to be what the parcel says.
		if err := s.lay(h); err != nil {
			done()
			return tc, nil, err
		}
		h.whole = true
	}
	return Toolchain{h.Parcel, s.root(id)}, done, nil
}

// take counts one more user of a toolchain; nil: there is none that the tenant can use.
func (s *Store) take(tenant string, id unit.ToolchainID) *held {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.parcels[id]
	if h == nil || !h.complete || !h.tenants[tenant] {
		return nil
	}
	h.users++
	h.used = time.Now()
	if h.used.Sub(h.noted) >= noteTime {
		h.noted = h.used
		_ = os.Chtimes(s.path("parcels", idName(id)), h.used, h.used) // for the order after a restart
	}
	return h
}

// drop removes a parcel some of whose contents are damaged, once nothing shows it, and these contents.
func (s *Store) drop(h *held, damaged []string) {
	s.mu.Lock()
	defer s.unlock()
	s.o.Log.Error("a received toolchain is damaged: check the disk", "toolchain", h.Name(), "dir", s.o.Dir)
	if s.parcels[h.ID] != h {
		return // somebody else has dropped it
	}
	for _, x := range s.parcels { // others may have the same contents; those in use were read and found right
		if x == h || x.complete && x.users == 0 && slices.ContainsFunc(x.Entries, func(e parcel.Entry) bool { return !e.Link() && slices.Contains(damaged, contentName(&e)) }) {
			s.remove(x)
		}
	}
	for _, name := range damaged {
		if n, ok := s.contents[name]; ok {
			delete(s.contents, name)
			s.total -= n
			_ = os.Remove(s.path("contents", name)) // if it stays, it is replaced when it comes again
		}
	}
	s.sweep()
}
