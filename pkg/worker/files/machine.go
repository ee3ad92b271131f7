package files

import (
	"context"
	"path"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/compress"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Compile hosts mostly have the same packages installed as build hosts, so system headers need not travel. A
// job names them like all other files. If the tenant's store lacks such a content, the file of that name on
// this machine is tried: it is used if its content is exactly the one that was named.

// Machine knows this machine's own headers, for all tenants. Its methods may be called at any time. The zero
// value knows none in advance.
type Machine struct {
	learnt learnt
	own    atomic.Uint64 // contents named by jobs that were files of this machine
	vain   atomic.Uint64 // those of own that the store was asked for first, in vain
}

// Known returns how many headers were read in advance.
func (m *Machine) Known() int { return m.learnt.len() }

// Forget drops everything that was read in advance.
func (m *Machine) Forget() { m.learnt.forget(nil) }

// Correct completes a store's figures: contents that this machine had itself do not count as lacks.
func (m *Machine) Correct(st *store.Stats) {
	st.Own = m.own.Load()
	st.Lacks -= min(m.vain.Load(), st.Lacks)
}

// Complete fills in the sums that an abridged list omits, from files of this machine. frame is the list,
// compressed by zstd; list is the completed one. The files have at most most bytes together, otherwise
// Complete does not read them. list is nil if this machine lacks one of the files. own are the contents that
// it found, pinned for the tenant, also if list is nil or err is not; the caller unpins them. beside is the
// time that further processors spent on this.
func (m *Machine) Complete(ctx context.Context, keeps *store.Tenant, frame []byte, most uint64) (list []byte, own []*store.Content, beside time.Duration, err error) {
	n, err := compress.Len(frame)
	if err != nil || n > job.MaxBodyLen {
		return nil, nil, 0, job.Refuse(job.CauseMalformed, "an abridged list that is no zstd frame, or longer than %d bytes", job.MaxBodyLen)
	}
	b, err := compress.Unpack(nil, frame, n)
	if err != nil {
		return nil, nil, 0, job.Refuse(job.CauseMalformed, "an abridged list: %v", err)
	}
	l, err := job.ParseList(b)
	if err != nil {
		return nil, nil, 0, err
	}
	var open []*job.ListedFile
	sum := uint64(0)
	for i := range l.Files {
		f := &l.Files[i]
		if f.Len == 0 || f.Same != 0 || f.Content != (unit.ContentID{}) {
			continue
		}
		if f.Len > most || sum > most {
			return nil, nil, 0, nil
		}
		sum += f.Len
		open = append(open, f)
	}
	own, beside = m.findAll(ctx, keeps, open)
	m.own.Add(uint64(len(own)))
	switch {
	case ctx.Err() != nil:
		return nil, own, beside, ctx.Err()
	case len(own) != len(open):
		return nil, own, beside, nil
	}
	return l.Append(b[:0]), own, beside, nil
}

// reader finds contents that a job names among this machine's own files. It belongs to one goroutine.
type reader struct {
	keeps  *store.Tenant
	learnt *learnt         // nil: nothing was read in advance
	dirs   map[string]bool // results of passable, by directory
	buf    []byte
}

// Many files are read on several processors at once: the client waits for them, and hundreds of files take
// longer than everything else before the compiler starts.
const (
	ownReaders     = 4  // at most
	ownFilesReader = 32 // files per reader, at least
)

// findAll returns the contents of files, pinned. If this machine lacks one, it stops, and others may be
// missing too. beside is the time that further processors spent on this.
func (m *Machine) findAll(ctx context.Context, keeps *store.Tenant, files []*job.ListedFile) (found []*store.Content, beside time.Duration) {
	contents := make([]*store.Content, len(files))
	var next, took atomic.Int64
	var lacking atomic.Bool
	read := func() {
		began := time.Now()
		o := reader{keeps: keeps, learnt: &m.learnt}
		for !lacking.Load() && ctx.Err() == nil {
			i := int(next.Add(1)) - 1
			if i >= len(files) {
				break
			}
			if contents[i] = o.find(files[i]); contents[i] == nil {
				lacking.Store(true)
			}
		}
		took.Add(int64(time.Since(began)))
	}
	began := time.Now()
	var readers sync.WaitGroup
	for range min(ownReaders, runtime.GOMAXPROCS(0), len(files)/ownFilesReader) - 1 {
		readers.Go(read)
	}
	read()
	readers.Wait()
	for _, c := range contents {
		if c != nil {
			found = append(found, c)
		}
	}
	return found, max(0, time.Duration(took.Load())-time.Since(began))
}

// find returns the content of f, pinned, from the file of that name on this machine. It returns nil if there
// is no such file that any user may read, if its content differs, or if there is no room. If f.Content is
// zero, find sets it.
func (o *reader) find(f *job.ListedFile) *store.Content {
	fd, st, ok := o.open(f.Name)
	if !ok {
		return nil
	}
	defer unix.Close(fd)
	if uint64(st.Size) != f.Len {
		return nil
	}
	if c := o.learnt.share(f.Name, stamp.Of(&st), &f.Content, o.keeps); c != nil {
		return c
	}
	text := o.read(fd, f.Len)
	if text == nil {
		return nil
	}
	var c *store.Content
	var err error
	if f.Content == (unit.ContentID{}) {
		f.Content, c, err = o.keeps.PutOwn(text)
	} else {
		c, err = o.keeps.Put(f.Content, text)
	}
	if err != nil {
		return nil // the content is another one, or there is no room for it
	}
	return c
}

// open opens a system file that any user may read; the caller closes fd. It reports whether there is one of
// that name.
func (o *reader) open(name string) (fd int, st unix.Stat_t, ok bool) {
	if !unit.IsSystemFile(name) || !o.passable(path.Dir(name)) {
		return -1, st, false
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, st, false // also on kernels before 5.6, which have no openat2
	}
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&unix.S_IROTH == 0 || st.Size > mostOwnFile {
		unix.Close(fd)
		return -1, st, false
	}
	return fd, st, true
}

// read returns the next n bytes of a file, valid until the next call, or nil if it has fewer or an error
// occurs.
func (o *reader) read(fd int, n uint64) []byte {
	if uint64(cap(o.buf)) < n {
		o.buf = make([]byte, max(n, 64<<10))
	}
	text := o.buf[:n]
	for got := 0; got < len(text); {
		n, err := unix.Read(fd, text[got:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil
		}
		got += n
	}
	return text
}

// mostOwnFile is the size of the largest file of this machine that is read, in bytes.
const mostOwnFile = 16 << 20

// passable reports whether any user may reach files in dir, regardless of what this process may do.
func (o *reader) passable(dir string) bool {
	if dir == "/" {
		return true
	}
	ok, known := o.dirs[dir]
	if !known {
		var st unix.Stat_t
		ok = o.passable(path.Dir(dir)) && unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_IXOTH != 0
		if o.dirs == nil {
			o.dirs = make(map[string]bool)
		}
		o.dirs[dir] = ok
	}
	return ok
}
