package store

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// The directory contains
//
//	lock                  held by the store that uses it
//	key                   for tenants' names, which are secret
//	TENANT-EPOCH/SHA256   the contents; the directory's time is when the tenant was last connected
//	wiped-N               what is being removed
const (
	lockFile = "lock"
	keyFile  = "key"
	newFile  = ".new" // a content that is being written
	wiped    = "wiped-"
)

const (
	// queueLength and queueBytes bound what waits to be written, as a disk may be slower than any network.
	// Contents beyond that are in memory only.
	queueLength, queueBytes = 4096, 64 << 20
	// restTime is how long writing pauses after a failure.
	restTime = 10 * time.Second
	// silentTime is the least time between two lines in the log.
	silentTime = time.Minute
	// touchTime is how old the time of a directory may become.
	touchTime = time.Minute
)

// disk holds a store's files. One goroutine writes them.
type disk struct {
	s    *Store
	lock *os.File
	jobs sync.WaitGroup
	end  chan struct{}

	queue  chan *Content // not pinned: a content dropped before its turn is not written
	queued int64         // bytes in queue; guarded by Store.mu
	closed bool          // guarded by Store.mu too

	rest time.Time // owned by the writer

	mu   sync.Mutex
	told time.Time // time of the last line in the log
}

// openDisk finds what an earlier store has left in the directory, or creates the directory.
func (s *Store) openDisk() {
	d := &disk{s: s, end: make(chan struct{}), queue: make(chan *Content, queueLength)}
	if err := d.open(); err != nil {
		s.o.Log.Warn("contents are not kept on disk", "dir", s.o.Dir, "err", err)
		if d.lock != nil {
			d.lock.Close()
		}
		s.key = nil
		return
	}
	s.disk = d
	found, err := d.tenants()
	if err != nil {
		d.trouble(err)
	}
	d.jobs.Go(func() { d.find(found) })
	d.jobs.Go(d.writer)
}

func (d *disk) open() (err error) {
	dir := d.s.o.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var own unix.Stat_t
	if err := unix.Lstat(dir, &own); err != nil {
		return err
	}
	if int(own.Uid) != os.Geteuid() || own.Mode&0o077 != 0 {
		return fmt.Errorf("%s belongs to user %d and has mode %#o: it must be this process's own, and 0700", dir, own.Uid, own.Mode&0o777)
	}
	if d.lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(d.lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("%s is another daemon's: %w", dir, err)
	}
	return d.readKey(filepath.Join(dir, keyFile))
}

