// Package disk keeps results in a directory, one file each.
//
//	DIR/a/bc/def...   the entry of the key abcdef...
//	DIR/a/bc/def....m the manifest of that key
//	DIR/a/bc/.new-*   one that is being written
//
// Several programs may use one directory at the same time. A file comes to its name whole, by rename; a crash
// or a power failure can leave one that is cut short or empty, which readers notice, because entries verify
// themselves. There is no index that could disagree with the files: what is known about a store's size is an
// estimate, and is corrected by counting.
package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// parts is how many parts a directory has. Each is counted and made smaller by itself.
const parts = 16

// usedEvery is how far apart uses of an entry are noted, so that a hit mostly writes nothing.
const usedEvery = time.Minute

// Store keeps entries below a directory. It is safe for concurrent use, also by several processes.
type Store struct {
	dir   string
	limit int64 // bytes of a part
	now   func() time.Time
	parts [parts]part
}

// Open returns the store in dir, which keeps at most about size bytes. dir is made when something is first
// kept.
func Open(dir string, size int64) (*Store, error) {
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("directory for results: %s is not an absolute path", dir)
	}
	return &Store{dir: filepath.Clean(dir), limit: size / parts, now: time.Now}, nil
}

// Dir returns the directory.
func (s *Store) Dir() string { return s.dir }

// Close does nothing.
func (s *Store) Close() error { return nil }

// path returns the name of key's file, and its part.
func (s *Store) path(key resultcache.Key) (string, *part) {
	k := key.String()
	return s.dir + "/" + k[:1] + "/" + k[1:3] + "/" + k[3:], &s.parts[key[0]>>4]
}

// Get implements resultcache.Store. It notes that the entry was used.
func (s *Store) Get(_ context.Context, key resultcache.Key, buf []byte) ([]byte, error) {
	name, _ := s.path(key)
	return s.read(name, buf, resultcache.MaxLen)
}

// read appends a file of at most the given length to buf.
func (s *Store) read(name string, buf []byte, most int) ([]byte, error) {
	fd, err := openFile(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return buf, resultcache.ErrMiss
		}
		return buf, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return buf, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > int64(most) {
		return buf, fmt.Errorf("%s: %w: not a file of the cache", name, resultcache.ErrDamaged)
	}
	at := len(buf)
	if need := at + int(st.Size); need > cap(buf) {
		buf = append(make([]byte, 0, need), buf...)
	}
	b := buf[at : at+int(st.Size)]
	for n := 0; n < len(b); {
		k, err := unix.Pread(fd, b[n:], int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return buf[:at], &fs.PathError{Op: "read", Path: name, Err: err}
		case k == 0:
			return buf[:at], fmt.Errorf("%s: %w: cut short", name, resultcache.ErrDamaged)
		}
		n += k
	}
	s.used(fd, time.Unix(st.Mtim.Unix()))
	return buf[:at+len(b)], nil
}

// used notes that an entry was used, by its time of modification. at is the last use that is noted.
func (s *Store) used(fd int, at time.Time) {
	now := s.now()
	if d := now.Sub(at); d >= 0 && d < usedEvery {
		return
	}
	t := unix.NsecToTimeval(now.UnixNano())
	_ = unix.Futimes(fd, []unix.Timeval{t, t}) // of another user's store or a read-only one: it is not noted
}

// openFile opens a file for reading. It does not wait where a FIFO has the name.
func openFile(name string) (int, error) {
	for {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err == nil {
			return fd, nil
		}
		if err != unix.EINTR {
			return -1, &fs.PathError{Op: "open", Path: name, Err: err}
		}
	}
}

// mostOfPart is the part of a part's limit that one entry may take.
const mostOfPart = 4

// Put implements resultcache.Store. It makes room by removing the entries that were used least recently.
func (s *Store) Put(_ context.Context, key resultcache.Key, entry []byte) error {
	if int64(len(entry)) > s.limit/mostOfPart {
		return fmt.Errorf("%w: it takes %d bytes", resultcache.ErrTooBig, len(entry))
	}
	name, p := s.path(key)
	return s.put(name, p, int(key[0]>>4), entry)
}

func (s *Store) put(name string, p *part, i int, data []byte) error {
	was, err := s.write(name, data)
	if err != nil {
		return err
	}
	return s.added(p, i, blocks(int64(len(data)))-was)
}

// write writes a file to its name, and returns how much room the one that had the name took.
func (s *Store) write(name string, data []byte) (was int64, err error) {
	f, err := s.create(filepath.Dir(name))
	if err != nil {
		return 0, err
	}
	temp := f.Name()
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	var st unix.Stat_t
	if unix.Lstat(name, &st) == nil {
		was = blocks(st.Size)
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		_ = os.Remove(temp) // what is left is removed once it is old
		return 0, err
	}
	return was, nil
}

// create makes a new file in a directory, which it makes if it is not there.
func (s *Store) create(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, newPrefix+"*")
	if errors.Is(err, fs.ErrNotExist) {
		// Results tell what a user compiles.
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
		f, err = os.CreateTemp(dir, newPrefix+"*")
	}
	return f, err
}

// Drop implements resultcache.Store.
func (s *Store) Drop(_ context.Context, key resultcache.Key) error {
	name, p := s.path(key)
	return s.drop(name, p)
}

func (s *Store) drop(name string, p *part) error {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return nil
	}
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	p.mu.Lock()
	p.bytes -= blocks(st.Size)
	p.mu.Unlock()
	return nil
}

// blocks returns how much room a file of n bytes takes on most file systems.
func blocks(n int64) int64 { return (n + 4095) &^ 4095 }

// part is what is known about one part of a store.
type part struct {
	mu      sync.Mutex
	counted bool  // bytes is not a mere guess
	bytes   int64 // estimate
	since   int64 // bytes added since it was counted
	busy    bool  // it is being counted, and made smaller if need be
}

// Size returns the estimated size of the store, in bytes. It grows from 0 as parts are counted, when something is
// kept in them.
func (s *Store) Size() (n int64) {
	for i := range s.parts {
		p := &s.parts[i]
		p.mu.Lock()
		n += max(p.bytes, 0)
		p.mu.Unlock()
	}
	return n
}

// recount is the share of a part's limit after which it is counted again: others may have added to it too.
const recount = 16

// added notes that n bytes were added to a part, and makes it smaller if it has become too big.
func (s *Store) added(p *part, i int, n int64) error {
	p.mu.Lock()
	p.bytes += n
	p.since += max(n, 0)
	due := !p.busy && (!p.counted || p.bytes > s.limit || p.since > s.limit/recount)
	p.busy = p.busy || due
	p.mu.Unlock()
	if !due {
		return nil
	}
	left, err := s.shrink(i, s.limit, s.limit-s.limit/10)
	p.mu.Lock()
	p.busy = false
	if err == nil {
		p.counted, p.bytes, p.since = true, left, 0
	}
	p.mu.Unlock()
	return err
}
