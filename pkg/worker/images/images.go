// Package images keeps precompiled headers that this host has made, for the compiles of the tenant that they were made for.
// Nothing that comes over the network gets into it.
//
// An image is in an unlinked file, mapped for reading, so the system can take its memory back.
package images

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Key names an image: everything that it depends on, and its tenant.
type Key [sha256.Size]byte

// Store keeps images. Its methods may be called at any time.
type Store struct {
	dir  string
	most int64

	mu     sync.Mutex
	all    map[Key]*Image
	bytes  int64
	clock  uint64 // counts uses
	stats  Stats
	closed bool
}

// Stats says what a Store has and has done.
type Stats struct {
	Images int
	Bytes  int64
	Made   uint64
	Used   uint64 // by compiles, in addition to those that made them
	Failed uint64 // commands that made none
	Gone   uint64 // images dropped to make room
}

// New returns a Store with files in dir, of most bytes at most. A longer image is used once and not kept.
func New(dir string, most int64) *Store {
	return &Store{dir: dir, most: most, all: make(map[Key]*Image)}
}

// Image is a precompiled header. Its content must not be used after Free.
type Image struct {
	Key    Key
	tenant string
	mem    []byte

	// guarded by Store.mu
	s     *Store
	users int
	used  uint64        // Store.clock at its last use
	kept  bool          // it is in Store.all, or will be
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
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	x.users--
	x.unmapLocked()
}

func (x *Image) unmapLocked() {
	if x.users == 0 && !x.kept && x.mem != nil {
		_ = unix.Munmap(x.mem) // ours and whole: cannot fail
		x.mem = nil
	}
}

// ErrStopped is returned to a caller that has stopped waiting. What makes an image wraps it if it had to stop.
var ErrStopped = errors.New("stopped waiting for a precompiled header")

// Get returns the image of that key. If it is not there, make writes it to a file. Of several callers one makes it, and the
// others wait until stop is closed. They get the error of the one that makes it, unless that had to stop (ErrStopped): then
// another one makes it. The caller frees the image.
func (s *Store) Get(key Key, tenant string, stop <-chan struct{}, make func(to *os.File) error) (*Image, error) {
	for {
		x, makes := s.enter(key, tenant)
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
func (s *Store) enter(key Key, tenant string) (x *Image, makes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	if x = s.all[key]; x != nil {
		x.users++
		x.used = s.clock
		return x, false
	}
	x = &Image{Key: key, tenant: tenant, s: s, users: 1, used: s.clock, kept: true, done: make(chan struct{})}
	s.all[key] = x
	return x, true
}

// fill makes x.
func (s *Store) fill(x *Image, make func(to *os.File) error) (*Image, error) {
	made := false
	defer func() {
		if !made { // also after a panic
			s.end(x, nil, errors.New("it was not made"))
		}
	}()
	mem, err := s.write(make)
	made = true
	s.end(x, mem, err)
	if err != nil {
		return nil, err
	}
	return x, nil
}

// end records what has become of x.
func (s *Store) end(x *Image, mem []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.mem, x.err = mem, err
	close(x.done)
	if err != nil {
		s.stats.Failed++
		delete(s.all, x.Key)
		x.kept = false
		x.users--
		return
	}
	s.stats.Made++
	s.bytes += int64(len(mem))
	s.roomLocked(x.tenant)
}

// write has make write a file, and maps it.
func (s *Store) write(make func(to *os.File) error) (mem []byte, err error) {
	f, err := os.CreateTemp(s.dir, "image")
	if err != nil {
		return nil, fmt.Errorf("file for a precompiled header: %w", err)
	}
	defer f.Close()
	if err := os.Remove(f.Name()); err != nil {
		return nil, fmt.Errorf("file for a precompiled header: %w", err)
	}
	if err := make(f); err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.Size() == 0 {
		return nil, errors.New("a precompiled header without content")
	}
	return unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
}

// roomLocked drops images until the others fit. The tenant whose image came last gives first, down to half of the room: it
// cannot take that from all others.
func (s *Store) roomLocked(tenant string) {
	for s.bytes > s.most || s.closed && len(s.all) > 0 {
		var own int64
		for _, x := range s.all {
			if x.tenant == tenant {
				own += int64(len(x.mem))
			}
		}
		var oldest *Image
		for _, x := range s.all {
			switch {
			case x.mem == nil: // it is being made
			case own > s.most/2 && x.tenant != tenant:
			case oldest == nil || x.used < oldest.used:
				oldest = x
			}
		}
		if oldest == nil {
			return
		}
		s.stats.Gone++
		s.bytes -= int64(len(oldest.mem))
		delete(s.all, oldest.Key)
		oldest.kept = false
		oldest.unmapLocked()
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.roomLocked("")
}