// readKey reads the key, or makes one if there is none: tenants of an older key are not found again.
func (d *disk) readKey(name string) error {
	key, err := os.ReadFile(name)
	if err == nil && len(key) == 32 {
		d.s.key = key
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	key = make([]byte, 32)
	rand.Read(key) // never fails, says its documentation
	if err := os.WriteFile(name, key, 0o600); err != nil {
		return err
	}
	d.s.key = key
	return nil
}

// close writes what is queued, and releases the directory.
func (d *disk) close() {
	d.s.mu.Lock()
	again := d.closed
	if !again {
		d.closed = true
		close(d.queue)
	}
	d.s.mu.Unlock()
	if again {
		return
	}
	close(d.end)
	d.jobs.Wait()
	d.lock.Close()
}

// trouble logs an error, unless one was logged recently.
func (d *disk) trouble(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	if !d.told.IsZero() && now.Sub(d.told) < silentTime {
		return
	}
	d.told = now
	d.s.o.Log.Warn("contents on disk are as if they were not there", "dir", d.s.o.Dir, "err", err)
}

// dir returns the name of a tenant's directory, which differs after each wipe.
func (t *Tenant) dir() string { return fmt.Sprintf("%s-%016x", t.name, t.epoch) }

func (d *disk) path(t *Tenant, name string) string { return filepath.Join(d.s.o.Dir, t.dir(), name) }

// tenants returns the tenants that were kept, and removes those whose time is over. find finds their contents.
func (d *disk) tenants() ([]*Tenant, error) {
	s := d.s
	entries, err := os.ReadDir(s.o.Dir)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, e := range entries {
		name, epoch, ok := parseDir(e.Name())
		if strings.HasPrefix(e.Name(), wiped) {
			d.wipe(e.Name())
		}
		if !ok || !e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil || now.Sub(info.ModTime()) >= s.o.Keep {
			d.wipe(e.Name())
			continue
		}
		if old := s.tenants[name]; old != nil {
			if info.ModTime().Before(old.left) {
				d.wipe(e.Name())
				continue
			}
			d.wipe(old.dir())
		}
		t := s.addLocked(name) // no other goroutine uses it yet
		t.epoch, t.left, t.looking = epoch, info.ModTime(), make(chan struct{})
	}
	var list []*Tenant
	for _, t := range s.tenants {
		list = append(list, t)
	}
	return list, nil
}

func parseDir(dir string) (name string, epoch uint64, ok bool) {
	name, hexed, ok := strings.Cut(dir, "-")
	if !ok || len(name) != 32 || len(hexed) != 16 {
		return "", 0, false
	}
	epoch, err := strconv.ParseUint(hexed, 16, 64)
	return name, epoch, err == nil && epoch != 0
}

// find looks for the contents of tenants on disk.
func (d *disk) find(list []*Tenant) {
	for _, t := range list {
		if err := d.findOf(t); err != nil {
			d.trouble(err)
		}
		close(t.looking)
		d.s.mu.Lock()
		t.looking = nil
		d.s.mu.Unlock()
	}
}

func (d *disk) findOf(t *Tenant) error {
	type found struct {
		id ID
		n  int64
		at time.Time
	}
	var list []found
	entries, err := os.ReadDir(d.path(t, ""))
	if err != nil {
		return err
	}
	for _, e := range entries {
		select {
		case <-d.end:
			return nil
		default:
		}
		var f found
		b, err := hex.DecodeString(e.Name())
		info, ierr := e.Info()
		if err != nil || len(b) != len(f.id) || ierr != nil || !info.Mode().IsRegular() || info.Size() == 0 {
			_ = os.Remove(d.path(t, e.Name())) // if possible
			continue
		}
		copy(f.id[:], b)
		f.n, f.at = info.Size(), info.ModTime()
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b found) int { return a.at.Compare(b.at) })
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tenants[t.name] != t {
		return nil // wiped meanwhile
	}
	for _, f := range list {
		c := t.contents[f.id]
		if c == nil {
			c = &Content{t: t, id: f.id, n: int(f.n)}
			t.contents[f.id] = c
		}
		if c.stored == nil && int64(c.n) == f.n {
			d.storedLocked(c)
		}
	}
	return nil
}

// storedLocked counts a content's file, and removes others if there are too many.
func (d *disk) storedLocked(c *Content) {
	s, t := d.s, c.t
	c.stored = t.stored.PushFront(c)
	t.files += int64(c.n) + overhead
	s.files += int64(c.n) + overhead
	for s.files > s.o.Disk {
		var most *Tenant
		for _, x := range s.tenants {
			if x.stored.Len() > 0 && (most == nil || x.files > most.files) {
				most = x
			}
		}
		if most == nil {
			return
		}
		old := most.stored.Back().Value.(*Content)
		most.removeFileLocked(old)
		if old.recent == nil {
			s.count.evictions++
			most.dropLocked(old)
		}
	}
}

// unstoreLocked stops counting a content's file.
func (t *Tenant) unstoreLocked(c *Content) {
	if c.stored == nil {
		return
	}
	t.stored.Remove(c.stored)
	c.stored = nil
	t.files -= int64(c.n) + overhead
	t.s.files -= int64(c.n) + overhead
}

// removeFileLocked removes a content's file, if it has one.
func (t *Tenant) removeFileLocked(c *Content) {
	if c.stored == nil {
		return
	}
	t.unstoreLocked(c)
	_ = os.Remove(t.s.disk.path(t, fileName(c.id))) // a file that stays is recognized as worthless later
}

func fileName(id ID) string { return hex.EncodeToString(id[:]) }

