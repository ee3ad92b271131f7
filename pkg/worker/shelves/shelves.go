// Package shelves keeps results of compiles in memory that clients read by RDMA Read: a shelf
// (pkg/resultcache/shelf) for each tenant, or for a group of them, which is one tenant here.
//
// All shelves together take no more than a budget. It is divided evenly among the tenants that have one, so
// none can push out more of another's results than that. A tenant's memory has never been another's.
package shelves

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// least is the least budget of one tenant, in bytes. Tenants for which there is none have no shelf.
const least = 4 << 20

// idleMost is how long a shelf outlives its tenant's last connection, if no other tenant needs the memory.
const idleMost = 24 * time.Hour

// Options configure Shelves.
type Options struct {
	Budget int64 // bytes that all shelves take together; less than 4 MiB: there are none
	// Keep is for how long after a tenant's last connection its shelf stays even if others need the memory.
	Keep time.Duration
}

// Shelves are the shelves of one daemon. A nil *Shelves has none. All methods may be called concurrently.
type Shelves struct {
	o Options

	mu      sync.Mutex
	tenants map[string]*Tenant
	short   bool
	evicted uint64 // entries of tenants that are gone
	kept    uint64 // likewise
}

// Tenant is one tenant's shelf.
type Tenant struct {
	*shelf.Shelf
	name  string
	mem   []byte
	guard sync.Mutex
	conns int       // guarded by Shelves.mu
	left  time.Time // when the last one of them left
}

// New returns Shelves without any tenant, or nil if there is no budget for one.
func New(o Options) *Shelves {
	if o.Budget < least {
		return nil
	}
	return &Shelves{o: o, tenants: make(map[string]*Tenant)}
}

// data returns how many bytes of data a shelf has that takes the whole budget.
func (s *Shelves) data() uint64 {
	n := uint64(s.o.Budget)
	over := shelf.Size(n) - n
	return (n - over) &^ (uint64(os.Getpagesize()) - 1)
}

// Join returns the shelf of a tenant for one more connection, which calls Leave at its end. It returns nil if
// there is no room for another tenant.
func (s *Shelves) Join(name string) (*Tenant, error) {
	if s == nil {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[name]
	if t == nil {
		if s.dropIdle(time.Now(), s.o.Keep); int64(len(s.tenants)+1)*least > s.o.Budget {
			return nil, nil
		}
		var err error
		if t, err = s.open(name); err != nil {
			return nil, err
		}
		s.tenants[name] = t
		s.divide()
	}
	t.conns++
	return t, nil
}

// open maps the memory of a shelf. It takes memory only as far as it is written.
func (s *Shelves) open(name string) (*Tenant, error) {
	data := s.data()
	mem, err := unix.Mmap(-1, 0, int(shelf.Size(data)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map memory for results: %w", err)
	}
	t := &Tenant{name: name, mem: mem}
	if t.Shelf, err = shelf.New(mem, data, &t.guard); err != nil {
		_ = unix.Munmap(mem) // ours and whole: cannot fail
		return nil, err
	}
	return t, nil
}

// Mem returns the memory, for as long as the caller has joined.
func (t *Tenant) Mem() []byte { return t.mem }

// Guard is held while the memory changes.
func (t *Tenant) Guard() sync.Locker { return &t.guard }

// Leave ends a connection's use of its tenant's shelf. t may be nil.
func (s *Shelves) Leave(t *Tenant) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.conns--; t.conns == 0 {
		t.left = time.Now()
	}
}

// divide gives each tenant its part of the budget.
func (s *Shelves) divide() {
	if len(s.tenants) == 0 {
		return
	}
	part := uint64(s.o.Budget) / uint64(len(s.tenants))
	for _, t := range s.tenants {
		over := uint64(len(t.mem)) - s.data() // head and records
		n := part - min(part, over)
		if s.short {
			n = 0
		}
		t.Limit(n)
		page := uint64(os.Getpagesize())
		if from := (t.Data() + page - 1) &^ (page - 1); from < uint64(len(t.mem)) {
			_ = unix.Madvise(t.mem[from:], unix.MADV_DONTNEED) // an error leaves the memory in use
		}
	}
}

// dropIdle drops the shelves of tenants whose last connection has left so long ago.
func (s *Shelves) dropIdle(now time.Time, after time.Duration) (some bool) {
	for name, t := range s.tenants {
		if t.conns == 0 && now.Sub(t.left) >= after {
			s.drop(t)
			delete(s.tenants, name)
			some = true
		}
	}
	return some
}

func (s *Shelves) drop(t *Tenant) {
	st := t.Stats()
	s.evicted += st.Evicted + uint64(st.Entries)
	s.kept += st.Evicted + uint64(st.Entries)
	_ = unix.Munmap(t.mem) // ours and whole: cannot fail
	t.mem = nil
}

// Tick drops shelves that have been idle for long. short says that the machine is short of memory: then all
// shelves are emptied, and nothing is kept until it is not.
func (s *Shelves) Tick(now time.Time, short bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if gone := s.dropIdle(now, max(idleMost, s.o.Keep)); gone || short != s.short {
		s.short = short
		s.divide()
	}
}

// Stats say what is kept.
type Stats struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Tenants int    `json:"tenants"` // that have a shelf
	Kept    uint64 `json:"kept"`    // entries so far
	Evicted uint64 `json:"evicted"` // likewise
}

// Stats returns what is kept for all tenants together.
func (s *Shelves) Stats() (st Stats) {
	if s == nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st = Stats{Tenants: len(s.tenants), Kept: s.kept, Evicted: s.evicted}
	for _, t := range s.tenants {
		x := t.Stats()
		st.Entries += x.Entries
		st.Bytes += int64(x.Bytes)
		st.Kept += x.Evicted + uint64(x.Entries)
		st.Evicted += x.Evicted
	}
	return st
}

// Close frees the memory of all tenants whose connections have left. What a peer may still reach stays.
func (s *Shelves) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIdle(time.Now(), -1)
}
