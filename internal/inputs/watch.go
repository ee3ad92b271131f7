package inputs

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/vigil"
)

// An include may be in any of hundreds of directories, so a command depends on more directories than files. The kernel can
// report what comes and goes in them (inotify), and then they need not be checked. Its reports are exact within limits:
//
//   - It reports each change of a directory's names or mode before the system call that makes it returns, by whatever path.
//     It misses changes of contents (through a second name or a mapping), so each file is still checked.
//   - It watches inodes, not paths. A path is known to still lead to its inode if all directories above are watched too, up
//     to one that is checked by its path. So a directory above may be renamed or become a link.
//   - It does not report mounts. The table of mounts is polled for those.
//   - It does not report what other machines do, or changes in the layers of an overlay, so only some file systems count
//     (stamp.Told). Nor does it relate spellings of a name: directories that ignore case do not count.
//   - Its queue is bounded. If it overflows, all directories are looked at again, as they are where no watch is to be had.
//
// A directory that is not known to be unchanged is checked like an unwatched one.

const (
	// mostWatched bounds the directories that are watched, each of which keeps an inode in the kernel's memory, about 1 KiB.
	mostWatched = 64 << 10
	// shareWatched is what part of the user's watches a Table takes: editors and build tools want some as well.
	shareWatched = 4

	watchFor = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ATTRIB | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// watcher is what the kernel tells a Table.
type watcher struct {
	on     atomic.Bool // the kernel tells something; kernel is then set, whose Listen Table.turns guards
	kernel *vigil.Kernel

	// Guarded by Table.mu.
	table  string           // the table of mounts; "": this process's
	opened bool             // it was tried to open the files
	most   int              // watches; 0: the kernel tells nothing
	denied bool             // the kernel has refused one, as the user has as many as it allows
	dirs   map[int32][]*dir // by watch: the spellings of a directory
	era    uint64           // counts what puts all directories in doubt
}

// watch is a dir's part in a watcher. Guarded by Table.mu.
type watch struct {
	wd       int32
	dev, ino uint64
	era      uint64   // in which the dir's path led there, and nothing has been told of that path since; 0: something has
	under    *watch   // that of the directory above at that time
	stale    []*entry // names of which something was told
}

// open has the kernel asked. What fails leaves w without watches.
func (w *watcher) open() {
	w.opened, w.dirs, w.era = true, make(map[int32][]*dir), 1
	if w.kernel = vigil.Open(w.table); w.kernel != nil {
		w.most = min(mostWatched, w.kernel.Limit/shareWatched)
		w.on.Store(true)
	}
}

// told is what the kernel has told since it was asked before.
type told struct {
	lost  bool // everything is in doubt
	names []toldName
}

type toldName struct {
	wd   int32
	gone bool   // the watch is no more
	name string // ""; the directory itself
}

// listen returns what the kernel has told. It is called by the owner of Table.turns.
func (w *watcher) listen() (x told) {
	lost := w.kernel.Listen(func(wd int32, mask uint32, name string) {
		x.lost = x.lost || mask&unix.IN_Q_OVERFLOW != 0
		x.names = append(x.names, toldName{wd, mask&unix.IN_IGNORED != 0, name})
	})
	x.lost = x.lost || lost
	return x
}

// heed puts in doubt what the kernel has told of.
func (t *Table) heed(x told) {
	w := &t.watcher
	if x.lost {
		w.era++
	}
	for _, n := range x.names {
		if n.gone {
			for _, d := range w.dirs[n.wd] {
				d.watch = nil
			}
			delete(w.dirs, n.wd)
			continue
		}
		for _, d := range slices.Clone(w.dirs[n.wd]) {
			if n.name == "" {
				d.watch.era = 0
				continue
			}
			if e := d.names[n.name]; e != nil && !slices.Contains(d.watch.stale, e) {
				d.watch.stale = append(d.watch.stale, e)
			}
			t.path = append(append(append(t.path[:0], d.path...), '/'), n.name...)
			if s := t.dirs[string(t.path)]; s != nil && s.watch != nil {
				s.watch.era = 0
			}
			if !d.inhabited() { // it may be empty, and an empty directory can be made to ignore case
				t.ignore(d)
			}
		}
	}
}

// inhabited reports whether something in d is known to exist.
func (d *dir) inhabited() bool {
	for _, e := range d.names {
		if e.kind != isAbsent {
			return true
		}
	}
	return false
}

// wanted reports whether d is to be watched from now on: it was looked at before, so it will be again.
func (t *Table) wanted(d *dir) bool {
	w := &t.watcher
	return d.watch == nil && d.there && d.deaf != max(1, w.era) && (!w.opened || len(w.dirs) < w.most) && (d.parent == nil || d.parent.watch != nil)
}

// listenTo has d watched, if possible. What is then looked at in d is as the kernel has told, or later.
func (t *Table) listenTo(d *dir) {
	w := &t.watcher
	if !w.opened {
		w.open()
	}
	d.deaf = w.era // not to be tried again soon
	if w.most == 0 {
		return
	}
	fd, err := unix.Open(d.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Fstat(fd, &st) != nil || unix.Fstatfs(fd, &fs) != nil || !stamp.Told(&fs) || ignoresCase(fd, &fs) {
		return
	}
	// Watch the open file, not its path, which may lead elsewhere by now: st is of this inode.
	wd, err := unix.InotifyAddWatch(w.kernel.Events, fmt.Sprint("/proc/self/fd/", fd), watchFor)
	if err != nil {
		w.denied = w.denied || err == unix.ENOSPC
		return // too many, or it may not be read
	}
	d.watch = &watch{wd: int32(wd), dev: st.Dev, ino: st.Ino}
	w.dirs[int32(wd)] = append(w.dirs[int32(wd)], d)
}

// ignoresCase reports whether names in an open directory are found by other spellings.
func ignoresCase(fd int, fs *unix.Statfs_t) bool {
	const caseFold = 0x40000000 // FS_CASEFOLD_FL
	if flags, err := unix.IoctlGetUint32(fd, unix.FS_IOC_GETFLAGS); err == nil && flags&caseFold != 0 {
		return true
	}
	if fs.Type != unix.XFS_SUPER_MAGIC {
		return false
	}
	// struct xfs_fsop_geom_v1, whose flags tell of mkfs.xfs -n version=ci.
	const geometry, flagsAt, ignores = 0x80705864, 92, 1 << 13 // XFS_IOC_FSGEOMETRY_V1, XFS_FSOP_GEOM_FLAGS_DIRV2CI
	var b [112]byte
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), geometry, uintptr(unsafe.Pointer(&b)))
	return errno != 0 || binary.NativeEndian.Uint32(b[flagsAt:])&ignores != 0
}