// write queues a content for writing, unless too much is queued. The caller holds Store.mu.
func (d *disk) write(c *Content) {
	if d.closed || d.queued+int64(c.n) > queueBytes || len(d.queue) == queueLength {
		return
	}
	d.queued += int64(c.n)
	d.queue <- c
}

func (d *disk) writer() {
	s := d.s
	for c := range d.queue {
		s.mu.Lock()
		want := !c.gone && c.recent != nil && c.stored == nil && !time.Now().Before(d.rest)
		if want {
			c.pins++
		}
		s.mu.Unlock()
		var err error
		if want {
			if err = d.create(c); err != nil {
				d.rest = time.Now().Add(restTime)
				d.trouble(err)
			}
		}
		s.mu.Lock()
		d.queued -= int64(c.n)
		if want {
			d.writtenLocked(c, err)
		}
		s.mu.Unlock()
	}
}

func (d *disk) writtenLocked(c *Content, err error) {
	switch {
	case err != nil:
	case c.gone:
		_ = os.Remove(d.path(c.t, fileName(c.id)))
		_ = os.Remove(d.path(c.t, "")) // if it is empty
	case c.stored == nil:
		d.storedLocked(c)
	}
	c.unpinLocked()
}

// create writes a content's file. A file left unfinished by a crash of the machine has a wrong sum.
func (d *disk) create(c *Content) error {
	tmp := d.path(c.t, newFile)
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.Mkdir(d.path(c.t, ""), 0o700); err == nil {
			f, err = os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(c.Bytes())
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(tmp, d.path(c.t, fileName(c.id)))
	}
	if err != nil {
		_ = os.Remove(tmp)
	}
	return err
}

// loadLocked reads a content back into memory and returns it pinned, or nil if that fails or the content has
// changed. It releases the lock meanwhile.
func (t *Tenant) loadLocked(c *Content) *Content {
	s := t.s
	mem, ok := t.allocateLocked(c.n)
	if !ok {
		return nil
	}
	c.loading = make(chan struct{})
	s.mu.Unlock()
	err := s.disk.read(c, mem.bytes[:c.n])
	var got *Content
	if err == nil {
		got = t.settle(c.id, mem, c.n, c)
	}
	s.mu.Lock()
	close(c.loading)
	c.loading = nil
	if err == nil {
		return got
	}
	t.freeLocked(&Content{t: t, mem: mem})
	if c.stored != nil { // otherwise it had to make room meanwhile
		s.disk.trouble(err)
	}
	if !c.gone && c.recent == nil {
		t.removeFileLocked(c)
		t.dropLocked(c)
	}
	return nil
}

// read fills to from a content's file.
func (d *disk) read(c *Content, to []byte) error {
	name := d.path(c.t, fileName(c.id))
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || st.Size() != int64(len(to)) {
		return errors.Join(err, fmt.Errorf("%s has not the length that it had", name))
	}
	if _, err := io.ReadFull(f, to); err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	if sha256.Sum256(to) != c.id {
		return fmt.Errorf("%s has changed by itself", name)
	}
	return nil
}

// wipe removes a tenant's directory, which is renamed at once.
func (d *disk) wipe(dir string) {
	from := filepath.Join(d.s.o.Dir, dir)
	to := from
	if !strings.HasPrefix(dir, wiped) {
		var b [8]byte
		rand.Read(b[:]) // never fails, says its documentation
		to = filepath.Join(d.s.o.Dir, wiped+hex.EncodeToString(b[:]))
		if err := os.Rename(from, to); err != nil {
			if !errors.Is(err, fs.ErrNotExist) {
				d.trouble(err)
			}
			return
		}
	}
	d.jobs.Go(func() {
		if err := os.RemoveAll(to); err != nil {
			d.trouble(err)
		}
	})
}

// touch records on disk that the tenant is connected.
func (t *Tenant) touch(now time.Time) {
	d := t.s.disk
	if d == nil {
		return
	}
	t.s.mu.Lock()
	fresh := now.Sub(t.touched) < touchTime && t.conns > 0
	if !fresh {
		t.touched = now
	}
	t.s.mu.Unlock()
	if !fresh {
		_ = os.Chtimes(d.path(t, ""), now, now) // it may have no directory
	}
}
