// Package images keeps precompiled headers that this host has made, for the compiles of the tenant that they were made for.
// Nothing that comes over the network gets into it.
//
// An image is in an unlinked file, mapped for reading. The file system of these files is mostly one in memory, so images have
// to go while the machine is short of that (Store.Tick).
package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Key names an image: everything that it depends on, and its tenant.
type Key [sha256.Size]byte

// Owner is a tenant for which images are made.
type Owner struct {
	Name string
	Gone func() bool // reports whether nothing is kept for it any more; nil: never
}

// Store keeps images. Its methods may be called at any time.
type Store struct {
	dir  string
	most int64

	mu     sync.Mutex
	all    map[Key]*Image
	bytes  int64  // of all images, also of those that are being copied, and of those that are only still in use
	clock  uint64 // counts uses
	stats  Stats
	short  bool // see Tick
	closed bool
}

// Stats says what a Store has and has done.
type Stats struct {
	Images int
	Bytes  int64 // small ones count for more than they have
	Made   uint64
	Used   uint64 // by compiles, in addition to those that made them
	Failed uint64 // commands that made none
	Gone   uint64 // images that were dropped
}

// New returns a Store with files in dir, of most bytes at most.
func New(dir string, most int64) *Store {
	return &Store{dir: dir, most: most, all: make(map[Key]*Image)}
}

// Image is a precompiled header. Its content must not be used after Free.
type Image struct {
	Key   Key
	owner Owner
	mem   []byte

	// guarded by Store.mu
	s     *Store
	users int
	used  uint64        // Store.clock at its last use
	size  int64         // what it has of Store.bytes
	kept  bool          // it is in Store.all
	done  chan struct{} // closed when it is there, or has failed
	err   error
}

// Bytes returns the content, which nothing changes.
func (x *Image) Bytes() []byte { return x.mem }

// Free says that the caller no longer uses the image. A nil Image is none.
func (x *Image) Free() {
	if x == nil {
		return
	}
	s := x.s
	s.mu.Lock()
	defer s.mu.Unlock()
	x.users--
	if x.users == 0 && x.kept && (s.short || s.closed) {
		x.dropLocked()
		return
	}
	x.unmapLocked()
}

// dropLocked makes s no longer keep x. Those who use it still can.
func (x *Image) dropLocked() {
	x.s.stats.Gone++
	delete(x.s.all, x.Key)
	x.kept = false
	x.unmapLocked()
}

// unmapLocked frees what x takes, if it is neither kept nor used.
func (x *Image) unmapLocked() {
	if x.users > 0 || x.kept {
		return
	}
	if x.mem != nil {
		_ = unix.Munmap(x.mem) // ours and whole: cannot fail
		x.mem = nil
	}
	x.s.bytes -= x.size
	x.size = 0
}

// Errors of Get. Others are those of what makes an image, and trouble with the file system.
var (
	// ErrStopped is returned to a caller that has stopped waiting. What makes an image wraps it if it had to stop.
	ErrStopped = errors.New("stopped waiting for a precompiled header")
	// ErrRoom is wrapped by the error about an image for which there is no room.
	ErrRoom = errors.New("no room for a precompiled header")

	errNotMade = errors.New("the precompiled header was not made")
)

// Get returns the image of that key. If it is not there, make makes it, and has keep copy its n bytes. Of several callers one
// makes it, and the others wait until stop is closed. They get the error of the one that makes it, unless that had to stop
// (ErrStopped): then another one makes it. The caller frees the image.
func (s *Store) Get(key Key, owner Owner, stop <-chan struct{}, make func(keep func(from *os.File, n int64) error) error) (*Image, error) {
	for {
		x, makes := s.enter(key, owner)
		if makes {
			return s.fill(x, make)
		}
		select {
		case <-x.done:
		case <-stop:
			x.Free()
			return nil, ErrStopped
		}
		if x.err == nil {
			s.mu.Lock()
			s.stats.Used++
			s.mu.Unlock()
			return x, nil
		}
		x.Free()
		if !errors.Is(x.err, ErrStopped) {
			return nil, x.err
		}
	}
}

