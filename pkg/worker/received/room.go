package received

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

// newHeld returns p as one that nothing has come of.
func newHeld(p *parcel.Parcel) *held {
	h := &held{Parcel: p, tenants: map[string]bool{}}
	h.size, h.names = p.Room()
	return h
}

// admit makes room for a parcel that a tenant offers for the first time. Others may have offered it before.
func (s *Store) admit(tenant string, h *held) error {
	size := h.size + h.names
	var own, pending uint64
	for _, x := range s.parcels {
		if x.tenants[tenant] {
			own += x.size + x.names
			if !x.complete {
				pending++
			}
		}
	}
	half := uint64(s.o.Quota / 2)
	if size > half {
		return fmt.Errorf("%w: it has %d bytes, a tenant may have %d (toolchains.size)", ErrQuota, size, half)
	}
	if pending >= pendingMost {
		return fmt.Errorf("%w: %d toolchains were announced and have not come", ErrQuota, pending)
	}
	for own+size > half {
		n, ok := s.evict(tenant)
		if !ok {
			return fmt.Errorf("%w: this tenant has %d bytes in use, of %d (toolchains.size)", ErrQuota, own, half)
		}
		own -= min(n, own)
	}
	for s.total+s.promised(tenant, h)+s.allNames(h) > s.o.Quota {
		if _, ok := s.evict(""); !ok {
			return fmt.Errorf("%w: %d bytes are in use, of %d (toolchains.size)", ErrQuota, s.total, s.o.Quota)
		}
	}
	return nil
}

// Room returns how many bytes the largest toolchain may have that a tenant could send now, what its names cost included, as far as
// that depends on quotas and on what is in use.
func (s *Store) Room(tenant string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	half := uint64(s.o.Quota / 2)
	var stays, all uint64 // what cannot make room: of this tenant, and of all
	for _, h := range s.parcels {
		if h.complete && h.users == 0 {
			continue
		}
		all += h.size + h.names
		if h.tenants[tenant] {
			stays += h.size + h.names
		}
	}
	return min(half-min(half, stays), uint64(s.o.Quota)-min(uint64(s.o.Quota), all))
}

// allNames returns what the names of all parcels and of h cost.
func (s *Store) allNames(h *held) int64 {
	n := h.names
	for _, x := range s.parcels {
		if x != h {
			n += x.names
		}
	}
	return int64(n)
}

// promised returns how many bytes may still come for h from a tenant and for the parcels that are not complete, from each that
// has offered them.
func (s *Store) promised(tenant string, h *held) (n int64) {
	seen := map[[2]string]bool{}
	count := func(tenant string, missing []*parcel.Entry) {
		for _, e := range missing {
			if k := [2]string{tenant, contentName(e)}; !seen[k] {
				seen[k] = true
				n += int64(e.Len)
			}
		}
	}
	for _, x := range s.parcels {
		if x.complete {
			continue
		}
		missing := s.missing(x.Parcel)
		for tenant := range x.tenants {
			count(tenant, missing)
		}
	}
	count(tenant, s.missing(h.Parcel))
	return n
}

// evict removes the parcel that was used least recently, of one tenant if it is named, and returns its size. ok is false if
// all are in use.
func (s *Store) evict(tenant string) (size uint64, ok bool) {
	var oldest *held
	for _, h := range s.parcels {
		if h.users == 0 && h.complete && (tenant == "" || h.tenants[tenant]) && (oldest == nil || h.used.Before(oldest.used)) {
			oldest = h
		}
	}
	if oldest == nil {
		return 0, false
	}
	size = oldest.size + oldest.names
	s.remove(oldest)
	s.sweep()
	return size, true
}

// remove removes a parcel that no job uses.
func (s *Store) remove(h *held) {
	delete(s.parcels, h.ID)
	if h.complete {
		err := errors.Join(os.Remove(s.path("parcels", idName(h.ID))), os.RemoveAll(s.root(h.ID)))
		if err != nil {
			s.o.Log.Warn("a received toolchain is not removed", "err", err)
		}
	}
}

// sweep removes contents that no parcel has.
func (s *Store) sweep() {
	wanted := map[string]bool{}
	for _, h := range s.parcels {
		for i := range h.Entries {
			if e := &h.Entries[i]; !e.Link() {
				wanted[contentName(e)] = true
			}
		}
	}
	for name, n := range s.contents {
		if !wanted[name] {
			delete(s.contents, name)
			s.total -= n
			if err := os.Remove(s.path("contents", name)); err != nil {
				s.o.Log.Warn("a content of a received toolchain is not removed", "err", err)
			}
		}
	}
	list, _ := os.ReadDir(s.path("partial"))
	for _, e := range list {
		name, _, _ := strings.Cut(e.Name(), ".")
		_, complete := s.contents[name]
		if w := s.writing[name]; (!wanted[name] || complete) && (w == nil || len(w.tenants) == 0) {
			_ = os.Remove(s.path("partial", e.Name())) // tried again
		}
	}
	for name, w := range s.writing {
		if !wanted[name] && len(w.tenants) == 0 {
			delete(s.writing, name)
		}
	}
}

// forget drops parcels that were announced and have not come.
func (s *Store) forget(before time.Time) {
	some := false
	for _, h := range s.parcels {
		if !h.complete && h.used.Before(before) {
			s.remove(h)
			some = true
		}
	}
	if some {
		s.sweep()
	}
}
