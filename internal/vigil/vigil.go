// Package vigil tells what happens to names in directories while something runs, also what is undone before it ends:
// a file that comes and goes leaves no trace in a directory that is only looked at before and after.
//
// The kernel tells (inotify). What it tells is exact as far as it goes: of each change of a directory's names before
// the system call that makes it returns, by whatever path, and of each file that was open for writing when it is
// closed. It does not tell what other machines do on a network file system.
package vigil

import (
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

const (
	// mostWatched bounds the directories that are watched, each of which keeps an inode in the kernel's memory, about 1 KiB.
	mostWatched = 16 << 10
	// shareWatched is what part of the user's watches a Watcher takes: editors and build tools want some as well.
	shareWatched = 8
	// mostEvents bounds what is remembered while a Vigil lasts. Beyond that, none of them knows anything.
	mostEvents = 128 << 10

	comesAndGoes = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO
	watchFor     = comesAndGoes | unix.IN_ATTRIB | unix.IN_CLOSE_WRITE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF | unix.IN_ONLYDIR
)

// Event is something that happened to a name in a directory, as one of the Vigil's paths spells that.
type Event struct {
	Dir, Name string // Name is empty if it is the directory itself
	What      What
}

// What is what happens to a name.
type What byte

// Everything that is told.
const (
	Created What = 'C'
	Moved   What = 'M' // something was moved there
	Wrote   What = 'W' // a file that was open for writing was closed
	Gone    What = 'G' // it was removed, or moved away
	Changed What = 'A' // its attributes, or anything else
)

func whatOf(mask uint32) What {
	switch {
	case mask&unix.IN_CREATE != 0:
		return Created
	case mask&unix.IN_MOVED_TO != 0:
		return Moved
	case mask&unix.IN_CLOSE_WRITE != 0:
		return Wrote
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		return Gone
	}
	return Changed
}

// Watcher watches directories for Vigils. Its zero value is ready for use. It is safe for concurrent use.
type Watcher struct {
	mu     sync.Mutex // guards everything below
	opened bool
	kernel *Kernel
	most   int // watches; 0: there are none to be had

	dirs   map[string]int32   // watches by path; they stay when a Vigil ends, as the next one will want them
	paths  map[int32][]string // the same, by watch
	active map[*Vigil]struct{}
	log    []Event // since the first active Vigil began
	first  uint64  // number of log[0]
}

// Vigil watches some directories from Begin to End.
type Vigil struct {
	w    *Watcher
	from uint64              // number of its first event
	on   map[string]struct{} // its directories, and those that lead there
	lost bool                // the kernel has told too much, or a directory leads elsewhere
}

// Begin watches directories, named by absolute paths, and what leads to each of them: a directory that does not exist is watched
// for. What the caller looks at after Begin is as it was then, or End tells of it. Begin returns nil if the kernel does not tell
// of all of them.
func (w *Watcher) Begin(dirs []string) *Vigil {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.opened {
		w.open()
	}
	if w.most == 0 {
		return nil
	}
	w.listen()
	v := &Vigil{w: w, on: make(map[string]struct{}, 2*len(dirs))}
	for _, d := range dirs {
		for { // as it is spelt: with a link before "..", it would lead elsewhere when cleaned
			if _, known := v.on[d]; known {
				break
			}
			v.on[d] = struct{}{}
			i := strings.LastIndexByte(d, '/')
			if i < 0 || d == "/" {
				break
			}
			d = d[:max(i, 1)]
		}
	}
	all := make([]string, 0, len(v.on))
	for d := range v.on {
		all = append(all, d)
	}
	slices.Sort(all) // what leads to a directory before itself, so that nothing comes into being in between
	if len(all) > w.most {
		return nil
	}
	if len(w.dirs)+len(all) > w.most {
		w.reset() // of what was watched for earlier ones; those that go on know nothing now
	}
	for _, d := range all {
		if !w.watch(d) {
			return nil
		}
	}
	v.from = w.first + uint64(len(w.log))
	w.active[v] = struct{}{}
	return v
}

// End ends v, and returns what has happened in its directories since Begin. ok is false if that is not known, or if one of the
// directories itself, or what leads there, was changed.
func (v *Vigil) End() (events []Event, ok bool) {
	w := v.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.listen()
	ok = !v.lost
	for _, e := range w.log[v.from-w.first:] {
		if _, its := v.on[e.Dir]; !its {
			continue
		}
		if _, itself := v.on[join(e.Dir, e.Name)]; itself && e.What != Wrote {
			ok = false
		}
		events = append(events, e)
	}
	delete(w.active, v)
	if len(w.active) == 0 {
		w.first += uint64(len(w.log))
		w.log = nil
	}
	return events, ok
}

func join(dir, name string) string {
	switch {
	case name == "":
		return dir
	case dir == "/":
		return "/" + name
	}
	return dir + "/" + name
}

// open has the kernel asked. What fails leaves w without watches.
func (w *Watcher) open() {
	w.opened = true
	w.dirs, w.paths, w.active = make(map[string]int32), make(map[int32][]string), make(map[*Vigil]struct{})
	if w.kernel = Open(""); w.kernel != nil {
		w.most = min(mostWatched, w.kernel.Limit/shareWatched)
	}
}

// watch watches a directory, if it exists. It reports whether the kernel tells of what comes and goes there.
func (w *Watcher) watch(dir string) bool {
	if _, known := w.dirs[dir]; known {
		return true
	}
	wd, err := unix.InotifyAddWatch(w.kernel.Events, dir, watchFor)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR:
		return true // the directory above is watched
	default:
		return false
	}
	w.dirs[dir] = int32(wd)
	w.paths[int32(wd)] = append(w.paths[int32(wd)], dir)
	return true
}

