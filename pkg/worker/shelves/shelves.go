// Package shelves keeps results of compiles where clients read them by RDMA Read: a shelf
// (pkg/resultcache/shelf) for each tenant, or for a group of them, which is one tenant here.
//
//	shelves.go   the tenants, and how a budget is divided among them
//	memory.go    a shelf in memory
//	file.go      a shelf in a file, as clients read it and as it is written
//	owner.go     what a file says of itself besides its shelf
//	dir.go       the directory with the files
//
// All shelves in memory together take no more than a budget, and so do all in files. Each budget is divided
// evenly among the tenants that have a shelf there, so none can push out more of another's results than that. A
// tenant's memory, or file, has never been another's.
//
// Files are read and written at an offset rather than mapped. What was used lately is in the system's page cache,
// which gives memory back when others need it. An error of the disk is an error here and no signal, and a slow disk
// keeps one goroutine waiting, not a thread that all others need.
package shelves

import (
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// least is the least budget of one tenant, in bytes. Tenants for which there is none have no shelf.
const least = 4 << 20

// A shelf outlives its tenant's last connection for so long, if no other tenant needs the room.
const (
	idleMost     = 24 * time.Hour
	fileIdleMost = 7 * 24 * time.Hour
)

// Options configure Shelves.
type Options struct {
	Budget int64 // bytes of memory that shelves take together; less than 4 MiB: there are no shelves at all
	// Keep is for how long after a tenant's last connection its shelf stays even if others need the room.
	Keep time.Duration
	// Dir is a directory for shelves in files, which may take Disk bytes together. Less than 4 MiB, or no directory:
	// all are in memory. Otherwise those are that cannot be in files.
	Dir  string
	Disk int64
	Left uint64       // bytes of the file system that files leave free; 0: a tenth of it
	Log  *slog.Logger // nil: nothing is logged
}

// Shelves are the shelves of one daemon. A nil *Shelves has none. All methods may be called concurrently.
type Shelves struct {
	o   Options
	dir *dir // nil: there are no files

	opening sync.Mutex // one shelf is opened at a time, which may take a while; taken before mu
	work    sync.WaitGroup
	stop    chan struct{} // closed by Close
	closing sync.Once

	mu      sync.Mutex
	tenants map[string]*Tenant
	short   bool
	gone    Stats // of tenants that are gone: Kept, Evicted, Dropped
}

// Tenant is one tenant's shelf.
type Tenant struct {
	*shelf.Shelf // in a file, only its goroutine adds something: see Put
	name         string
	mem          []byte // nil: it is in file
	file         *File
	guard        sync.Mutex

	conns int       // guarded by Shelves.mu
	left  time.Time // when the last one of them left
}

// New returns Shelves, or nil if there is no budget for one. If there is a directory with shelves of an earlier
// daemon, they are opened in the background.
func New(o Options) *Shelves {
	if o.Budget < least {
		return nil
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Shelves{o: o, tenants: make(map[string]*Tenant), stop: make(chan struct{})}
	if o.Disk >= least && o.Dir != "" {
		if d, err := openDir(o.Dir); err == nil {
			s.dir = d
			s.opening.Lock() // until what there is has been found, nobody joins
			s.work.Go(s.find)
		} else {
			o.Log.Info("results that clients can read are kept in memory only", "err", err)
		}
	}
	return s
}

// Join returns the shelf of a tenant for one more connection, which calls Leave at its end. It returns nil if
// there is no room for another tenant.
func (s *Shelves) Join(name string) (*Tenant, error) {
	if s == nil {
		return nil, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tenants[name]
	if t != nil && t.file.lost() {
		s.forget(t) // its connections keep it, and find nothing in it
		t = nil
	}
	if t == nil {
		var err error
		if t, err = s.openLocked(name); t == nil {
			return nil, err
		}
		s.tenants[name] = t
		s.divide()
	}
	t.conns++
	return t, nil
}

// openLocked opens a shelf for a tenant that has none: in a file, otherwise in memory. It releases mu meanwhile,
// but the caller has opening as well. It returns nil if there is no room.
func (s *Shelves) openLocked(name string) (t *Tenant, err error) {
	if len(name) <= maxName && s.dir.good() && s.roomLocked(true) {
		s.mu.Unlock()
		t, err = s.openFile(name)
		s.mu.Lock()
		if err == nil {
			return t, nil
		}
		s.dir.fail(s.o.Log, err)
	}
	if !s.roomLocked(false) {
		return nil, nil
	}
	return s.openMemory(name)
}

// roomLocked makes room for one more tenant, in files or in memory. It reports whether there is room.
func (s *Shelves) roomLocked(files bool) bool {
	budget, now := s.o.Budget, time.Now()
	if files {
		budget = s.o.Disk
	} else {
		s.dropIdle(now, s.o.Keep)
	}
	for {
		var n int64
		var idle *Tenant // for the longest time
		for _, t := range s.tenants {
			if (t.file != nil) != files {
				continue
			}
			n++
			if t.conns == 0 && now.Sub(t.left) >= s.o.Keep && (idle == nil || t.left.Before(idle.left)) {
				idle = t
			}
		}
		if (n+1)*least <= budget {
			return true
		}
		if idle == nil {
			return false
		}
		s.forget(idle)
	}
}

// Len returns how many bytes clients can read.
func (t *Tenant) Len() uint64 {
	if t.file != nil {
		return uint64(t.file.Size())
	}
	return uint64(len(t.mem))
}

// Put adds an entry for key, which consists of parts. It reports whether it did, or is going to: what goes into
// a file is copied and written by another goroutine, as a job does not wait for a disk.
func (t *Tenant) Put(key resultcache.Key, parts ...[]byte) bool {
	if t.file != nil {
		return t.file.put("", key, parts)
	}
	return t.Shelf.Put(key, parts...)
}

// PutFor is Put for an entry that belongs to owner, a member of the group whose shelf it is.
func (t *Tenant) PutFor(owner string, key resultcache.Key, parts ...[]byte) bool {
	if t.file != nil {
		return t.file.put(owner, key, parts)
	}
	return t.Shelf.PutFor(owner, key, parts...)
}

// End removes the mark of a job whose entry, if it has one, was given to Put or PutFor before. The mark goes once the entry is
// there for readers. If too much waits to be written, it goes at once: readers then find neither, and have the source compiled
// again. at is what Begin has returned, and of no use after that.
func (t *Tenant) End(at int) {
	if t.file != nil && at != 0 {
		t.file.end(at)
		return
	}
	t.Shelf.End(at)
}

// Leave ends a connection's use of its tenant's shelf. t may be nil.
func (s *Shelves) Leave(t *Tenant) {
	if t == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.conns--; t.conns > 0 {
		return
	}
	t.left = time.Now()
	t.file.touch(t.left)
	if s.tenants[t.name] != t {
		s.end(t)
	}
}

// divide gives each tenant its part of the budgets.
func (s *Shelves) divide() {
	var files, others uint64
	for _, t := range s.tenants {
		if t.file != nil {
			files++
		} else {
			others++
		}
	}
	for _, t := range s.tenants {
		switch {
		case t.file != nil:
			t.file.setPart(uint64(s.o.Disk) / files)
		case s.short:
			t.limitMemory(0)
		default:
			t.limitMemory(uint64(s.o.Budget) / others)
		}
	}
}

// dropIdle drops the shelves in memory of tenants whose last connection has left so long ago.
func (s *Shelves) dropIdle(now time.Time, after time.Duration) (some bool) {
	for _, t := range s.tenants {
		if t.file == nil && t.conns == 0 && now.Sub(t.left) >= after {
			s.forget(t)
			some = true
		}
	}
	return some
}

// forget makes a tenant have no shelf. What it had is gone once no connection uses it.
func (s *Shelves) forget(t *Tenant) {
	delete(s.tenants, t.name)
	st := t.stats()
	s.gone.Evicted += st.Evicted + uint64(st.Entries)
	s.gone.Kept += st.Evicted + uint64(st.Entries)
	s.gone.Dropped += st.Dropped
	if t.file != nil {
		t.file.remove()
	}
	if t.conns == 0 {
		s.end(t)
	}
}

// end frees what a tenant has that no connection uses.
func (s *Shelves) end(t *Tenant) {
	if t.file != nil {
		t.file.close()
		return
	}
	t.freeMemory()
}

// Tick drops shelves that have been idle for long. short says that the machine is short of memory: then all
// shelves in memory are emptied, and nothing is kept there until it is not. Of files, the system gives memory back.
func (s *Shelves) Tick(now time.Time, short bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := s.dropIdle(now, max(idleMost, s.o.Keep))
	for _, t := range s.tenants {
		if t.file != nil && t.conns == 0 && now.Sub(t.left) >= max(fileIdleMost, s.o.Keep) {
			s.forget(t)
			gone = true
		}
	}
	if gone || short != s.short {
		s.short = short
		s.divide()
	}
}

// Stats say what is kept.
type Stats struct {
	Entries int    `json:"entries"`
	Bytes   int64  `json:"bytes"`
	Disk    int64  `json:"disk"`    // of these, in files
	Tenants int    `json:"tenants"` // that have a shelf
	Kept    uint64 `json:"kept"`    // entries so far
	Evicted uint64 `json:"evicted"` // likewise
	Dropped uint64 `json:"dropped"` // likewise, that were not kept because the disk was too slow
}

// stats returns what a tenant has. Kept counts from the start of the daemon.
func (t *Tenant) stats() (st Stats) {
	x := t.Shelf.Stats()
	st = Stats{Entries: x.Entries, Bytes: int64(x.Bytes), Kept: x.Evicted + uint64(x.Entries), Evicted: x.Evicted}
	if t.file != nil {
		st.Disk, st.Dropped = st.Bytes, t.file.dropped.Load()
	}
	return st
}

// Stats returns what is kept for all tenants together.
func (s *Shelves) Stats() (st Stats) {
	if s == nil {
		return st
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	st = s.gone
	st.Tenants = len(s.tenants)
	for _, t := range s.tenants {
		x := t.stats()
		st.Entries += x.Entries
		st.Bytes += x.Bytes
		st.Disk += x.Disk
		st.Kept += x.Kept
		st.Evicted += x.Evicted
		st.Dropped += x.Dropped
	}
	return st
}

// Close frees the memory of all tenants whose connections have left, and closes their files, which stay. What a
// peer may still reach stays open. A second call does nothing.
func (s *Shelves) Close() {
	if s != nil {
		s.closing.Do(s.close)
	}
}

func (s *Shelves) close() {
	close(s.stop)
	s.work.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropIdle(time.Now(), -1)
	for name, t := range s.tenants {
		if t.file != nil && t.conns == 0 {
			delete(s.tenants, name)
			t.file.close()
		}
	}
	s.dir.close()
}

// page is the size of what the system takes memory, or disk, back by.
var page = uint64(os.Getpagesize())
