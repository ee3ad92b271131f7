package shelves

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// dir is the directory with shelves in files. It belongs to one daemon at a time.
type dir struct {
	path string
	lock *os.File
	bad  atomic.Bool // no further file is opened
}

const (
	lockFile = "lock"
	suffix   = ".shelf"
)

// openDir makes the directory if there is none, and takes it.
func openDir(path string) (*dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	var own unix.Stat_t
	if err := unix.Lstat(path, &own); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if own.Mode&unix.S_IFMT != unix.S_IFDIR || int(own.Uid) != os.Geteuid() || own.Mode&0o077 != 0 {
		return nil, fmt.Errorf("%s belongs to user %d and has mode %#o: it must be a directory of this process's own, and 0700", path, own.Uid, own.Mode&0o7777)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(path, &fs); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.RAMFS_MAGIC {
		return nil, fmt.Errorf("%s is no disk but memory, which store.results is for", path)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s is another daemon's: %w", path, err)
	}
	return &dir{path: path, lock: lock}, nil
}

func (d *dir) close() {
	if d != nil {
		d.lock.Close()
	}
}

// good reports whether further files may be opened. d may be nil.
func (d *dir) good() bool { return d != nil && !d.bad.Load() }

// fail notes that the directory is of no use any more.
func (d *dir) fail(log *slog.Logger, err error) {
	if !d.bad.Swap(true) {
		log.Warn("results that clients can read are kept in memory from now on, until the daemon is started again", "dir", d.path, "err", err)
	}
}

// file returns the name of the file of a tenant.
func (d *dir) file(tenant string) string {
	sum := sha256.Sum256([]byte("rdistcc shelf\x00" + tenant))
	return filepath.Join(d.path, hex.EncodeToString(sum[:16])+suffix)
}

// find opens the shelves that an earlier daemon has left. It holds opening, as its caller does.
func (s *Shelves) find() {
	defer s.opening.Unlock()
	list, err := os.ReadDir(s.dir.path)
	if err != nil {
		s.dir.fail(s.o.Log, err)
		return
	}
	now := time.Now()
	for _, e := range list {
		name := filepath.Join(s.dir.path, e.Name())
		info, err := e.Info()
		if !strings.HasSuffix(e.Name(), suffix) || err != nil || !info.Mode().IsRegular() {
			continue
		}
		o, ok := ownerOf(name)
		if !ok || s.dir.file(o.name) != name || now.Sub(info.ModTime()) >= max(fileIdleMost, s.o.Keep) {
			if !ok {
				s.o.Log.Info("a file with results is of another kind or version, and removed", "file", name)
			}
			_ = os.Remove(name)
			continue
		}
		t, err := s.openFile(o.name)
		if err != nil {
			s.dir.fail(s.o.Log, err)
			return
		}
		t.left = info.ModTime()
		s.mu.Lock()
		if s.roomLocked(true) {
			s.tenants[o.name] = t
		} else {
			t.file.remove()
			t.file.close()
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.divide()
}

// ownerOf reads the owner of a file by name.
func ownerOf(name string) (owner, bool) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return owner{}, false
	}
	defer f.Close()
	return readOwner(f)
}

// openFile opens a tenant's shelf, or makes one in place of a file that cannot be gone on with.
func (s *Shelves) openFile(tenant string) (*Tenant, error) {
	name, data := s.dir.file(tenant), dataOf(s.o.Disk)
	lost := func(err error) { s.dir.fail(s.o.Log, err) }
	x, sh, err := goOn(name, tenant, data, s.o.Left, lost)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			s.o.Log.Info("a file with results is of no use, and made anew", "file", name, "err", err)
		}
		if x, sh, err = anew(name, tenant, data, s.o.Left, lost); err != nil {
			return nil, err
		}
	}
	t := &Tenant{Shelf: sh, name: tenant, file: x}
	x.last.Store(sh.Head().Last)
	x.shelf = sh
	if x.hidden.Load() {
		s.work.Go(func() { s.verify(t) })
	}
	x.work.Go(x.writer)
	return t, nil
}

// goOn opens a file that a daemon has left.
func goOn(name, tenant string, data, left uint64, lost func(error)) (*File, *shelf.Shelf, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, nil, err
	}
	x := newFile(f, data, left, lost)
	sh, err := x.resume(tenant, data)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return x, sh, nil
}

// resume checks what x has, and takes it.
func (x *File) resume(tenant string, data uint64) (*shelf.Shelf, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(x.f.Fd()), &st); err != nil {
		return nil, err
	}
	o, ok := readOwner(x.f)
	switch {
	case int(st.Uid) != os.Geteuid() || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o077 != 0 || st.Nlink != 1:
		return nil, fmt.Errorf("it belongs to user %d, has mode %#o and %d names", st.Uid, st.Mode&0o7777, st.Nlink)
	case st.Size != x.size:
		return nil, fmt.Errorf("it has %d bytes, and store.results-disk makes it %d", st.Size, x.size)
	case !ok || o.name != tenant || o.limit > data:
		return nil, errors.New("it does not say that it is this tenant's")
	}
	sh, dropped, err := shelf.Open(inside{x}, data)
	if err != nil {
		return nil, err
	}
	if dropped > 0 {
		x.hidden.Store(true) // whatever the reason, more may be wrong
	}
	if o.boot != 0 && o.boot != bootID() {
		x.hidden.Store(true)
	}
	x.limit = o.limit
	sh.Limit(x.limit)
	o.boot = bootID()
	x.own = o
	if err := o.write(x.f); err != nil {
		return nil, err
	}
	return sh, x.f.Sync() // before anything else changes
}

// anew makes a file.
func anew(name, tenant string, data, left uint64, lost func(error)) (*File, *shelf.Shelf, error) {
	_ = os.Remove(name) // otherwise the next line says why it cannot be
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, err
	}
	x := newFile(f, data, left, lost)
	limit := min(step, data)
	x.own = owner{boot: bootID(), name: tenant, limit: limit}
	err = f.Truncate(x.size)
	if err == nil {
		err = x.allocate(limit)
	}
	x.limit = limit
	var sh *shelf.Shelf
	if err == nil {
		sh, err = shelf.Create(inside{x}, data)
	}
	if err == nil {
		sh.Limit(limit)
		err = x.own.write(f)
	}
	if err != nil {
		f.Close()
		_ = os.Remove(name)
		return nil, nil, err
	}
	return x, sh, nil
}

// verify reads all of a shelf that the machine may have lost parts of. Until then clients see an empty one, and nothing is
// added.
func (s *Shelves) verify(t *Tenant) {
	began := time.Now()
	bad, err := t.Verify(s.stop)
	if err != nil {
		select {
		case <-s.stop: // the next daemon does it
		default:
			if !t.file.lost() { // otherwise it was closed
				t.file.fail(err)
			}
		}
		return
	}
	s.o.Log.Info("results that were kept before the machine went down were verified", "file", t.file.f.Name(), "results", t.Shelf.Stats().Entries, "dropped", bad, "took", time.Since(began).Round(time.Millisecond))
	t.file.show()
}