// listen takes in what the kernel has told. What comes after a reset is of watches that are no more.
func (w *Watcher) listen() {
	if w.kernel.Listen(w.heed) {
		w.reset()
	}
}

// heed takes in one event.
func (w *Watcher) heed(wd int32, mask uint32, name string) {
	if mask&unix.IN_Q_OVERFLOW != 0 || mask&unix.IN_MOVE_SELF != 0 && len(w.paths[wd]) > 0 {
		w.reset() // of a directory that was moved, whatever is below leads elsewhere
		return
	}
	for _, dir := range w.paths[wd] {
		if len(w.active) > 0 {
			w.log = append(w.log, Event{Dir: dir, Name: name, What: whatOf(mask)})
		}
		below := join(dir, name)
		if _, watched := w.dirs[below]; !watched || name == "" || mask&comesAndGoes == 0 {
			continue
		}
		if mask&unix.IN_DELETE == 0 {
			w.reset() // another directory, or a link to one, took its place
			return
		}
		w.drop(w.dirs[below]) // there is nothing in it any more
	}
	if mask&(unix.IN_IGNORED|unix.IN_DELETE_SELF) != 0 {
		w.drop(wd)
	}
	if len(w.log) > mostEvents {
		w.lose()
	}
}

// drop ends a watch, under all its paths.
func (w *Watcher) drop(wd int32) {
	for _, dir := range w.paths[wd] {
		delete(w.dirs, dir)
	}
	if _, known := w.paths[wd]; known {
		delete(w.paths, wd)
		_, _ = unix.InotifyRmWatch(w.kernel.Events, uint32(wd)) // it may have ended by itself
	}
}

// reset ends all watches, and what Vigils know.
func (w *Watcher) reset() {
	for wd := range w.paths {
		_, _ = unix.InotifyRmWatch(w.kernel.Events, uint32(wd))
	}
	clear(w.paths)
	clear(w.dirs)
	w.lose()
}

// lose has all Vigils know nothing.
func (w *Watcher) lose() {
	for v := range w.active {
		v.lost, v.from = true, w.first+uint64(len(w.log))
	}
	w.first += uint64(len(w.log))
	w.log = nil
	for v := range w.active {
		v.from = w.first
	}
}
