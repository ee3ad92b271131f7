package shelves

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// Bounds of a file.
const (
	// step is by how much a file grows, in bytes. It has blocks for all that is to be written, so that a full disk is
	// an error when it grows.
	step = 64 << 20
	// freeShare is the part of the file system that is left free if Options.Left does not say otherwise: one of so
	// many bytes.
	freeShare = 10
	// maxQueued is how many bytes of entries wait to be written. What exceeds it is not kept.
	maxQueued  = 16 << 20
	maxEntries = 1024 // how many of them
)

// File is a shelf's file. Its methods but put, ReadAt and WriteAt are called by one goroutine at a time. It implements
// iwarp.Source for clients; inside is the same for its shelf.
type File struct {
	f     *os.File
	size  int64
	empty shelf.Head          // what is shown while nothing may be read
	left  uint64              // Options.Left
	lose  func(error)         // called at the first error; must not call x or take locks
	shelf *shelf.Shelf        // set before writer starts
	head  sync.Mutex          // held while top is read or changes, and while nothing else is
	top   [shelf.SpareAt]byte // what readers see of the first bytes: the head, and marks, which are not in the file
	last  atomic.Uint64       // of the shelf's head
	gone  atomic.Bool         // there was an error: nothing is read or written any more
	// hidden is set while it has yet to be found out what is whole.
	hidden atomic.Bool

	queue   chan queued
	waiting atomic.Int64 // bytes in queue
	dropped atomic.Uint64
	work    sync.WaitGroup // writer
	closing sync.Once

	mu    sync.Mutex // guards the rest
	own   owner
	part  uint64 // bytes of data that the file may have
	limit uint64 // and that it has blocks for
	full  bool   // it cannot grow, until its part changes
}

// queued is an entry that waits to be written, or a mark that waits to be removed.
type queued struct {
	owner string // empty: nobody shares the shelf
	key   resultcache.Key
	entry []byte
	mark  int // what Begin has returned; 0: it is an entry
}

func newFile(f *os.File, data, left uint64, lose func(error)) *File {
	n := shelf.Size(data)
	x := &File{f: f, size: int64(n), left: left, lose: lose, queue: make(chan queued, maxEntries)}
	x.empty = shelf.NewHead(data)
	x.part = x.empty.Data // until setPart says less: verify may come first, and show would have nothing left
	return x
}

// Source returns what clients read in place of memory; nil: see Mem.
func (t *Tenant) Source() *File { return t.file }

// Size implements iwarp.Source.
func (x *File) Size() int64 { return x.size }

// ReadAt implements iwarp.Source. After an error, and while it is not known what is whole, it shows a
// shelf on which nothing counts: a client that reads an entry, and the head behind it, has a miss and keeps its
// connection.
func (x *File) ReadAt(p []byte, off int64) (int, error) {
	if !x.gone.Load() && !x.hidden.Load() {
		err := x.read(p, off)
		if err == nil {
			return len(p), nil
		}
		x.fail(err)
	}
	clear(p)
	h := x.empty
	if x.gone.Load() {
		h.Last = x.last.Load() // a head only grows
		h.First = h.Last
	}
	if off < shelf.HeadLen {
		copy(p, h.Append(nil)[off:])
	}
	return len(p), nil
}

// read reads from the file.
func (x *File) read(p []byte, off int64) error {
	if off < int64(len(x.top)) {
		x.head.Lock()
		n := copy(p, x.top[off:])
		x.head.Unlock()
		if p, off = p[n:], off+int64(n); len(p) == 0 {
			return nil
		}
	}
	n, err := x.f.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("%s was cut short", x.f.Name())
	}
	return err
}

// inside is the file for its own shelf, which sees its errors.
type inside struct{ *File }

// ReadAt implements shelf.File.
func (x inside) ReadAt(p []byte, off int64) (int, error) {
	n, err := x.f.ReadAt(p, off)
	if n < len(p) {
		x.fail(err)
	}
	return n, err
}

// WriteAt implements shelf.File.
func (x inside) WriteAt(p []byte, off int64) (int, error) {
	if off == 0 {
		if h, err := shelf.ParseHead(p, uint64(x.size)); err == nil {
			x.last.Store(h.Last)
		}
	}
	n, err := x.f.WriteAt(p, off)
	if err != nil {
		x.fail(err)
	}
	return n, err
}

// Show implements shelf.File.
func (x inside) Show(p []byte, off int64) {
	x.head.Lock()
	defer x.head.Unlock()
	copy(x.top[off:], p)
}

// fail makes nothing be read or written any more.
func (x *File) fail(err error) {
	if !x.gone.Swap(true) {
		x.lose(err)
	}
}

// lost reports whether there was an error. x may be nil.
func (x *File) lost() bool { return x != nil && x.gone.Load() }

