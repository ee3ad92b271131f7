// Package store keeps contents for tenants, mostly headers, so that what was sent once need not be sent
// again. A content is named by its SHA-256, which is verified when the content arrives and when it is read
// back from disk: a name never stands for anything else.
//
// Each tenant has a store of its own. Nothing that came from one is shared with others, not even equal
// contents: whether a content is there, and how long it takes to find out, reveals nothing about other
// tenants. Tenants share what this machine has itself (AddCommon), and the room. When room is short, the
// tenant that has most of it loses its least recently used contents, so that a tenant that fills the store
// pushes no other below an equal share.
//
// Contents are kept in memory outside of the Go heap, where long-lived data would take as much again as
// garbage. If there is a directory, they are in files as well, from which they come back after a restart.
// What cannot be read, or has changed, counts as absent.
package store

import (
	"container/list"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/maphash"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ID names a content by its SHA-256.
type ID = [sha256.Size]byte

// Errors of Put.
var (
	ErrOther = errors.New("the content is not the one that its name stands for")
	ErrFull  = errors.New("no room for the content")
)

// Options of a Store.
type Options struct {
	Memory int64         // bytes of contents in memory, of all tenants
	Disk   int64         // bytes in Dir, of all tenants; 0 = none
	Dir    string        // where contents are kept on disk, used by this store alone; "" = nowhere
	Keep   time.Duration // how long a tenant's contents outlive its last connection
	Log    *slog.Logger
}

// overhead is what a content takes on the Go heap beside its bytes, in bytes.
const overhead = 256

// away bounds how many tenants without a connection are remembered.
const away = 1024

// Store holds the contents of all tenants. Its methods may be called concurrently.
type Store struct {
	o    Options
	seed maphash.Seed // for the sums that guard memory
	key  []byte       // for tenants' names
	disk *disk        // nil: there is none

	mu      sync.Mutex
	limit   int64 // bytes in memory at present; Options.Memory, or less while the machine is short of memory
	bytes   int64 // of contents in memory, including common ones and overhead
	files   int64 // bytes on disk
	tenants map[string]*Tenant
	common  *Tenant // not a real tenant: owns the memory of common contents
	count   counts
}

type counts struct{ hits, lacks, evictions uint64 }

// New returns a store. If its directory cannot be used, that is logged and is not an error.
func New(o Options) *Store {
	s := &Store{o: o, seed: maphash.MakeSeed(), limit: o.Memory, tenants: make(map[string]*Tenant)}
	s.common = &Tenant{s: s}
	if o.Disk > 0 && o.Dir != "" {
		s.openDisk()
	}
	if s.key == nil {
		s.key = make([]byte, 32)
		rand.Read(s.key) // never fails, according to its documentation
	}
	return s
}

// Close ends the store. All contents must have been unpinned. Tenants that are to be kept are found again by the
// next store in the same directory. A second Close does nothing.
func (s *Store) Close() {
	if s.disk != nil {
		s.disk.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tenants {
		t.forgetLocked()
	}
}

// Most returns how many bytes are kept at most for one tenant.
func (s *Store) Most() int64 {
	most := tenantPart(s.o.Memory)
	if s.disk != nil {
		most = max(most, s.o.Disk)
	}
	return most
}

// tenantPart returns how much of the memory one tenant can have: not all, or one that pins everything would leave a
// second tenant nothing.
func tenantPart(limit int64) int64 { return limit - limit/8 }

// Stats holds what a store contains and has done.
type Stats struct {
	Bytes     int64  `json:"bytes"`        // in memory, of tenants
	Common    int64  `json:"common_bytes"` // in memory, of common contents
	DiskBytes int64  `json:"disk_bytes"`   // in files
	Contents  int    `json:"contents"`
	Hits      uint64 `json:"hits"`  // contents requested and found
	Lacks     uint64 `json:"lacks"` // contents requested and not found
	Own       uint64 `json:"own"`   // not found, but supplied from this machine's own files; counted by the caller that supplies them
	Evictions uint64 `json:"evictions"`
}

// Stats returns the current figures.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Bytes: s.bytes - s.common.bytes, Common: s.common.bytes, DiskBytes: s.files, Hits: s.count.hits, Lacks: s.count.lacks, Evictions: s.count.evictions}
	for _, t := range s.tenants {
		st.Contents += len(t.contents)
	}
	return st
}

// Tenant is a client for which contents are kept. A nil Tenant has none, and keeps none.
type Tenant struct {
	s     *Store
	name  string // HMAC of its name; part of its directory's name
	epoch uint64

	// guarded by Store.mu
	conns    int
	left     time.Time // when the last connection ended
	contents map[ID]*Content
	recent   list.List // contents in memory, most recently used first
	stored   list.List // contents on disk, likewise
	bytes    int64     // in memory
	files    int64     // on disk
	mem      memory
	looking  chan struct{} // closed once the contents on disk are known; nil: there is nothing to look for
	touched  time.Time     // when its directory was last marked as in use

	wiped atomic.Bool
}

// Wiped reports whether everything kept for the tenant is gone for good: what was derived from it has to go as
// well.
func (t *Tenant) Wiped() bool { return t != nil && t.wiped.Load() }

// Open returns the tenant with that name, for one more of its connections. The caller must call Close.
func (s *Store) Open(name string) *Tenant {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(name))
	key := hex.EncodeToString(h.Sum(nil)[:16])
	s.mu.Lock()
	t := s.tenants[key]
	if t == nil {
		t = s.addLocked(key)
		for t.epoch == 0 { // 0 would mean that there is no store
			var b [8]byte
			rand.Read(b[:]) // never fails, says its documentation
			t.epoch = binary.LittleEndian.Uint64(b[:])
		}
	}
	t.conns++
	s.mu.Unlock()
	t.touch(time.Now())
	return t
}

