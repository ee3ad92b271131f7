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

// Hosts mostly have the same packages as build hosts: a header of the system's need not travel. A job
// names it as it names all others, and where its tenant has no such content the file of that name here is looked at.
// It counts if its content is the one that was named, to the last bit.

// Machine knows this machine's own headers, for all tenants. Its methods may be called at any time; the zero value
// knows none in advance.
type Machine struct {
	learnt learnt
	own    atomic.Uint64 // contents that jobs named and that this machine had itself
	vain   atomic.Uint64 // those of them that were looked for in the store first
}

// Known returns how many headers were read before a job named them.
func (m *Machine) Known() int { return m.learnt.len() }

// Forget drops all that was read in advance.
func (m *Machine) Forget() { m.learnt.forget(nil) }

// Correct completes a store's figures: what this machine has itself was not lacking.
func (m *Machine) Correct(st *store.Stats) {
	st.Own = m.own.Load()
	st.Lacks -= min(m.vain.Load(), st.Lacks)
}

// Complete makes the list whole of which frame is the abridged form, from files of this machine's, whose contents
// are pinned for the tenant. They have at most most bytes together. The list is nil where this machine lacks one of
// them. beside is the processor time that this took on further processors.
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

// reader looks at this machine's own files for what a job names. It belongs to one goroutine.
type reader struct {
	keeps  *store.Tenant
	learnt *learnt         // nil: nothing is known before
	dirs   map[string]bool // those that were looked at: any user may pass
	buf    []byte
}

// Files are read on several processors at once where they are many: a client waits for them, and for hundreds that
// takes longer than all else before the compiler starts.
const (
	ownReaders     = 4  // most of them
	ownFilesReader = 32 // files that are worth one more
)

// findAll finds the contents of files, pinned. Some may be left out where this machine lacks one.
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

// find returns the content of f, pinned, from the file of that name here; nil: there is none that any user may
// read, or it is another one. If f does not say which content it is that is filled in.
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
		return nil // of another content, or there is no room for it
	}
	return c
}

// open opens one of the system's files that any user may read. ok: there is one of that name.
func (o *reader) open(name string) (fd int, st unix.Stat_t, ok bool) {
	if !unit.IsSystemFile(name) || !o.passable(path.Dir(name)) {
		return -1, st, false
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NOCTTY | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return -1, st, false // a kernel before 5.6 among the reasons
	}
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&unix.S_IROTH == 0 || st.Size > mostOwnFile {
		unix.Close(fd)
		return -1, st, false
	}
	return fd, st, true
}

// read reads n bytes of a file; nil: it has not as many. They are there until the next call.
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

// mostOwnFile bounds what is read of a file of this machine's, in bytes.
const mostOwnFile = 16 << 20

// passable reports whether any user may look for names in dir, whatever this process may.
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
