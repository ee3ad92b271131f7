package inputs

import (
	"os"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// dir is a directory under one spelling, with what the Table has asked about it and the answers. Guarded by Table.mu.
type dir struct {
	path   string // absolute, without a trailing slash
	parent *dir   // the directory in which it is the entry base; nil: it is looked at by its path alone
	base   string

	id      uint32        // in Table.ids
	round   uint64        // the last one in which it was checked
	gen     atomic.Uint64 // of the last check; 0: never checked
	there   bool
	implied bool   // it is not there, as its parent's record says
	err     *Doubt // why it cannot be examined
	st      stamp.Stamp
	settled bool
	way     way
	names   map[string]*entry
	loose   []*entry // of names: links whose answers can change while the directory does not
	watch   *watch   // nil: it is not watched
	deaf    uint64   // watcher.era in which it was last tried to watch it

	// changed is the latest change of an answer: whether it exists, where it is, or whether one of the names
	// is a file.
	changed uint64
}

// way describes the path to a directory.
type way struct {
	real   string // the directory, with links resolved
	links  []link
	system bool // it leads through a link that distributions have at the top level and that may differ elsewhere
	apart  bool // it leads elsewhere for another process
	plain  bool // the path has no dots and no redundant slashes

	headers bool // it is where distributions have the system's headers, or below
}

// link is a symbolic link on the way.
type link struct {
	unit.Link
	st stamp.Stamp
}

// follow finds the way to the directory dir, which exists.
func follow(dir string) (w way, ok bool) {
	w.plain = path.Clean(dir) == dir
	for word := range strings.SplitSeq(dir, "/") {
		switch word {
		case "", ".":
			continue
		case "..":
			w.real = w.real[:max(0, strings.LastIndexByte(w.real, '/'))]
			continue
		}
		next := w.real + "/" + word
		var st unix.Stat_t
		if lstat(next, &st) != nil {
			return w, false
		}
		w.real = next
		if st.Mode&unix.S_IFMT != unix.S_IFLNK {
			continue
		}
		if w.real = sources.RealPath(next); w.real == "" {
			return w, false
		}
		w.links = append(w.links, link{unit.Link{Name: next, Target: w.real}, stamp.Of(&st)})
		w.system = w.system || sources.SystemLink(next)
		w.apart = w.apart || wanders(next)
	}
	w.apart = w.apart || !sameForAll(w.real)
	w.headers = unit.IsSystemFile(w.real + "/x")
	return w, true
}

// wanders reports whether a link leads, by way of other links or not, through a name that leads elsewhere for the compiler.
func wanders(name string) bool {
	for range maxLinks {
		target, err := os.Readlink(name)
		if err != nil {
			return false
		}
		if !path.IsAbs(target) {
			name = path.Dir(name) + "/" + target
			continue
		}
		if name = target; !sameForAll(name) {
			return true
		}
	}
	return true
}

// maxLinks is how many links the kernel follows.
const maxLinks = 40

// sameForAll reports whether a name leads to the same file in every process.
func sameForAll(name string) bool {
	shared, ok := unit.Shared(name)
	return ok && shared == name
}

// same reports whether the links on the way are unchanged.
func (w *way) same() bool {
	for i := range w.links {
		var st unix.Stat_t
		if lstat(w.links[i].Name, &st) != nil || stamp.Of(&st) != w.links[i].st || sources.RealPath(w.links[i].Name) != w.links[i].Target {
			return false
		}
	}
	return true
}

// same reports whether d is still the directory that st describes, reached by the same path. d.parent has been checked;
// below is d's name in it.
func (d *dir) same(st *stamp.Stamp, below *entry) bool {
	if !d.there || d.st.Dev != st.Dev || d.st.Ino != st.Ino {
		return false
	}
	if below != nil { // a link may lead to where it was moved
		at, links := d.way.real, len(d.parent.way.links)
		if below.isLink() {
			if links++; len(d.way.links) == links {
				at = d.way.links[links-1].Name
			}
		}
		in, is := strings.CutSuffix(at, "/"+d.base)
		if !is || in != d.parent.way.real || len(d.way.links) != links {
			return false
		}
	}
	return d.way.same()
}

// dirAt returns the record of the directory with an absolute path.
func (t *Table) dirAt(path string) *dir {
	d := t.dirs[path]
	if d == nil {
		d = &dir{path: path}
		if i := strings.LastIndexByte(path, '/'); i > 0 {
			switch base := path[i+1:]; base {
			case "", ".", "..":
			default: // if the directory above is known, it knows of this one
				if d.parent = t.dirs[path[:i]]; d.parent != nil {
					d.base = base
				}
			}
		}
		t.add(d)
	}
	return d
}

// add makes d known.
func (t *Table) add(d *dir) {
	d.names = make(map[string]*entry)
	t.dirs[d.path] = d
	t.takes += d.size()
	if k := len(t.free); k > 0 {
		d.id, t.free = t.free[k-1], t.free[:k-1]
		t.ids[d.id] = d
		return
	}
	d.id = uint32(len(t.ids))
	t.ids = append(t.ids, d)
}

// sub returns the record of a directory in d.
func (t *Table) sub(d *dir, base string) *dir {
	t.path = append(append(append(t.path[:0], d.path...), '/'), base...)
	s := t.dirs[string(t.path)]
	if s == nil {
		path := string(t.path)
		s = &dir{path: path, parent: d, base: path[len(path)-len(base):]}
		t.add(s)
	}
	return s
}

// use records that this round depends on what is known of d. If a known directory already shows that d does not exist,
// recording that directory is enough.
func (t *Table) use(d *dir) {
	if !d.implied {
		t.used = append(t.used, d)
	}
}

// check makes the record of d valid for this generation.
func (t *Table) check(d *dir) *Doubt {
	if d.gen.Load() == t.gen {
		if d.round != t.round { // it was checked for an earlier command
			d.round = t.round
			if d.parent != nil && t.check(d.parent) == nil && d.parent.there {
				t.entry(d.parent, d.base)
			}
			t.use(d)
		}
		return d.err
	}
	first := d.gen.Load() == 0
	d.round = t.round
	d.gen.Store(t.gen)
	d.err, d.implied = nil, false
	defer t.use(d)
	there := true
	var below *entry     // d in its parent
	if d.parent != nil { // an answer for one of its names is one for this directory
		if d.err = t.check(d.parent); d.err != nil {
			return d.err
		}
		there = d.parent.there
		if there {
			below = t.entry(d.parent, d.base)
			if below.unknown() {
				d.err = &Doubt{Why: DoubtFile, Name: d.path}
				return d.err
			}
			there = below.kind == isDir
		}
		d.implied = !there
	}
	if there && t.sound(d) {
		t.refresh(d)
		return nil
	}
	if there && t.wanted(d) && (below == nil || !below.isLink()) {
		t.listenTo(d) // what follows is thus no older than what will be told
	}
	var st stamp.Stamp
	now := time.Now().UnixNano()
	if there {
		var u unix.Stat_t
		err := stat(d.path, &u)
		st = stamp.Of(&u)
		switch {
		case err != nil && !absent(err):
			d.err = &Doubt{Why: DoubtFile, Name: d.path}
			return d.err
		case err != nil || !st.Is(unix.S_IFDIR):
			there = false
		default:
			if d.err = t.trust(&st, d.path); d.err != nil {
				return d.err
			}
		}
	}
	switch {
	case !there:
		if d.there {
			d.changed = t.changed()
		}
		d.there, d.settled = false, false
		t.ignore(d)
		return nil
	}
	heard := d.heard(t.watcher.era, &st)
	t.confirm(d, &st, below)
	same := d.same(&st, below)
	if same && (heard || d.st == st && d.settled) {
		t.refresh(d)
		return nil
	}
	if !same {
		t.ignore(d) // also for those below, whose way has changed as well
		w, ok := follow(d.path)
		if !ok { // it vanished a moment ago
			d.err = &Doubt{Why: DoubtChanged, Name: d.path}
			return d.err
		}
		d.way = w
		if !first {
			d.changed = t.changed()
		}
	}
	if d.way.apart {
		d.there, d.err = false, &Doubt{Why: DoubtPaths, Name: d.path}
		return d.err
	}
	d.there, d.st, d.settled = true, st, st.Settled(now)
	d.loose = d.loose[:0]
	for _, e := range d.names {
		e.gen.Store(0)
		t.look(e)
		if e.isLink() {
			d.loose = append(d.loose, e)
		}
	}
	if d.watch != nil {
		d.watch.stale = nil
	}
	return nil
}

// trust reports whether a file is on a file system whose times reliably show changes.
func (t *Table) trust(st *stamp.Stamp, path string) *Doubt {
	good, known := t.devices[st.Dev]
	if !known {
		var fs unix.Statfs_t
		good = unix.Statfs(path, &fs) == nil && stamp.Faithful(&fs)
		t.devices[st.Dev] = good
	}
	if !good {
		return &Doubt{Why: DoubtFileSystem, Name: path}
	}
	return nil
}
