package inputs

import (
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sources"
	"github.com/rdistcc/rdistcc/internal/stamp"
)

// dir is a directory as it is spelled: what the Table has asked about it, and what the
// answers were. Guarded by Table.mu.
type dir struct {
	path   string // absolute; no slash at its end
	parent *dir   // whose entry base it is; nil: it is looked at by its path alone
	base   string

	gen     uint64 // of the last look; 0: there was none
	there   bool
	err     *Doubt // it cannot be looked at
	st      stamp.Stamp
	settled bool
	way     way
	names   map[string]*entry
	loose   []*entry // of names: links, whose answers can change while the directory does not

	// version grows when an answer changes: that it is there, where it is, or whether there
	// is a file of one of the names.
	version uint64
}

// way is what lies on the way to a directory.
type way struct {
	real   string // the directory without links
	links  []link
	system bool // through a link that distributions have at the top, and that need not be the same elsewhere
	plain  bool // the path has no dots and no further slashes
}

// link is a symbolic link on the way.
type link struct {
	job.Link
	st stamp.Stamp
}

// follow finds the way to the directory path, which is there.
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
		w.links = append(w.links, link{job.Link{Name: next, Target: w.real}, stamp.Of(&st)})
		w.system = w.system || sources.SystemLink(next)
	}
	return w, true
}

// same reports whether the links on the way are those that they were.
func (w *way) same() bool {
	for i := range w.links {
		var st unix.Stat_t
		if lstat(w.links[i].Name, &st) != nil || stamp.Of(&st) != w.links[i].st || sources.RealPath(w.links[i].Name) != w.links[i].Target {
			return false
		}
	}
	return true
}

// dirAt returns what is known of the directory path, which is absolute.
func (t *Table) dirAt(path string) *dir {
	d := t.dirs[path]
	if d == nil {
		d = &dir{path: path, names: make(map[string]*entry)}
		t.dirs[path] = d
	}
	return d
}

// sub returns what is known of a directory in d.
func (t *Table) sub(d *dir, base string) *dir {
	t.path = append(append(append(t.path[:0], d.path...), '/'), base...)
	s := t.dirs[string(t.path)]
	if s == nil {
		path := string(t.path)
		s = &dir{path: path, parent: d, base: base, names: make(map[string]*entry)}
		t.dirs[path] = s
	}
	return s
}

// check has what is known of d be true as of this generation.
func (t *Table) check(d *dir) *Doubt {
	if d.gen == t.gen {
		return d.err
	}
	first := d.gen == 0
	d.gen = t.gen
	t.used = append(t.used, d)
	d.err = nil
	there := true
	if d.parent != nil { // an answer for its names is one for this directory
		if d.err = t.check(d.parent); d.err != nil {
			return d.err
		}
		there = d.parent.there
		if there {
			there = t.entry(d.parent, d.base).kind == isDir
		}
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
			d.version++
		}
		d.there, d.settled = false, false
		return nil
	case d.there && d.st == st && d.settled && d.way.same():
		for _, e := range d.loose {
			t.look(e)
		}
		return nil
	}
	if !d.there || d.st.Dev != st.Dev || d.st.Ino != st.Ino || !d.way.same() {
		w, ok := follow(d.path)
		if !ok { // it went away a moment ago
			d.err = &Doubt{Why: DoubtChanged, Name: d.path}
			return d.err
		}
		d.way = w
		if !first {
			d.version++
		}
	}
	d.there, d.st, d.settled = true, st, st.Settled(now)
	d.loose = d.loose[:0]
	for _, e := range d.names {
		e.gen = 0
		t.look(e)
		if e.isLink() {
			d.loose = append(d.loose, e)
		}
	}
	return nil
}

// trust reports whether the file system of a file can be relied on to tell of changes.
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
