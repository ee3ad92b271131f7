package inputs

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// kind is what a compiler finds that tries to read a name.
type kind uint8

const (
	isAbsent kind = iota
	isFile        // a regular file, or a link to one
	isDir         // or a link to one: to a compiler looking for a header as good as absent
	isOther       // a pipe, a device, or something that may not be examined
)

// entry is a name in a directory. Guarded by Table.mu.
type entry struct {
	dir  *dir
	base string

	gen   atomic.Uint64 // of the last check; 0: never checked
	kind  kind
	st    stamp.Stamp // of the name itself
	leads *leads      // for a link; else nil
	file  *file       // its content; nil: not read
	input *Input      // its form in a Set; nil: to be made

	// changed is the latest change of its content, or of anything else of it that a compiler may see; 0: it was never looked at.
	changed uint64
	asked   uint64 // the last round in which it mattered what it is
}

// leads says where a link leads. It is separate because few names are links, and there are many names.
type leads struct {
	st   stamp.Stamp // of the file there
	real string
}

func (e *entry) isLink() bool { return e.leads != nil }

// target returns the stamp of the file that the name stands for.
func (e *entry) target() *stamp.Stamp {
	if e.leads != nil {
		return &e.leads.st
	}
	return &e.st
}

func (e *entry) path() string { return e.dir.path + "/" + e.base }

// entry returns the entry for a name in d, which exists and was checked in this generation.
func (t *Table) entry(d *dir, base string) *entry {
	e := d.names[base]
	if e == nil {
		e = &entry{dir: d, base: base}
		e.asked = t.round
		d.names[base] = e
		t.takes += e.size()
		t.look(e)
		if e.isLink() {
			d.loose = append(d.loose, e)
		}
		return e
	}
	e.asked = t.round
	if e.kind == isFile {
		t.look(e) // it may have new content
	}
	return e
}

// look makes the record of e valid for this generation.
func (t *Table) look(e *entry) {
	if e.gen.Load() == t.gen {
		return
	}
	first := e.changed == 0
	e.gen.Store(t.gen)
	was, st, led := e.kind, e.st, e.leads
	e.kind, e.st, e.leads = examine(e, &t.path)
	if first {
		e.changed = t.changes
		return
	}
	if e.kind != was {
		e.dir.changed = t.changed()
	}
	if e.kind != was || e.st != st || (e.leads == nil) != (led == nil) || e.leads != nil && *e.leads != *led {
		e.changed = t.changed()
		e.file, e.input = nil, nil
	}
	if e.file != nil && !e.file.settled {
		// A change a moment later could have left no trace.
		old := e.file
		e.file = nil
		d := t.load(e)
		if d == nil {
			d = t.loaded(e.file)
		}
		if d != nil || e.file.id != old.id {
			e.changed = t.changed()
			e.input = nil
		}
	}
}

// examine looks at a name, using buf for its path. It changes nothing.
func examine(e *entry, buf *[]byte) (k kind, st stamp.Stamp, led *leads) {
	var u unix.Stat_t
	err := lstatIn(buf, &u, e.dir.path, "/", e.base)
	st = stamp.Of(&u)
	target := &st
	if err == nil && st.Is(unix.S_IFLNK) {
		if err = stat(e.path(), &u); wanders(e.path()) {
			err = unix.ELOOP // it may exist for this process and not for the compiler, or the other way round
		}
		led = &leads{st: stamp.Of(&u)}
		target = &led.st
	}
	switch {
	case err != nil && absent(err):
		k, *target = isAbsent, stamp.Stamp{}
	case err != nil: // a compiler does not look further: links that lead in a circle, a name that is too long
		k = isOther
		st, *target = stamp.Stamp{}, stamp.Stamp{}
	case target.Is(unix.S_IFREG):
		k = isFile
		if led != nil {
			if led.real = sources.RealPath(e.path()); led.real == "" {
				k = isOther
			}
		}
	case target.Is(unix.S_IFDIR):
		k = isDir
		if led == nil {
			st = stamp.Stamp{} // that belongs to the directory's record
		}
	default:
		k = isOther
	}
	return k, st, led
}

// unknown reports whether the kernel does not say what has this name.
func (e *entry) unknown() bool { return e.kind == isOther && *e.target() == stamp.Stamp{} }

// real returns the name of the file, with links resolved.
func (e *entry) real() string {
	if e.isLink() {
		return e.leads.real
	}
	return e.dir.way.real + "/" + e.base
}

// file is the content of an inode while its stamp is the same. It does not change once it is complete.
type file struct {
	st      stamp.Stamp
	settled bool
	id      unit.ContentID
	bare    unit.ContentID // of the content without a byte order mark
	text    *text          // nil: too long to be scanned

	// Guarded by Table.mu.
	reading *reading        // id and text may still be missing (Table.loaded); nil: they are there, unless void is set
	void    bool            // it could not be read
	uses    map[string]*use // what it asks by macros that stand for __has_include
}

// inode is a key for files.
type inode struct{ dev, ino uint64 }

// maxText is the largest file that is scanned for directives, in bytes.
const maxText = 32 << 20

// load has e, a file, read unless its content is known. e.file is complete once loaded has returned.
func (t *Table) load(e *entry) *Doubt {
	if e.file != nil && !e.file.void {
		return nil
	}
	at := inode{e.target().Dev, e.target().Ino}
	old := t.files[at]
	if old != nil && old.st == *e.target() && old.settled {
		e.file = old
		return nil
	}
	if d := t.trust(e.target(), e.path()); d != nil {
		return d
	}
	if e.target().Size > t.o.MaxFile {
		return &Doubt{Why: DoubtSize, Name: e.path()}
	}
	if old != nil && old.reading != nil {
		old = nil // nothing to compare with yet
	}
	e.file = &file{st: *e.target(), settled: e.target().Settled(time.Now().UnixNano())}
	t.files[at] = e.file
	t.readAhead(&reading{f: e.file, path: e.path(), old: old})
	return nil
}

// ErrChanged means that a file has changed since it was examined.
var ErrChanged = errors.New("file has changed")

func reasonOf(err error) string {
	if errors.Is(err, ErrChanged) {
		return DoubtChanged
	}
	return DoubtFile
}

// readFile appends the content of the file path to buf. The file must have the stamp st, or the error is
// ErrChanged.
func readFile(path string, st *stamp.Stamp, buf []byte) ([]byte, error) {
	fd, err := open(path)
	if err != nil {
		if absent(err) {
			err = ErrChanged
		}
		return nil, err
	}
	defer unix.Close(fd)
	if err := still(fd, st); err != nil {
		return nil, err
	}
	start := len(buf)
	end := start + int(st.Size)
	buf = slices.Grow(buf, int(st.Size)+1)
	for {
		n, err := unix.Read(fd, buf[len(buf):end+1])
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, err
		}
		buf = buf[:len(buf)+n]
		switch {
		case len(buf) > end || n == 0 && len(buf) < end:
			return nil, ErrChanged
		case len(buf) == end:
			return buf, still(fd, st)
		}
	}
}

// still returns ErrChanged if fd no longer has the stamp st.
func still(fd int, st *stamp.Stamp) error {
	var u unix.Stat_t
	if err := unix.Fstat(fd, &u); err != nil {
		return err
	}
	if stamp.Of(&u) != *st {
		return ErrChanged
	}
	return nil
}

func open(path string) (fd int, err error) {
	for {
		// Not to be blocked by a pipe that has replaced a file.
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}
