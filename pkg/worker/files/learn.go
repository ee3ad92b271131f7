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

// The headers that jobs name lie mostly where the compilers look by themselves, and this machine has had them all along. So the
// daemon reads them while it has nothing else to do: a job that names one of them then costs a look at whether the
// file is still the one that was read, and neither its sum nor a copy.
//
// All tenants share these contents, as they would share the files. This tells none of them about another: what is learnt
// follows from the compilers and from this machine's files alone, which any user here may read, never from
// what jobs have named or brought; it stays whether it is used or not; and what a tenant has brought is
// kept for it as before, also where it is equal.

func wholePages(n int64) int64 { page := int64(os.Getpagesize()); return (n + page - 1) / page * page }

// What is learnt is bounded, the files nearest to where a compiler looks first: those of libstdc++, libc and gcc itself that
// nearly all sources include.
const (
	learnFiles = 2048
	learnDirs  = 1024
	learnBytes = 12 << 20
	learnPart  = 8         // of the store's memory, at most
	learnFile  = 256 << 10 // bytes of one: hardly any header that is included everywhere is longer
	learnTime  = 10 * time.Second
)

// It is done a little at a time, where no job is under way, so that nobody waits for it.
const (
	learnRest  = 100 * time.Millisecond // before it begins, and before a look whether jobs have ended
	learnSlice = 5 * time.Millisecond   // without a pause
	learnPause = 5 * time.Millisecond
	learnAgain = time.Hour // packages are upgraded meanwhile
)

// Learner reads this machine's headers in advance. Its fields are set before Run.
type Learner struct {
	Machine *Machine
	Log     *slog.Logger
	// Busy reports whether a job is under way: then the learner waits.
	Busy func() bool
	// Compilers returns those that are offered now. Ask asks one of them a question about itself.
	Compilers func() []toolchain.Toolchain
	Ask       func(ctx context.Context, tc *toolchain.Toolchain, words ...string) (string, error)
	// Rescue is deferred: it recovers from a panic.
	Rescue func()

	again  chan struct{} // there are other compilers
	store  *store.Store  // set by Run
	memory int64         // bytes that it may take
}

// NewLearner makes l ready.
func NewLearner(l Learner) *Learner {
	l.again = make(chan struct{}, 1)
	return &l
}

// Run keeps what is known in step with the compilers that are offered, until ctx ends. While these are being
// identified there is a lesson for each list of them that has other directories: the first job may come meanwhile.
// What is learnt lies in a store that may take memory bytes.
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

// Soon has Run look at the headers of the compilers that are offered now. It may be called before Run.
func (k *Learner) Soon() {
	select {
	case k.again <- struct{}{}:
	default: // it is going to be
	}
}

// teach is one lesson, of the directories that it returns. There is none if they are the last one's, unless it is due.
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

// lesson is one look at all headers.
type lesson struct {
	k       *Learner
	ctx     context.Context // ends it
	own     reader
	trusted map[uint64]bool        // by device: whether its file system is faithful
	dirs    map[string]bool        // those that were looked at
	names   []string               // of files that are worth knowing, those first that jobs rather name
	files   map[string]stamp.Stamp // their states
	bytes   int64                  // that they have, in whole pages
	most    int64                  // that they may have
	began   time.Time              // after the last pause
	spent   time.Duration          // without pauses
}

func (k *Learner) newLesson(ctx context.Context, most int64) *lesson {
	return &lesson{k: k, ctx: ctx, trusted: make(map[uint64]bool), dirs: make(map[string]bool), files: make(map[string]stamp.Stamp), most: most}
}

// learn has the machine know what lies in lists of directories and below.
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
	l.k.Machine.learnt.forget(l.files) // before others take its room
	for _, name := range l.names {
		if !l.read(name) {
			return
		}
	}
}

// wait waits for so long, and on until no job is under way. It reports false where the server ends.
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

// goOn is called before each step. It pauses where that is due, and reports whether the lesson goes on.
func (l *lesson) goOn() bool {
	took := time.Since(l.began)
	busy := l.k.Busy()
	if took < learnSlice && !busy {
		return l.ctx.Err() == nil
	}
	l.spent += took
	return l.spent < learnTime && l.wait(learnPause)
}

// roots are the directories where compilers that are offered look for headers by themselves, as they say, without
// links: a list for one compiler of each family, that with the shortest name, as most jobs' is. To ask all of
// them, and to read what only they have, would cost a daemon that is just started more than jobs gain. searched has what
// each has said.
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

// searched asks a compiler where it looks for headers of C++, or if it has no such language, of C.
func (k *Learner) searched(ctx context.Context, tc *toolchain.Toolchain) []string {
	for _, language := range []string{"c++", "c"} {
		text, err := k.Ask(ctx, tc, driver.SearchWords(language)...)
		if dirs := driver.ParseSearch(text); err == nil && dirs != nil {
			return dirs
		}
	}
	return nil
}

// sharedDir is where the headers of all packages lie: what is below comes last.
const sharedDir = "/usr/include"

// walk finds what is worth knowing in directories and below, those further down later. It returns directories that come
// last, and whether there may be more.
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
			list, _ := os.ReadDir(dir) // what it lists in spite of an error is there
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

// note notes a file, if it can be learnt. It reports whether there may be more.
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

// read learns a file, unless it is known. It reports whether there is room for more.
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

// trust reports whether the stamp of an open file tells of changes.
func (l *lesson) trust(fd int, at *stamp.Stamp) bool {
	good, known := l.trusted[at.Dev]
	if !known {
		var fs unix.Statfs_t
		good = unix.Fstatfs(fd, &fs) == nil && stamp.Faithful(&fs)
		l.trusted[at.Dev] = good
	}
	return good
}
