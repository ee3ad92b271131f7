// Package store keeps contents for tenants: what they sent once, headers mostly, need not be
// sent again. A content is named by its SHA-256, and is looked at when it comes and when it
// is read back from disk: a name stands for nothing else than what it is the sum of.
//
// Each tenant has a store of its own. Nothing that came from one is shared with others, not even what is equal: whether a
// content is there, and how long it takes to find that out, says nothing about
// others. They share what this machine has itself (AddCommon), and the room: while that is short, whoever has most of it loses what it
// has not used for longest, so that one that fills it pushes nobody below an even part.
//
// Contents lie in memory outside of the Go heap, where what is kept for hours would double
// as garbage to be; and behind that, if there is a directory, in files, from which they
// come back after a restart. What cannot be read, or is not what it was, counts as absent.
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

// ID names a content: its SHA-256.
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
	Dir    string        // where contents are kept on disk, of this store alone; "" = nowhere
	Keep   time.Duration // how long a tenant's contents outlive its last connection
	Log    *slog.Logger
}

// overhead is what a content takes beside its bytes, on the Go heap.
const overhead = 256

// away bounds how many tenants without a connection are remembered.
const away = 1024

// Store holds the contents of all tenants. All methods may be called at any time.
type Store struct {
	o    Options
	seed maphash.Seed // of sums that guard memory
	key  []byte       // of tenants' names
	disk *disk        // nil: there is none

	mu      sync.Mutex
	limit   int64 // bytes in memory now; Options.Memory, or less while the machine is short of it
	bytes   int64 // of contents in memory, common ones too, with what they take beside
	files   int64 // bytes on disk
	tenants map[string]*Tenant
	common  *Tenant // none of tenants: whose memory common contents lie in
	count   counts
}

type counts struct{ hits, lacks, evictions uint64 }

// New makes a store. That its directory cannot be used is told in the log, and no error.
func New(o Options) *Store {
	s := &Store{o: o, seed: maphash.MakeSeed(), limit: o.Memory, tenants: make(map[string]*Tenant)}
	s.common = &Tenant{s: s}
	if o.Disk > 0 && o.Dir != "" {
		s.openDisk()
	}
	if s.key == nil {
		s.key = make([]byte, 32)
		rand.Read(s.key) // never fails, says its documentation
	}
	return s
}

// Close ends the store. Tenants that are to be kept are found again by the next one of the
// same directory. All contents have been unpinned. A second Close does nothing.
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

// Most returns how many bytes are kept for one tenant at most.
func (s *Store) Most() int64 {
	most := tenantPart(s.o.Memory)
	if s.disk != nil {
		most = max(most, s.o.Disk)
	}
	return most
}

// tenantPart is how much of the memory one tenant can have: not all, or one that pins
// what it has would leave a second one nothing.
func tenantPart(limit int64) int64 { return limit - limit/8 }

// Stats is what a store holds and has done.
type Stats struct {
	Bytes     int64  `json:"bytes"`        // in memory, of tenants
	Common    int64  `json:"common_bytes"` // the same of common contents
	DiskBytes int64  `json:"disk_bytes"`   // in files
	Contents  int    `json:"contents"`
	Hits      uint64 `json:"hits"`  // contents that were asked for and there
	Lacks     uint64 `json:"lacks"` // and that were not
	Own       uint64 `json:"own"`   // not there, but found among this machine's own files; for who looks there to fill in
	Evictions uint64 `json:"evictions"`
}

// Stats returns the figures of now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Bytes: s.bytes - s.common.bytes, Common: s.common.bytes, DiskBytes: s.files, Hits: s.count.hits, Lacks: s.count.lacks, Evictions: s.count.evictions}
	for _, t := range s.tenants {
		st.Contents += len(t.contents)
	}
	return st
}

// Tenant is whom contents are kept for. A nil Tenant has none, and keeps none.
type Tenant struct {
	s     *Store
	name  string // HMAC of its name, in the name of its directory
	epoch uint64

	// guarded by Store.mu
	conns    int
	left     time.Time // when the last one ended
	contents map[ID]*Content
	recent   list.List // those in memory, the one used last in front
	stored   list.List // those on disk, alike
	bytes    int64     // of memory
	files    int64     // of disk
	mem      memory
	looking  chan struct{} // closed once what is on disk is known; nil: nothing is to be looked at
	touched  time.Time     // when its directory was said to be in use

	wiped atomic.Bool
}

// Wiped reports whether all that was kept for the tenant is gone for good: what was made of it has
// to go as well.
func (t *Tenant) Wiped() bool { return t.wiped.Load() }

// Open returns the tenant of that name, for one more connection of it. Close is due.
func (s *Store) Open(name string) *Tenant {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(name))
	key := hex.EncodeToString(h.Sum(nil)[:16])
	s.mu.Lock()
	t := s.tenants[key]
	if t == nil {
		t = s.addLocked(key)
		for t.epoch == 0 { // which says that there is no store
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

// Epoch is a number that changes when all that was kept for the tenant was wiped.
func (t *Tenant) Epoch() uint64 {
	if t == nil {
		return 0
	}
	return t.epoch
}

// Close ends a connection of the tenant's. Nothing is kept beyond the last one's end unless
// Options.Keep says so.
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

// Tick wipes what nobody has come back for, and reports whether there was any. It is to be called now
// and then.
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

// wipeLocked ends a tenant: what is pinned goes with its last pin.
func (t *Tenant) wipeLocked() {
	t.forgetLocked()
	if d := t.s.disk; d != nil {
		d.wipe(t.dir())
	}
}

// forgetLocked frees its memory, and leaves the disk as it is.
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

// Limit sets how many bytes may lie in memory from now on, at most Options.Memory, and
// drops what is more. What is pinned stays.
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

// Shrink drops n bytes, or as many as there are, at once, and returns how many those were.
func (s *Store) Shrink(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.bytes
	for before-s.bytes < n && s.evictLocked(nil, 0) {
	}
	return before - s.bytes
}
