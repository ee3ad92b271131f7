package privatetree

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// What stands in a tree from one job to the next is known here: directories with their entries. From the end of
// Clean to the start of a command nothing but this package writes to the tree, so what is known holds without a
// look (Tree.sure), and a name that leads only through such directories needs no lookup. After a command, one look
// at each directory tells which ones it has changed (survey): only those are read.

// standing is a directory that exists between jobs, as it is then.
type standing struct {
	name    string // from the root, without a leading slash; that of the root is "."
	key     string // its absolute name, with a slash at the end
	ino     uint64
	mode    uint32
	uid     uint32
	gid     uint32
	attrs   int               // bytes of the names of its extended attributes
	entries map[string]uint64 // inode numbers; under a mount, that of the covered entry
	dirs    []*standing       // those on which nothing is mounted
	above   *standing         // for one that the toolchain does not need: its parent; else nil
	holds   int               // number of kept files and such directories in it
	pins    int               // names given to KeepDir that need it
	// ctime is when it was last changed, provided that every later change has another stamp. Otherwise zero.
	ctime   unix.Timespec
	touched bool // it is in Tree.touched

	// found by a survey
	seen    uint64 // the last survey that has found it in its place
	changed bool   // then, or since by this package
}

// at returns the name of an entry from the root.
func (s *standing) at(base string) string {
	if s.name == "." {
		return base
	}
	return s.name + "/" + base
}

// abs returns its absolute name.
func (s *standing) abs() string { return s.key[:max(1, len(s.key)-1)] }

// snapshot records what a new tree contains.
func (t *Tree) snapshot() error {
	fd, err := openDir(t.root, ".")
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return err
	}
	t.dev = st.Dev
	t.fine = tellsChanges(t.root)
	t.byIno, t.named = map[uint64]*standing{}, map[string]*standing{}
	t.standing, err = t.learn(fd, ".")
	t.sure = err == nil && t.orderly()
	return err
}

// orderly reports whether no process can outlive a command, so that the tree is what Clean has left. A bare tree
// whose calls nobody answers may have none that could kill what leaves its group.
func (t *Tree) orderly() bool { return t.bare == "" || t.marks != nil }

// tellsChanges reports whether a file system gives each change after a look at an inode a stamp of its own, as Linux
// 6.13 and later do. Before that the clock of the stamps stands still for some milliseconds, so two changes within
// one tick have the same stamp.
func tellsChanges(root int) bool {
	const probe = ".probe"
	for range 4 {
		var before, after unix.Timespec
		var st [2]unix.Stat_t
		err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &before)
		if err == nil {
			err = unix.Mkdirat(root, probe, 0o700)
		}
		if err == nil {
			err = unix.Fstatat(root, ".", &st[0], 0)
			err = errors.Join(err, unix.Unlinkat(root, probe, unix.AT_REMOVEDIR), unix.Fstatat(root, ".", &st[1], 0))
		}
		if err == nil {
			err = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &after)
		}
		if err != nil {
			return false
		}
		if before == after {
			return st[0].Ctim != st[1].Ctim
		}
	}
	return false // too busy to tell
}

// learn records what a directory contains, and closes its fd. It returns nil if something is mounted there.
func (t *Tree) learn(fd int, name string) (*standing, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if st.Dev != t.dev {
		return nil, nil
	}
	list, err := t.list(fd)
	if err != nil {
		return nil, err
	}
	s := newStanding(name, &st)
	s.attrs = attrs(fd)
	for _, e := range list {
		s.entries[e.name] = e.ino
		if e.typ != unix.DT_DIR {
			continue
		}
		sub, err := openDir(fd, e.name)
		if err != nil {
			return nil, err
		}
		d, err := t.learn(sub, path.Join(name, e.name))
		if err != nil {
			return nil, err
		}
		if d != nil {
			s.dirs = append(s.dirs, d)
		}
	}
	t.record(s, &st)
	return s, nil
}

func newStanding(name string, st *unix.Stat_t) *standing {
	s := &standing{name: name, key: "/" + name + "/", ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid, entries: map[string]uint64{}}
	if name == "." {
		s.key = "/"
	}
	return s
}

// record makes a directory known by its inode and, unless it stands for one of the host, by its name.
func (t *Tree) record(s *standing, st *unix.Stat_t) {
	t.byIno[s.ino] = s
	t.touch(s)
	if t.orderly() && t.marks.of(st, t.dev) == "" {
		t.named[s.key] = s
	}
}

// at returns the directory with a name, which ends in a slash, if it stands and is in its place, and the name leads
// there without links. Otherwise it returns nil.
func (t *Tree) at(name string) *standing {
	s := t.named[name]
	if s == nil || !t.sure && (t.busy || !t.orderly() || t.survey() != nil) {
		return nil
	}
	return s
}

// stand returns the directory with a name, which ends in a slash and has no other components than names, as one that
// stays from now on, and makes what is missing. It returns nil if that is impossible: something else is in the way,
// there is no room, or a command has run since Clean.
func (t *Tree) stand(name string) *standing {
	if s := t.named[name]; s != nil || !t.sure {
		return s
	}
	i := strings.LastIndexByte(name[:len(name)-1], '/') + 1
	above := t.stand(name[:i])
	if above == nil {
		return nil
	}
	s := t.standBelow(above, name[i:len(name)-1])
	if s == nil {
		_ = t.prune(above) // a directory that was not empty was there before
	}
	return s
}