// ignore ends the watch of d.
func (t *Table) ignore(d *dir) {
	if d.watch == nil {
		return
	}
	w, wd := &t.watcher, d.watch.wd
	d.watch, d.deaf = nil, 0
	if left := slices.DeleteFunc(w.dirs[wd], func(o *dir) bool { return o == d }); len(left) > 0 {
		w.dirs[wd] = left
		return
	}
	delete(w.dirs, wd)
	_, _ = unix.InotifyRmWatch(w.kernel.Events, uint32(wd)) // it may have ended by itself
}

// confirm records that the path of d, whose parent has been checked, leads to the inode in st. It ends d's watch if that
// is on another inode. below is the name of d in its parent.
func (t *Table) confirm(d *dir, st *stamp.Stamp, below *entry) {
	w := d.watch
	switch {
	case w == nil:
	case w.dev != st.Dev || w.ino != st.Ino || d.parent != nil && (below.kind != isDir || below.isLink() || d.parent.watch == nil):
		t.ignore(d)
	default:
		w.era, w.under = t.watcher.era, nil
		if d.parent != nil {
			w.under = d.parent.watch
		}
	}
}

// sound reports whether the path of d leads to the inode that is watched, provided that d.parent was checked.
func (t *Table) sound(d *dir) bool {
	w := d.watch
	return w != nil && d.there && w.era == t.watcher.era && d.parent != nil && d.parent.there && w.under == d.parent.watch && w.under != nil
}

// heard reports whether the kernel has reported all changes of names in d since d was last checked, provided that its path
// still leads to what st describes.
func (d *dir) heard(era uint64, st *stamp.Stamp) bool {
	w := d.watch
	return w != nil && w.era == era && w.dev == st.Dev && w.ino == st.Ino && d.st.Mode == st.Mode
}

// refresh makes the names in d valid for this generation, all others of which are as they were.
func (t *Table) refresh(d *dir) {
	if w := d.watch; w != nil && len(w.stale) > 0 {
		for _, e := range w.stale {
			e.gen.Store(0)
			t.look(e)
			d.loose = slices.DeleteFunc(d.loose, func(o *entry) bool { return o == e })
			if e.isLink() {
				d.loose = append(d.loose, e)
			}
		}
		w.stale = nil
	}
	for _, e := range d.loose {
		t.look(e)
	}
}