// put has an entry written, unless too much waits for that.
func (x *File) put(owner string, key resultcache.Key, parts [][]byte) bool {
	if x.gone.Load() || x.hidden.Load() {
		return false
	}
	n := int64(0)
	for _, p := range parts {
		n += int64(len(p))
	}
	if x.waiting.Add(n) > maxQueued && x.waiting.Load() > n { // a long one may go alone
		x.waiting.Add(-n)
		x.dropped.Add(1)
		return false
	}
	select {
	case x.queue <- queued{owner: owner, key: key, entry: slices.Concat(parts...)}:
		return true
	default:
		x.waiting.Add(-n)
		x.dropped.Add(1)
		return false
	}
}

// end removes a mark once the entries that wait are written, one of which may be the one that readers wait for. A full queue
// must not hold up a job, so the mark goes at once then.
func (x *File) end(mark int) {
	select {
	case x.queue <- queued{mark: mark}:
	default:
		x.shelf.End(mark)
	}
}

// writer does what is in the queue until close.
func (x *File) writer() {
	for q := range x.queue {
		if q.mark != 0 {
			x.shelf.End(q.mark)
			continue
		}
		n := int64(len(q.entry))
		x.grow(uint64(n))
		if q.owner == "" {
			x.shelf.Put(q.key, q.entry)
		} else {
			x.shelf.PutFor(q.owner, q.key, q.entry)
		}
		x.waiting.Add(-n)
	}
}

// grow gives the file blocks for an entry of n bytes, rather than have it written over older ones, as far as the file's
// part goes.
func (x *File) grow(n uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for !x.full && x.limit < x.part && n <= x.part/8 && (x.shelf.Wraps(n) || n > x.limit/8) {
		if err := x.growLocked(min(x.limit+step, x.part)); err != nil {
			x.full = true
		}
	}
}

// growLocked gives the file blocks for limit bytes of data.
func (x *File) growLocked(limit uint64) error {
	if err := x.allocate(limit); err != nil {
		return err
	}
	x.own.limit = limit
	if err := x.own.write(x.f); err != nil {
		x.fail(err)
		return err
	}
	x.limit = limit
	x.shelf.Limit(limit)
	return nil
}

// allocate gives the file blocks for what comes before its data, and for limit bytes of that.
func (x *File) allocate(limit uint64) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(x.f.Fd()), &fs); err != nil {
		return err
	}
	left := x.left / uint64(fs.Bsize)
	if left == 0 {
		left = fs.Blocks / freeShare
	}
	if more := (limit - x.limit) / uint64(fs.Bsize); fs.Bavail < more || fs.Bavail-more < left {
		return fmt.Errorf("%s: the disk would have less than %d MiB free", x.f.Name(), left*uint64(fs.Bsize)>>20)
	}
	for {
		err := unix.Fallocate(int(x.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, int64(x.empty.At+limit))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP): // then a full disk is an error of a write
			return nil
		case err != nil:
			return fmt.Errorf("room for %d MiB in %s: %w", (x.empty.At+limit)>>20, x.f.Name(), err)
		}
		return nil
	}
}

// setPart says how many bytes the file may take. If it has more, those go, and what is in them.
func (x *File) setPart(part uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	part -= min(part, x.empty.At)
	x.part, x.full = min(part, x.empty.Data)/page*page, false
	if !x.hidden.Load() { // otherwise show does it
		x.shrinkLocked()
	}
}

// show has clients see what is there, once it is known to be whole.
func (x *File) show() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.shrinkLocked()
	x.hidden.Store(false)
}

// shrinkLocked gives back what is beyond the file's part.
func (x *File) shrinkLocked() {
	if x.gone.Load() || x.limit <= x.part {
		return
	}
	x.limit, x.own.limit = x.part, x.part
	x.shelf.Limit(x.limit)
	if err := x.own.write(x.f); err != nil {
		x.fail(err)
		return
	}
	from := int64(x.empty.At + x.limit)
	_ = unix.Fallocate(int(x.f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, from, x.size-from) // an error leaves the disk in use
}

// touch notes when the tenant was last here. x may be nil.
func (x *File) touch(now time.Time) {
	if x != nil && !x.lost() {
		_ = os.Chtimes(x.f.Name(), now, now) // then it is as old as what was last written
	}
}

// remove makes no daemon find the file again.
func (x *File) remove() {
	x.gone.Store(true)
	_ = os.Remove(x.f.Name()) // if it stays, it is opened again
}

// close writes what waits, and closes the file. No connection may be using it.
func (x *File) close() {
	x.closing.Do(func() {
		close(x.queue)
		x.work.Wait()
		if !x.lost() && !x.hidden.Load() && x.f.Sync() == nil {
			x.own.boot = 0
			if x.own.write(x.f) == nil {
				_ = x.f.Sync() // then it is verified
			}
		}
		x.f.Close()
	})
}