// standAlong does the same for a name with any components: it returns where it leads, and before that what it has
// before "..".
func (t *Tree) standAlong(name string) (way []*standing) {
	at := t.named["/"]
	for rest := name; rest != "" && at != nil; {
		var c string
		switch c, rest, _ = strings.Cut(rest, "/"); c {
		case "", ".":
		case "..":
			way = append(way, at)
			at = t.named[at.key[:strings.LastIndexByte(at.key[:max(1, len(at.key)-1)], '/')+1]]
		default:
			above := at
			if at = t.named[above.key+c+"/"]; at == nil {
				at = t.standBelow(above, c)
			}
			if at == nil {
				way = append(way, above)
			}
		}
	}
	if at != nil {
		return append(way, at)
	}
	for _, s := range way {
		_ = t.prune(s) // what was not made for this name is not empty
	}
	return nil
}

// standBelow makes a directory that stays, in one that stands.
func (t *Tree) standBelow(above *standing, base string) *standing {
	if t.kept.bytes+keptOverhead > t.kept.most || len(t.kept.dirs) >= mostKept || strings.Count(above.key, "/") >= maxDepth {
		return nil
	}
	name := above.at(base)
	if unix.Mkdirat(t.root, name, 0o755) != nil {
		return nil
	}
	t.touch(above)
	var st unix.Stat_t
	err := t.own(t.root, name)
	if err == nil {
		err = unix.Fstatat(t.root, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil && t.fresh < 0 {
		t.fresh, err = freshAttrs(t.root, name)
	}
	if err != nil {
		t.made(t.job.standing(above), base)
		_ = unix.Unlinkat(t.root, name, unix.AT_REMOVEDIR) // else Clean will do it
		return nil
	}
	s := newStanding(name, &st)
	s.attrs = t.fresh
	t.adopt(above, s, &st)
	return s
}

// adopt makes a directory, which the caller or this package has made in one that stands, stay.
func (t *Tree) adopt(above, s *standing, st *unix.Stat_t) {
	s.above = above
	above.dirs = append(above.dirs, s)
	above.entries[path.Base(s.name)] = s.ino
	above.holds++
	if above.above == nil { // Unexpected looks through the toolchain's directories only if the job uses them
		t.job.standing(above)
	}
	t.touch(above)
	t.record(s, st)
	t.kept.dirs[s.name] = s
	t.kept.bytes += keptOverhead
	if !t.sure {
		t.surveyed = false
	}
}

// freshAttrs returns how many bytes the names of a new directory's extended attributes have: a security module may
// give it some.
func freshAttrs(root int, name string) (int, error) {
	fd, err := openDir(root, name)
	if err != nil {
		return -1, err
	}
	defer unix.Close(fd)
	return attrs(fd), nil
}

// attrs returns how many bytes the names of a file's extended attributes have; 0 on a file system without any.
func attrs(fd int) int {
	n, err := unix.Flistxattr(fd, nil)
	if err != nil {
		return 0
	}
	return n
}

// touch records that this package has changed a directory.
func (t *Tree) touch(s *standing) {
	s.ctime, s.changed = unix.Timespec{}, true
	if !s.touched {
		s.touched = true
		t.touched = append(t.touched, s)
	}
}

// stamp looks at the directories that this package has changed since Clean, before a command starts: as long as they
// have the stamps that they have now, the command has not changed them.
func (t *Tree) stamp() error {
	for _, s := range t.touched {
		s.touched = false
		var st unix.Stat_t
		if t.byIno[s.ino] == s && unix.Fstatat(t.root, s.name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Ino == s.ino && st.Dev == t.dev {
			s.ctime = st.Ctim
		}
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return err
	}
	for _, s := range t.touched {
		if !t.tells(s.ctime, now) {
			s.ctime = unix.Timespec{}
		}
	}
	clear(t.touched)
	t.touched = t.touched[:0]
	return nil
}

// tells reports whether each change after now will have another stamp than ctime, which was looked at before.
func (t *Tree) tells(ctime, now unix.Timespec) bool { return t.fine || before(ctime, now) }

// survey looks at each directory that stands, once after a command. It returns an error if one is not in its place, or
// has another owner or mode.
func (t *Tree) survey() error {
	if !t.surveyed {
		t.surveys++
		t.surveyed, t.displaced = true, t.look(t.standing)
	}
	return t.displaced
}

// look looks at a directory and those below it. The directories that lead there have been looked at.
func (t *Tree) look(s *standing) (err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(t.root, s.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if st.Ino != s.ino || st.Dev != t.dev || st.Mode != s.mode || st.Uid != s.uid || st.Gid != s.gid {
		return fmt.Errorf("%s is another directory than before", s.name)
	}
	// A change of its entries, owner, mode or attributes would have updated its stamp.
	s.seen, s.changed = t.surveys, st.Ctim != s.ctime
	for _, d := range s.dirs {
		if e := t.look(d); err == nil {
			err = e
		}
	}
	return err
}

// differs reports whether a directory that stands may have entries that neither it had nor the caller has made, or is
// not in its place.
func (t *Tree) differs(s *standing) bool {
	if t.sure {
		return false
	}
	_ = t.survey() // Clean will report what is not in its place
	return s.seen != t.surveys || s.changed
}

// prune removes a directory that nothing needs any more, and those that lead only to it.
func (t *Tree) prune(s *standing) error {
	for ; s.above != nil && s.holds == 0 && s.pins == 0; s = s.above {
		if err := unix.Unlinkat(t.root, s.name, unix.AT_REMOVEDIR); err != nil {
			return err
		}
		delete(t.kept.dirs, s.name)
		delete(t.byIno, s.ino)
		delete(t.named, s.key)
		delete(t.job.dirs, s.ino)
		delete(s.above.entries, path.Base(s.name))
		if i := slices.Index(s.above.dirs, s); i >= 0 {
			s.above.dirs = slices.Delete(s.above.dirs, i, i+1)
		}
		s.above.holds--
		t.kept.bytes -= keptOverhead
		t.touch(s.above)
	}
	return nil
}
