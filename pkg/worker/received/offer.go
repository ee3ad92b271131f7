package received

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Missing is a content that a client has to write.
type Missing struct {
	Entry *parcel.Entry
	Have  uint64 // bytes of it that are there already
}

// missing returns the contents that are not complete.
func (s *Store) missing(p *parcel.Parcel) (list []*parcel.Entry) {
	seen := map[string]bool{}
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.Link() {
			continue
		}
		name := contentName(e)
		if n, ok := s.contents[name]; (!ok || uint64(n) != e.Len) && !seen[name] {
			seen[name] = true
			list = append(list, e)
		}
	}
	return list
}

// Offer announces a parcel, and returns which of its contents are missing. A complete one can be used from then on.
func (s *Store) Offer(tenant string, encoded []byte) (id unit.ToolchainID, missing []Missing, err error) {
	p, err := parcel.Parse(encoded)
	if err != nil {
		return id, nil, err
	}
	s.mu.Lock()
	defer s.unlock()
	h := s.parcels[p.ID]
	if h == nil || !h.complete && !h.tenants[tenant] { // each tenant has pieces of its own
		s.forget(time.Now().Add(-pendingTime))
		if h = s.parcels[p.ID]; h == nil {
			h = newHeld(p)
			h.encoded = encoded
		}
		if err := s.admit(tenant, h); err != nil {
			return id, nil, err
		}
		s.parcels[p.ID] = h
	}
	h.tenants[tenant], h.used = true, time.Now()
	for _, e := range s.missing(h.Parcel) {
		m := Missing{Entry: e}
		if st, err := os.Stat(s.path("partial", partialName(tenant, contentName(e)))); err == nil {
			m.Have = min(uint64(st.Size()), e.Len)
		}
		missing = append(missing, m)
	}
	if len(missing) == 0 && !h.complete {
		if err := s.complete(h); err != nil {
			return id, nil, err
		}
	}
	return p.ID, missing, nil
}

// complete lays out a parcel whose contents are all there.
func (s *Store) complete(h *held) error {
	if err := s.lay(h); err != nil {
		return err
	}
	// The parcel's name appears last: what a crash leaves without it is removed.
	name := s.path("parcels", idName(h.ID))
	if err := os.WriteFile(name+".new", h.encoded, 0o600); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	h.complete, h.encoded = true, nil
	return nil
}

// lay lays out a parcel anew.
func (s *Store) lay(h *held) error {
	root := s.root(h.ID)
	err := os.RemoveAll(root)
	if err == nil {
		err = h.Lay(root, func(e *parcel.Entry) string { return s.path("contents", contentName(e)) }, s.freshContent)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(root))
	}
	return nil
}

// freshContent replaces the file of a content, which has as many names as it can have, by a copy. Otherwise one client could
// use up the names of what others send too.
func (s *Store) freshContent(e *parcel.Entry) error {
	name := s.path("contents", contentName(e))
	from, err := os.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(s.path("contents"), contentName(e)+".") // removed at the next start, if it is left there
	if err != nil {
		return err
	}
	copied, h := to.Name(), sha256.New()
	_, err = io.Copy(io.MultiWriter(to, h), from)
	if err == nil && [sha256.Size]byte(h.Sum(nil)) != e.Sum {
		err = fmt.Errorf("%s is damaged", name)
	}
	err = errors.Join(err, to.Chmod(contentMode(e)), to.Close())
	if err == nil {
		err = os.Rename(copied, name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(copied))
	}
	return nil
}