func (s *Store) addLocked(key string) *Tenant {
	t := &Tenant{s: s, name: key, contents: make(map[ID]*Content)}
	s.tenants[key] = t
	return t
}

// Epoch returns a number that changes when everything kept for the tenant was wiped.
func (t *Tenant) Epoch() uint64 {
	if t == nil {
		return 0
	}
	return t.epoch
}

// Close ends a connection of the tenant. Beyond the end of the last one, contents are kept only if Options.Keep says
// so.
func (t *Tenant) Close() {
	if t == nil {
		return
	}
	s := t.s
	s.mu.Lock()
	t.conns--
	last := t.conns == 0
	t.left = time.Now()
	wipe := last && (s.o.Keep <= 0 || len(t.contents) == 0 && t.looking == nil)
	if wipe {
		t.wipeLocked()
	}
	s.mu.Unlock()
	if last && !wipe {
		t.touch(t.left)
	}
}

// Tick wipes tenants that have been away for too long, and reports whether there were any. It must be called now and
// then.
func (s *Store) Tick(now time.Time) (wiped bool) {
	var live []*Tenant
	s.mu.Lock()
	var idle []*Tenant
	for _, t := range s.tenants {
		switch {
		case t.conns > 0:
			live = append(live, t)
		case now.Sub(t.left) >= s.o.Keep:
			t.wipeLocked()
			wiped = true
		default:
			idle = append(idle, t)
		}
	}
	if len(idle) > away {
		slices.SortFunc(idle, func(a, b *Tenant) int { return a.left.Compare(b.left) })
		for _, t := range idle[:len(idle)-away] {
			t.wipeLocked()
			wiped = true
		}
	}
	s.mu.Unlock()
	for _, t := range live {
		t.touch(now)
	}
	return wiped
}

// wipeLocked ends a tenant. What is pinned goes with its last pin.
func (t *Tenant) wipeLocked() {
	t.forgetLocked()
	if d := t.s.disk; d != nil {
		d.wipe(t.dir())
	}
}

// forgetLocked frees the tenant's memory, and leaves the disk as it is.
func (t *Tenant) forgetLocked() {
	s := t.s
	t.wiped.Store(true)
	for _, c := range t.contents {
		t.unstoreLocked(c)
		t.dropLocked(c)
	}
	if s.tenants[t.name] == t {
		delete(s.tenants, t.name)
	}
}

// Limit sets how many bytes may be in memory from now on, at most Options.Memory, and drops the excess.
// What is pinned stays.
func (s *Store) Limit(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = min(max(n, 0), s.o.Memory)
	for s.bytes > s.limit {
		if !s.evictLocked(nil, 0) {
			return
		}
	}
}

// Shrink drops n bytes at once, or as many as there are, and returns how many it dropped.
func (s *Store) Shrink(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.bytes
	for before-s.bytes < n && s.evictLocked(nil, 0) {
	}
	return before - s.bytes
}
