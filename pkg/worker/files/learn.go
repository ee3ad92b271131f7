package files

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/stamp"
	"github.com/rdistcc/rdistcc/internal/store"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
)

// Most headers that jobs name are where the compilers look by default, and this machine has had them all
// along. The daemon therefore reads them while it is idle. A job that names one of them then costs only a
// check that the file has not changed since, neither a checksum nor a copy.
//
// All tenants share these contents, as they would share the files. This reveals nothing about other tenants.
// What is learnt follows only from the compilers and from files of this machine that any user may read, never
// from what jobs have named or brought. It stays whether it is used or not. What a tenant has brought is kept
// for that tenant as before, even if the content is the same.

// wholePages returns n bytes rounded up to whole pages.
func wholePages(n int64) int64 { page := int64(os.Getpagesize()); return (n + page - 1) / page * page }

// Bounds of what is learnt. Files nearest to where a compiler looks first are preferred: those of libstdc++,
// libc and gcc itself, which nearly all sources include.
const (
	learnFiles = 2048
	learnDirs  = 1024
	learnBytes = 12 << 20
	learnPart  = 8                // at most one eighth of the store's memory
	learnFile  = 256 << 10        // bytes of one file; hardly any header that is included everywhere is longer
	learnTime  = 10 * time.Second // of a lesson, without its pauses
)

// Learning proceeds in short slices, and only while no job is under way, so that no job waits for it.
const (
	learnRest  = 100 * time.Millisecond // before a lesson, and between checks whether the jobs have ended
	learnSlice = 5 * time.Millisecond   // of work without a pause
	learnPause = 5 * time.Millisecond   // between slices
	learnAgain = time.Hour              // between lessons: packages may be upgraded meanwhile
)

// Learner reads this machine's headers in advance. Its fields are set before Run.
type Learner struct {
	Machine *Machine
	Log     *slog.Logger
	// Busy reports whether a job is under way. The learner waits while one is.
	Busy func() bool
	// Compilers returns the compilers that are offered now.
	Compilers func() []toolchain.Toolchain
	// Ask runs a compiler with words and returns what it prints about itself.
	Ask func(ctx context.Context, tc *toolchain.Toolchain, words ...string) (string, error)
	// Rescue is deferred, and recovers from a panic.
	Rescue func()

	again  chan struct{} // signals that other compilers may be offered
	store  *store.Store  // set by Run
	memory int64         // bytes that the store may take
}

// NewLearner returns a copy of l that is ready to Run.
func NewLearner(l Learner) *Learner {
	l.again = make(chan struct{}, 1)
	return &l
}

// Run keeps what is known in step with the compilers that are offered, until ctx ends. While compilers are
// still being identified, there is a lesson for each list of them that searches other directories, because
// the first job may come meanwhile. What is learnt is kept in a store that may take memory bytes.
func (k *Learner) Run(ctx context.Context, in *store.Store, memory int64) {
	k.store, k.memory = in, memory
	searched := make(map[unit.ToolchainID][]string)
	var last [][]string
	for {
		again := time.NewTimer(learnAgain)
		due := false
		select {
		case <-ctx.Done():
			again.Stop()
			return
		case <-k.again:
		case <-again.C:
			due = true
		}
		again.Stop()
		last = k.teach(ctx, searched, last, due)
	}
}

// Soon makes Run look at the headers of the compilers that are offered now. It may be called before Run.
func (k *Learner) Soon() {
	select {
	case k.again <- struct{}{}:
	default: // one is pending
	}
}

// teach gives one lesson on the directories that compilers search, and returns them. It skips the lesson if
// they are those of the last one, unless due is set.
func (k *Learner) teach(ctx context.Context, searched map[unit.ToolchainID][]string, last [][]string, due bool) (dirs [][]string) {
	defer k.Rescue()
	l := k.newLesson(ctx, min(learnBytes, k.memory/learnPart))
	if !l.wait(learnRest) {
		return last
	}
	if dirs = l.roots(searched); slices.EqualFunc(dirs, last, slices.Equal) && !due {
		return dirs
	}
	began := time.Now()
	l.learn(dirs)
	k.Log.Debug("own headers are known", "files", k.Machine.Known(), "compilers", len(dirs), "after", time.Since(began).Round(time.Millisecond))
	return dirs
}

// lesson is one pass over all headers.
type lesson struct {
	k       *Learner
	ctx     context.Context // ends the lesson
	own     reader
	trusted map[uint64]bool        // by device: whether its file system is faithful
	dirs    map[string]bool        // directories that were visited
	names   []string               // files that are worth knowing, those that jobs are more likely to name first
	files   map[string]stamp.Stamp // their states, by name
	bytes   int64                  // their size together, in whole pages
	most    int64                  // bounds bytes
	began   time.Time              // end of the last pause
	spent   time.Duration          // work so far, without pauses
}

func (k *Learner) newLesson(ctx context.Context, most int64) *lesson {
	return &lesson{k: k, ctx: ctx, trusted: make(map[uint64]bool), dirs: make(map[string]bool), files: make(map[string]stamp.Stamp), most: most}
}

// learn makes the machine know the headers in and below the directories of each list.
func (l *lesson) learn(lists [][]string) {
	var last []string
	more := true
	for _, dirs := range lists {
		if more {
			var later []string
			later, more = l.walk(dirs)
			last = append(last, later...)
		}
	}
	if more {
		l.walk(last)
	}
	l.k.Machine.learnt.forget(l.files) // first, to make room for new ones
	for _, name := range l.names {
		if !l.read(name) {
			return
		}
	}
}