// enter returns the image of that key, which the caller uses then. makes says that the caller has to make it.
func (s *Store) enter(key Key, owner Owner) (x *Image, makes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	if x = s.all[key]; x != nil {
		x.users++
		x.used = s.clock
		return x, false
	}
	x = &Image{Key: key, owner: owner, s: s, users: 1, used: s.clock, kept: true, done: make(chan struct{})}
	s.all[key] = x
	return x, true
}

// fill makes x.
func (s *Store) fill(x *Image, make func(keep func(*os.File, int64) error) error) (*Image, error) {
	err := errNotMade
	defer func() { s.end(x, err) }() // also after a panic
	if no := make(func(from *os.File, n int64) error { return s.keep(x, from, n) }); no != nil {
		err = no
	} else if x.mem != nil {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return x, nil
}

// end records what has become of x.
func (s *Store) end(x *Image, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.err = err
	close(x.done)
	if err == nil {
		s.stats.Made++
		return
	}
	s.stats.Failed++
	if x.kept {
		delete(s.all, x.Key)
		x.kept = false
	}
	x.users--
	x.unmapLocked()
}

// keep copies n bytes, which are x, to a file of its own, and maps that.
func (s *Store) keep(x *Image, from *os.File, n int64) error {
	if n == 0 {
		return errors.New("a precompiled header without content")
	}
	if err := s.reserve(x, n); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "image")
	if err != nil {
		return fmt.Errorf("file for a precompiled header: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return fmt.Errorf("file for a precompiled header: %w", err)
	}
	if _, err := io.CopyN(f, from, n); err != nil {
		return fmt.Errorf("copy a precompiled header: %w", err)
	}
	x.mem, err = unix.Mmap(int(f.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	return err
}

// mostParts is how many images fit at most, however small they are: each takes a mapping, of which the kernel gives a process
// 65530, and a program that has no more of them cannot go on.
const mostParts = 1024

// reserve makes room for the n bytes of x. It drops images that nothing uses, the least recently used one first. A tenant that
// has more than half of the room drops only its own: it cannot take that from all others.
func (s *Store) reserve(x *Image, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.most {
		return fmt.Errorf("%w: it has %d bytes, of %d for all", ErrRoom, n, s.most)
	}
	n = max(n, s.most/mostParts)
	for s.bytes > s.most-n {
		oldest := s.oldestLocked(x.owner.Name, n)
		if oldest == nil {
			return fmt.Errorf("%w: it has %d bytes, and %d of %d are in use", ErrRoom, n, s.bytes, s.most)
		}
		oldest.dropLocked()
	}
	s.bytes += n
	x.size = n
	return nil
}

// oldestLocked returns the image that goes first to make room for n bytes of a tenant; nil: there is none.
func (s *Store) oldestLocked(tenant string, n int64) (oldest *Image) {
	own := n
	for _, x := range s.all {
		if x.owner.Name == tenant {
			own += x.size
		}
	}
	for _, x := range s.all {
		switch {
		case x.users > 0:
		case own > s.most/2 && x.owner.Name != tenant:
		case oldest == nil || x.used < oldest.used:
			oldest = x
		}
	}
	return oldest
}

// Tick drops the images of tenants that are gone. short says that the machine is short of memory: then those that nothing uses
// go too, and others as soon as nothing uses them, until it is not.
func (s *Store) Tick(short bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = short
	for _, x := range s.all {
		if short && x.users == 0 || x.owner.Gone != nil && x.owner.Gone() {
			x.dropLocked()
		}
	}
}

// Stats returns what s has and has done.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Images, st.Bytes = len(s.all), s.bytes
	return st
}

// Close drops all images that nothing uses, and keeps none any more.
func (s *Store) Close() {
	s.Tick(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}
