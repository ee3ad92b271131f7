package received

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
)

func (s *Store) open() (err error) {
	if err := os.MkdirAll(s.o.Dir, 0o700); err != nil {
		return err
	}
	// Links in the name would lead elsewhere from within a tree.
	if s.o.Dir, err = filepath.EvalSymlinks(s.o.Dir); err != nil {
		return err
	}
	if s.o.Dir, err = filepath.Abs(s.o.Dir); err != nil {
		return err
	}
	if s.lock, err = os.OpenFile(s.path("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			s.lock.Close()
		}
	}()
	if err := unix.Flock(int(s.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%w: %s", ErrInUse, s.o.Dir)
	}
	for _, dir := range []string{"contents", "partial", "parcels", "roots"} {
		if err := os.MkdirAll(s.path(dir), 0o755); err != nil {
			return err
		}
	}
	return s.load()
}

// load finds what is there. What is not whole is removed.
func (s *Store) load() error {
	list, err := os.ReadDir(s.path("contents"))
	if err != nil {
		return err
	}
	for _, e := range list {
		if st, err := e.Info(); err == nil && st.Mode().IsRegular() {
			s.contents[e.Name()] = st.Size()
			s.total += st.Size()
		}
	}
	if list, err = os.ReadDir(s.path("parcels")); err != nil {
		return err
	}
	for _, e := range list {
		h, err := s.loadParcel(e)
		if err != nil {
			s.o.Log.Warn("a received toolchain is dropped", "id", e.Name(), "err", err)
			_ = os.Remove(s.path("parcels", e.Name())) // tried again at the next start
			continue
		}
		s.parcels[h.ID] = h
	}
	if list, err = os.ReadDir(s.path("roots")); err != nil {
		return err
	}
	laid := make(map[string]bool, len(s.parcels))
	for id := range s.parcels {
		laid[idName(id)] = true
	}
	for _, e := range list {
		if !laid[e.Name()] {
			if err := os.RemoveAll(s.path("roots", e.Name())); err != nil {
				return err
			}
		}
	}
	s.sweep()
	return nil
}

func (s *Store) loadParcel(e fs.DirEntry) (*held, error) {
	st, err := e.Info()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > parcel.MaxEncoded {
		return nil, errors.New("not a parcel")
	}
	b, err := os.ReadFile(s.path("parcels", e.Name()))
	if err != nil {
		return nil, err
	}
	p, err := parcel.Parse(b)
	if err != nil {
		return nil, err
	}
	if idName(p.ID) != e.Name() {
		return nil, errors.New("damaged")
	}
	if missing := s.missing(p); len(missing) > 0 {
		return nil, ErrIncomplete
	}
	if _, err := os.Stat(s.root(p.ID)); err != nil {
		return nil, err
	}
	h := newHeld(p)
	h.complete, h.used = true, st.ModTime()
	return h, nil
}
