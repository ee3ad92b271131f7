package received

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// contentName returns the name of the file with an entry's content: a file's mode belongs to all its names.
func contentName(e *parcel.Entry) string {
	name := hex.EncodeToString(e.Sum[:])
	if e.Exec {
		name += "x"
	}
	return name
}

// contentMode returns the mode of that file. No parcel can ask for another one.
func contentMode(e *parcel.Entry) os.FileMode {
	if e.Exec {
		return 0o555
	}
	return 0o444
}

// find returns the parcel that a tenant has offered, and an entry of it with a content.
func (s *Store) find(tenant string, id unit.ToolchainID, name string) (*held, *parcel.Entry, error) {
	h := s.parcels[id]
	if h == nil || !h.tenants[tenant] {
		return nil, nil, ErrUnknown
	}
	for i := range h.Entries {
		if e := &h.Entries[i]; !e.Link() && contentName(e) == name {
			return h, e, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: no file of it has the content %.70s", ErrWrong, name)
}

// Write writes a content of a parcel, from the byte at on, which must be as many as are there already. Bytes that arrive
// before an error of r stay, and the next Write goes on behind them. When the last content is complete, the toolchain can be
// used: tenants are those that can use another one now.
func (s *Store) Write(tenant string, id unit.ToolchainID, name string, at uint64, r io.Reader) (tenants []string, err error) {
	e, err := s.begin(tenant, id, name)
	if e == nil {
		return nil, err
	}
	partial := s.path("partial", partialName(tenant, name))
	err = s.receive(e, partial, name, at, r)
	s.mu.Lock()
	defer s.unlock()
	_, there := s.contents[name]
	switch {
	case err == nil && !there:
		s.contents[name] = int64(e.Len)
		s.total += int64(e.Len)
	case err != nil && there: // another tenant was faster
		_ = os.Remove(partial) // or it is removed at the next start
	}
	s.end(tenant, name)
	if err != nil {
		return nil, err
	}
	// All that wait for it may be complete now.
	for _, h := range s.parcels {
		if h.complete || len(s.missing(h.Parcel)) > 0 {
			continue
		}
		switch e := s.complete(h); {
		case e == nil:
			tenants = slices.AppendSeq(tenants, maps.Keys(h.tenants))
		case h.ID == id:
			err = e
		default: // another client's trouble, which it learns with its next offer
			s.o.Log.Warn("a received toolchain cannot be laid out", "toolchain", h.Name(), "err", e)
		}
	}
	return tenants, err
}

// partialName returns the name of the file with what has come of a content from a tenant. No other one adds to it: it would not
// learn that the beginning is wrong before it has sent the rest.
func partialName(tenant, name string) string {
	sum := sha256.Sum256([]byte(tenant))
	return name + "." + hex.EncodeToString(sum[:8])
}

// writers are those of one content.
type writers struct {
	began   time.Time       // when the first one did, of all who have tried since the content was wanted
	tenants map[string]bool // that are writing it
}

// waits reports whether tenants wait for another one that is sending a content of n bytes. One that is slow on purpose must not
// keep it from them.
func (w *writers) waits(n uint64) bool {
	const least = 1 << 20 // bytes a second
	return len(w.tenants) > 0 && time.Since(w.began) < 30*time.Second+time.Duration(n/least)*time.Second
}

// begin reserves a content for one writer. e is nil if there is nothing to do. If not, and without an error, end is called.
func (s *Store) begin(tenant string, id unit.ToolchainID, name string) (e *parcel.Entry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, e, err := s.find(tenant, id, name)
	if err != nil {
		return nil, err
	}
	if _, ok := s.contents[name]; ok {
		return nil, nil
	}
	w := s.writing[name]
	if w == nil {
		w = &writers{began: time.Now(), tenants: map[string]bool{}}
		s.writing[name] = w
	}
	if w.tenants[tenant] || w.waits(e.Len) {
		return nil, ErrBusy
	}
	w.tenants[tenant] = true
	h.used = time.Now()
	return e, nil
}

// end ends the writing of a content by a tenant.
func (s *Store) end(tenant, name string) {
	w := s.writing[name]
	delete(w.tenants, tenant)
	if _, ok := s.contents[name]; ok && len(w.tenants) == 0 {
		delete(s.writing, name)
	}
}

// receive appends to a partial content, and gives it its name when it is complete.
func (s *Store) receive(e *parcel.Entry, partial, name string, at uint64, r io.Reader) error {
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if uint64(st.Size()) != at || at > e.Len {
		return fmt.Errorf("%w: it continues at %d of %d bytes, and %d are there", ErrWrong, at, e.Len, st.Size())
	}
	n, err := io.Copy(f, io.LimitReader(r, int64(e.Len-at)))
	if err != nil {
		return err
	}
	if at+uint64(n) < e.Len {
		return io.ErrUnexpectedEOF
	}
	if m, _ := r.Read(make([]byte, 1)); m > 0 {
		return errors.Join(fmt.Errorf("%w: it is longer than %d bytes", ErrWrong, e.Len), os.Remove(partial))
	}
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, int64(e.Len))); err != nil {
		return err
	}
	if [sha256.Size]byte(h.Sum(nil)) != e.Sum {
		return errors.Join(fmt.Errorf("%w: its SHA-256 is another", ErrWrong), os.Remove(partial))
	}
	if err := f.Chmod(contentMode(e)); err != nil {
		return err
	}
	return os.Rename(partial, s.path("contents", name))
}

// verify reads the contents of a parcel, and returns the names of those that are damaged. An error says nothing about them.
func (s *Store) verify(h *held) (damaged []string, err error) {
	seen := map[string]bool{}
	for i := range h.Entries {
		e := &h.Entries[i]
		name := contentName(e)
		if e.Link() || seen[name] {
			continue
		}
		seen[name] = true
		switch ok, err := right(s.path("contents", name), e); {
		case err != nil:
			return nil, err
		case !ok:
			damaged = append(damaged, name)
		}
	}
	return damaged, nil
}

// right reports whether a file has the content of e. One that is not there or cannot be read has not; one that cannot be
// opened may have it.
func right(name string, e *parcel.Entry) (bool, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return err == nil && [sha256.Size]byte(h.Sum(nil)) == e.Sum, nil
}
