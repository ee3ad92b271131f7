package received

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/toolchain/parcel"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Options configure a Store.
type Options struct {
	Dir   string // made if need be; only this user can read it
	Quota int64  // bytes of all contents together; no tenant has more than half of it
	Log   *slog.Logger
}

// Errors of a Store. Others are trouble with its directory.
var (
	// ErrUnknown says that there is no such parcel, or none that this tenant has offered.
	ErrUnknown = errors.New("no such toolchain")
	// ErrIncomplete says that contents of a parcel are missing.
	ErrIncomplete = errors.New("contents of the toolchain are missing")
	// ErrQuota is wrapped by the error about a parcel for which there is no room.
	ErrQuota = errors.New("no room for the toolchain")
	// ErrWrong is wrapped by the error about bytes that are not those of the content, or not where they belong.
	ErrWrong = errors.New("not the content that was announced")
	// ErrInUse is wrapped by Open's error about a directory that another daemon uses.
	ErrInUse = errors.New("the directory is in use by another daemon")
	// ErrBusy says that the content is being written by another client.
	ErrBusy = errors.New("another client is sending it")
)

// pendingTime is how long a parcel that was offered stays if nothing of it arrives.
const pendingTime = time.Hour

// pendingMost bounds the parcels that a tenant has offered and not finished.
const pendingMost = 32

// Store keeps received toolchains. Its methods may be called concurrently.
type Store struct {
	o    Options
	lock *os.File

	mu       sync.Mutex
	parcels  map[unit.ToolchainID]*held
	contents map[string]int64 // complete ones: bytes by file name
	writing  map[string]bool  // by file name
	total    int64            // bytes of contents
	closed   bool
}

// held is a parcel.
type held struct {
	*parcel.Parcel
	encoded  []byte // until it is complete
	complete bool
	tenants  map[string]bool // that have offered it
	users    int             // trees that show it
	checked  sync.Mutex      // held while contents are read; guards whole
	whole    bool            // the contents were right when they were read, since the start
	used     time.Time
}

// Open opens the directory. It fails if another daemon uses it.
func Open(o Options) (*Store, error) {
	s := &Store{o: o, parcels: make(map[unit.ToolchainID]*held), contents: make(map[string]int64), writing: make(map[string]bool)}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("received toolchains: %w", err)
	}
	return s, nil
}

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
	for _, e := range list {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(s.parcels)), func(id unit.ToolchainID) bool { return idName(id) == e.Name() }) {
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
	return &held{Parcel: p, complete: true, tenants: map[string]bool{}, used: st.ModTime()}, nil
}

// Close lets another daemon use the directory. Nothing may be under way.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.lock.Close()
}

func (s *Store) path(words ...string) string {
	return filepath.Join(append([]string{s.o.Dir}, words...)...)
}

func idName(id unit.ToolchainID) string { return hex.EncodeToString(id[:]) }

func (s *Store) root(id unit.ToolchainID) string { return s.path("roots", idName(id)) }

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
	defer s.mu.Unlock()
	h := s.parcels[p.ID]
	if h == nil {
		s.forget(time.Now().Add(-pendingTime))
		h = &held{Parcel: p, encoded: encoded, tenants: map[string]bool{}}
		if err := s.admit(tenant, h); err != nil {
			return id, nil, err
		}
		s.parcels[p.ID] = h
	}
	h.tenants[tenant], h.used = true, time.Now()
	for _, e := range s.missing(h.Parcel) {
		m := Missing{Entry: e}
		if st, err := os.Stat(s.path("partial", contentName(e))); err == nil {
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

// admit makes room for a parcel.
func (s *Store) admit(tenant string, h *held) error {
	_, size := h.Contents()
	var own, pending uint64
	for _, x := range s.parcels {
		if x.tenants[tenant] {
			_, n := x.Contents()
			own += n
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
	for s.total+s.promised(h) > s.o.Quota {
		if _, ok := s.evict(""); !ok {
			return fmt.Errorf("%w: %d bytes are in use, of %d (toolchains.size)", ErrQuota, s.total, s.o.Quota)
		}
	}
	return nil
}

// promised returns how many bytes may still come for h and for the parcels that are not complete.
func (s *Store) promised(h *held) (n int64) {
	seen := map[string]bool{}
	for _, x := range append(slices.Collect(maps.Values(s.parcels)), h) {
		if x.complete {
			continue
		}
		for _, e := range s.missing(x.Parcel) {
			if name := contentName(e); !seen[name] {
				seen[name] = true
				n += int64(e.Len)
			}
		}
	}
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
	_, size = oldest.Contents()
	s.remove(oldest)
	s.sweep()
	return size, true
}

// remove removes a parcel that no tree shows.
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
		if !wanted[e.Name()] && !s.writing[e.Name()] {
			_ = os.Remove(s.path("partial", e.Name())) // tried again
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

// complete lays out a parcel whose contents are all there.
func (s *Store) complete(h *held) error {
	root := s.root(h.ID)
	if err := os.RemoveAll(root); err != nil {
		return err
	}
	if err := h.Lay(root, func(e *parcel.Entry) string { return s.path("contents", contentName(e)) }); err != nil {
		return errors.Join(err, os.RemoveAll(root))
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

// Toolchain is a received toolchain that can be used.
type Toolchain struct {
	*parcel.Parcel
	Root string // the directory in which it is laid out
}

// List returns the toolchains that a tenant can use, by ID.
func (s *Store) List(tenant string) (list []Toolchain) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.parcels {
		if h.complete && h.tenants[tenant] {
			list = append(list, Toolchain{h.Parcel, s.root(h.ID)})
		}
	}
	slices.SortFunc(list, func(x, y Toolchain) int { return slices.Compare(x.ID[:], y.ID[:]) })
	return list
}

// Use returns a toolchain for a tree that is going to show it. The caller calls done when the tree has ended; until then
// the toolchain stays. The first time since the start, Use reads all contents: what a disk has damaged is dropped.
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
		if damaged := s.verify(h); len(damaged) > 0 {
			done()
			s.drop(h, damaged)
			return tc, nil, ErrUnknown
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
	_ = os.Chtimes(s.path("parcels", idName(id)), h.used, h.used) // for the order after a restart
	return h
}

// drop removes a parcel some of whose contents are damaged, once nothing shows it, and these contents.
func (s *Store) drop(h *held, damaged []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
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

// Stats say what is kept.
type Stats struct {
	Toolchains int   `json:"toolchains"`
	Bytes      int64 `json:"bytes"`
}

// Stats returns what is kept.
func (s *Store) Stats() (st Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.parcels {
		if h.complete {
			st.Toolchains++
		}
	}
	st.Bytes = s.total
	return st
}