// wait waits for pause, and then until no job is under way. It reports false if the lesson has to end.
func (l *lesson) wait(pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		select {
		case <-l.ctx.Done():
			return false
		case <-t.C:
		}
		if !l.k.Busy() {
			l.began = time.Now()
			return true
		}
		t.Reset(learnRest)
	}
}

// goOn is called before each step. It pauses if that is due, and reports whether the lesson goes on.
func (l *lesson) goOn() bool {
	took := time.Since(l.began)
	busy := l.k.Busy()
	if took < learnSlice && !busy {
		return l.ctx.Err() == nil
	}
	l.spent += took
	return l.spent < learnTime && l.wait(learnPause)
}

// roots returns the directories in which the offered compilers say that they look for headers by default,
// with symlinks resolved: one list per compiler family, from the compiler with the shortest name, which most
// jobs use. Asking all compilers, and reading headers that only some of them use, would cost a daemon that
// has just started more than jobs gain. searched caches the answers.
func (l *lesson) roots(searched map[unit.ToolchainID][]string) (lists [][]string) {
	asked := make(map[string]bool)
	compilers := slices.Clone(l.k.Compilers())
	slices.SortStableFunc(compilers, func(a, b toolchain.Toolchain) int {
		return cmp.Compare(len(filepath.Base(a.Exec)), len(filepath.Base(b.Exec)))
	})
	for _, tc := range compilers {
		if asked[tc.Family] || !l.goOn() {
			continue
		}
		asked[tc.Family] = true
		list, known := searched[tc.ID]
		if !known {
			list = l.k.searched(l.ctx, &tc)
			searched[tc.ID] = list
		}
		var dirs []string
		for _, dir := range list {
			if dir, err := filepath.EvalSymlinks(dir); err == nil {
				dirs = append(dirs, dir)
			}
		}
		lists = append(lists, dirs)
	}
	return lists
}

// searched asks a compiler where it looks for headers of C++ or, if it knows no C++, of C. It returns nil if
// the compiler does not say.
func (k *Learner) searched(ctx context.Context, tc *toolchain.Toolchain) []string {
	for _, language := range []string{"c++", "c"} {
		text, err := k.Ask(ctx, tc, driver.SearchWords(language)...)
		if dirs := driver.ParseSearch(text); err == nil && dirs != nil {
			return dirs
		}
	}
	return nil
}

// sharedDir is the directory for the headers of all packages. Its subdirectories come last.
const sharedDir = "/usr/include"

// walk notes the files worth knowing in and below dirs, level by level. It returns the directories that
// should come last, and whether there is room for more.
func (l *lesson) walk(dirs []string) (last []string, more bool) {
	for len(dirs) > 0 {
		var below []string
		for _, dir := range dirs {
			if l.dirs[dir] || !unit.IsSystemFile(dir+"/x") || !l.own.passable(dir) {
				continue
			}
			if len(l.dirs) >= learnDirs || !l.goOn() {
				return last, false
			}
			l.dirs[dir] = true
			list, _ := os.ReadDir(dir) // entries listed before an error are valid
			for _, e := range list {
				switch name := dir + "/" + e.Name(); {
				case e.IsDir() && dir == sharedDir:
					last = append(last, name)
				case e.IsDir():
					below = append(below, name)
				case e.Type().IsRegular() && !l.note(name):
					return last, false
				}
			}
		}
		dirs = below
	}
	return last, true
}

// note notes a file that can be learnt. It reports whether there is room for more.
func (l *lesson) note(name string) bool {
	if !l.goOn() {
		return false
	}
	fd, st, ok := l.own.open(name)
	if !ok {
		return true
	}
	defer unix.Close(fd)
	at := stamp.Of(&st)
	if at.Size == 0 || at.Size > learnFile || !l.trust(fd, &at) {
		return true
	}
	n := wholePages(at.Size)
	if len(l.names) >= learnFiles || l.bytes+n > l.most {
		return false
	}
	l.bytes += n
	l.names, l.files[name] = append(l.names, name), at
	return true
}

// read learns a file, unless it is known already. It reports whether to go on with the next one.
func (l *lesson) read(name string) bool {
	at := l.files[name]
	if l.k.Machine.learnt.has(name, at) {
		return true
	}
	if !l.goOn() {
		return false
	}
	fd, st, ok := l.own.open(name)
	if !ok {
		return true
	}
	defer unix.Close(fd)
	if stamp.Of(&st) != at || !at.Settled(time.Now().UnixNano()) {
		return true
	}
	text := l.own.read(fd, uint64(at.Size))
	if text == nil || unix.Fstat(fd, &st) != nil || stamp.Of(&st) != at {
		return true // it is being changed
	}
	c := l.k.store.AddCommon(text)
	if c == nil {
		return false
	}
	l.k.Machine.learnt.put(name, &learntFile{at: at, content: c})
	return true
}

// trust reports whether the stamp of an open file reliably changes when the file does.
func (l *lesson) trust(fd int, at *stamp.Stamp) bool {
	good, known := l.trusted[at.Dev]
	if !known {
		var fs unix.Statfs_t
		good = unix.Fstatfs(fd, &fs) == nil && stamp.Faithful(&fs)
		l.trusted[at.Dev] = good
	}
	return good
}
