// Package regcache is a pin-down cache: it keeps memory registered after its use, because
// the same buffers are often used again, and registering them each time can cost more
// than the transfer.
//
//	cache.go    Cache: Get, Put, eviction
//	find.go     the regions in the order of their addresses
//	invalidate.go  the end of memory: Invalidate and Mapping
//
// The classic danger of such a cache is memory that is unmapped, and perhaps mapped to
// something else, while the cache still has it registered. In Go it cannot happen to
// memory of the Go heap: a region keeps its memory reachable, so the collector does not
// free it, and nothing moves it. It can happen to memory from mmap or C. That belongs into
// a Mapping, which ends the regions before it unmaps, and which alone gives out regions of
// it: Get refuses memory that a Mapping has.
//
// What the cache costs is that memory stays pinned, and on the Go heap alive, up to
// Options.MaxBytes, and that an STag outlives its use. For remote rights the last point
// matters: a peer that has learned an STag can use it for as long as the cache keeps it.
// Programs whose peers are not trusted Invalidate a buffer when a peer is done with it, or
// take no remote rights from the cache.
package regcache

import (
	"container/list"
	"errors"
	"fmt"
	"sync"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Options bounds a Cache. Only regions without a user are evicted, so what is in use can
// exceed a bound: such a region is registered for its use alone.
type Options struct {
	MaxBytes   int64 // of all regions together; 0 = DefaultBytes
	MaxEntries int   // regions; 0 = DefaultEntries
}

// Defaults of Options.
const (
	DefaultBytes   = 256 << 20
	DefaultEntries = 1024
)

// Stats counts what a Cache did, and says what it has.
type Stats struct {
	Hits      uint64 // Gets that found a region
	Misses    uint64 // Gets that had to register one
	Evictions uint64 // regions that made room
	Bypasses  uint64 // Misses whose region there was no room to keep
	Merges    uint64 // regions that a longer one has replaced
	Ended     uint64 // regions ended by Invalidate or a Mapping's Close

	Entries int   // regions, without those of bypasses
	Bytes   int64 // in them
	Used    int   // those in use
}

// Errors of Get.
var (
	ErrClosed  = errors.New("regcache: closed")
	ErrForeign = errors.New("regcache: memory of a Mapping: use the Mapping's Get")
)

// Cache keeps regions of one protection domain registered. It is safe for concurrent use.
type Cache struct {
	pd iwarp.PD
	o  Options

	mu       sync.Mutex
	table    table               // regions that a Get may find, by address
	idle     *list.List          // of *entry without users, the longest unused first
	leaving  map[*entry]struct{} // regions outside the table that are still registered
	mappings map[*Mapping]struct{}
	stats    Stats
	closed   bool
}

// entry is one region. All but mr is guarded by Cache.mu; mr and err are set before ready is closed.
type entry struct {
	lo, hi uintptr
	buf    []byte // keeps the memory reachable
	access iwarp.Access

	ready chan struct{} // closed when mr or err is set
	mr    iwarp.MR
	err   error

	users  int
	kept   bool          // in the table
	place  *list.Element // in idle; nil = in use, or not kept
	gone   chan struct{} // closed when it is deregistered
	goneAs error         // the error of that
}

// New returns an empty cache for pd.
func New(pd iwarp.PD, o Options) (*Cache, error) {
	if o.MaxBytes < 0 || o.MaxEntries < 0 {
		return nil, fmt.Errorf("%w: a cache of %d bytes and %d regions", iwarp.ErrInvalid, o.MaxBytes, o.MaxEntries)
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultBytes
	}
	if o.MaxEntries == 0 {
		o.MaxEntries = DefaultEntries
	}
	return &Cache{pd: pd, o: o, idle: list.New(), leaving: make(map[*entry]struct{}), mappings: make(map[*Mapping]struct{})}, nil
}

// Ref is the use of a region for one buffer.
type Ref struct {
	c    *Cache
	e    *entry
	lo   uintptr
	n    int
	once sync.Once
}

const remoteRights = iwarp.RemoteWrite | iwarp.RemoteRead | iwarp.RemoteAtomic

func span(buf []byte) (lo, hi uintptr) {
	lo = uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	return lo, lo + uintptr(len(buf))
}

// Get returns a region for buf with the rights a at least, until Put. buf must be of the
// Go heap, or stay mapped as long as the process runs; other memory belongs into a
// Mapping. The region may be longer than buf and have more rights if a has no remote one.
// With a remote right it is exactly buf with exactly a: whoever may reach one buffer
// must not reach its neighbours.
//
// Errors are ErrClosed, ErrForeign, or RegMR's.
func (c *Cache) Get(buf []byte, a iwarp.Access) (*Ref, error) {
	c.mu.Lock()
	if c.foreignLocked(buf) {
		c.mu.Unlock()
		return nil, ErrForeign
	}
	return c.get(buf, a)
}

// get is Get for memory that may be of a Mapping. It releases c.mu.
func (c *Cache) get(buf []byte, a iwarp.Access) (*Ref, error) {
	if len(buf) == 0 {
		c.mu.Unlock()
		return nil, fmt.Errorf("%w: a region of no bytes", iwarp.ErrInvalid)
	}
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	lo, hi := span(buf)
	e := c.table.find(lo, hi, a)
	if e != nil {
		c.stats.Hits++
		c.useLocked(e)
		c.mu.Unlock()
		<-e.ready
	} else {
		c.stats.Misses++
		var over []*entry
		e, over = c.addLocked(buf, a)
		c.mu.Unlock()
		_ = c.end(over) // Invalidate and Close say so if it matters
		c.register(e)
	}
	r := &Ref{c: c, e: e, lo: lo, n: len(buf)}
	if e.err != nil {
		_ = r.Put() // e.err says more
		return nil, e.err
	}
	return r, nil
}

func (c *Cache) useLocked(e *entry) {
	e.users++
	if e.place != nil {
		c.idle.Remove(e.place)
		e.place = nil
	}
}

// addLocked adds a region for buf, in use and not yet registered, and makes room for it. It returns the
// regions that its caller has to end.
func (c *Cache) addLocked(buf []byte, a iwarp.Access) (e *entry, over []*entry) {
	var merged []*entry
	if a&remoteRights == 0 {
		buf, merged = c.mergeLocked(buf, a)
	}
	e = &entry{buf: buf, access: a, users: 1, ready: make(chan struct{}), gone: make(chan struct{})}
	e.lo, e.hi = span(buf)
	if int64(len(buf)) > c.o.MaxBytes {
		c.leaving[e] = struct{}{} // used once
		c.stats.Bypasses++
		return e, nil
	}
	for _, o := range merged {
		c.stats.Merges++
		over = c.dropLocked(o, over)
	}
	c.table.insert(e)
	e.kept = true
	c.stats.Entries++
	c.stats.Bytes += int64(len(buf))
	for c.overLocked() && c.idle.Len() > 0 {
		c.stats.Evictions++
		over = c.dropLocked(c.idle.Front().Value.(*entry), over)
	}
	return e, over
}

// overLocked reports whether the cache has more than its bounds permit.
func (c *Cache) overLocked() bool {
	return c.stats.Entries > c.o.MaxEntries || c.stats.Bytes > c.o.MaxBytes
}

// mergeLocked returns the memory of buf and of all regions with the rights a that overlap it, and these
// regions: one for all of it replaces them. Overlapping slices are of one object, so what lies between their
// ends belongs to it too.
func (c *Cache) mergeLocked(buf []byte, a iwarp.Access) ([]byte, []*entry) {
	lo, hi := span(buf)
	var merged []*entry
	for _, o := range c.table.overlapping(lo, hi) {
		if o.access != a {
			continue
		}
		merged = append(merged, o)
		if o.lo < lo {
			buf, lo = unsafe.Slice(unsafe.SliceData(o.buf), hi-o.lo), o.lo
		}
		if o.hi > hi {
			buf, hi = unsafe.Slice(unsafe.SliceData(buf), o.hi-lo), o.hi
		}
	}
	return buf, merged
}

// register registers the new region e. If that fails, no Get finds it any more.
func (c *Cache) register(e *entry) {
	e.mr, e.err = c.pd.RegMR(e.buf, e.access, nil)
	if e.err != nil {
		c.mu.Lock()
		c.dropLocked(e, nil) // in use, by the caller
		c.mu.Unlock()
	}
	close(e.ready)
}

// dropLocked keeps Gets from finding e. Its last user ends it; if it has none, the caller must, and e is
// appended to over.
func (c *Cache) dropLocked(e *entry, over []*entry) []*entry {
	if !e.kept {
		return over
	}
	e.kept = false
	c.table.remove(e)
	c.stats.Entries--
	c.stats.Bytes -= int64(len(e.buf))
	if e.place != nil {
		c.idle.Remove(e.place)
		e.place = nil
	}
	c.leaving[e] = struct{}{}
	if e.users == 0 {
		over = append(over, e)
	}
	return over
}

// end deregisters regions that have no users and are not in the table. It returns the first error.
func (c *Cache) end(over []*entry) (err error) {
	for _, e := range over {
		if e.mr != nil {
			e.goneAs = e.mr.Dereg()
		}
		if e.goneAs == nil { // otherwise the memory is still registered: no Invalidate may call it free
			c.mu.Lock()
			delete(c.leaving, e)
			c.mu.Unlock()
		}
		close(e.gone)
		if err == nil {
			err = e.goneAs
		}
	}
	return err
}

// Put ends the use. The region stays registered if there is room. It returns an error if a region could not be
// deregistered that had to be. Another Put of the same Ref does nothing.
func (r *Ref) Put() (err error) {
	r.once.Do(func() { err = r.c.put(r.e) })
	return err
}

func (c *Cache) put(e *entry) error {
	c.mu.Lock()
	if e.users--; e.users > 0 {
		c.mu.Unlock()
		return nil
	}
	if e.kept && !c.overLocked() {
		e.place = c.idle.PushBack(e)
		c.mu.Unlock()
		return nil
	}
	if e.kept {
		c.stats.Bypasses++
		c.dropLocked(e, nil)
	}
	c.mu.Unlock()
	return c.end([]*entry{e})
}

// MR returns the region, which covers the buffer. It is the cache's: do not end it.
func (r *Ref) MR() iwarp.MR { return r.e.mr }

// TO returns the tagged offset of the buffer's first byte in the region.
func (r *Ref) TO() uint64 { return r.e.mr.Base() + uint64(r.lo-r.e.lo) }

// SGE returns the scatter/gather element for the whole buffer.
func (r *Ref) SGE() iwarp.SGE {
	return iwarp.SGE{Addr: r.TO(), Length: uint32(r.n), LKey: r.e.mr.STag()}
}

// Stats returns the statistics.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Used = s.Entries - c.idle.Len()
	return s
}

// Close ends all regions. Those in use end with their last Put; Close does not wait for that, but for all
// others. Later Gets fail.
func (c *Cache) Close() error {
	c.mu.Lock()
	c.closed = true
	var waits, over []*entry
	for e := range c.leaving {
		if e.users == 0 { // another goroutine is ending it, or it could not be ended
			waits = append(waits, e)
		}
	}
	for _, e := range c.table.all() {
		over = c.dropLocked(e, over)
	}
	c.mu.Unlock()
	errs := []error{c.end(over)}
	for _, e := range waits {
		<-e.gone
		errs = append(errs, e.goneAs)
	}
	return errors.Join(errs...)
}
