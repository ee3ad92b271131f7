package privatetree

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// maxDepth bounds how deep directories may be nested, as each takes a descriptor of maxOpen while it is examined. No
// build nests deeper.
const maxDepth = 512

// maxRemoved bounds the entries that Clean removes one by one. Removing that many takes about as long as making a new
// tree, 15 ms; and more than that is neither a compile's headers nor its files. The kernel frees those of a tree that
// ends all at once, in a tenth of the time.
const maxRemoved = 4096

// standing is a directory that exists between jobs, as it was when the tree was new.
type standing struct {
	name    string // from the root, without a leading slash; that of the root is "."
	ino     uint64
	mode    uint32
	uid     uint32
	gid     uint32
	attrs   int               // bytes of the names of its extended attributes
	entries map[string]uint64 // inode numbers; under a mount, that of the covered entry
	dirs    []*standing       // those on which nothing is mounted
	above   *standing         // for one that exists only for kept files: its parent; else nil
	holds   int               // number of kept files and such directories in it
	// ctime is when it was last changed, provided that it was examined later than that by the clock of the
	// kernel's stamps: with this stamp it is unchanged. Otherwise zero.
	ctime unix.Timespec
}

// entry is one entry of a directory.
type entry struct {
	name string
	ino  uint64
	typ  byte // unix.DT_...
}

// list reads a whole directory.
func (t *Tree) list(fd int) ([]entry, error) {
	if t.dirents == nil {
		t.dirents = make([]byte, 32<<10)
	}
	var list []entry
	for {
		n, err := unix.Getdents(fd, t.dirents)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return list, err
		}
		// inode number 8, offset 8, length 2, type 1, name with a final NUL (getdents64(2)).
		for b := t.dirents[:n]; len(b) > 19; {
			size := int(binary.NativeEndian.Uint16(b[16:]))
			name := b[19:size]
			name = name[:slices.Index(name, 0)]
			if s := string(name); s != "." && s != ".." {
				list = append(list, entry{s, binary.NativeEndian.Uint64(b), b[18]})
			}
			b = b[size:]
		}
	}
}

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
	t.byIno = map[uint64]*standing{}
	t.standing, err = t.learn(fd, ".")
	return err
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
	s := newStanding(fd, name, &st)
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
	t.byIno[s.ino] = s
	return s, nil
}

func newStanding(fd int, name string, st *unix.Stat_t) *standing {
	s := &standing{name: name, ino: st.Ino, mode: st.Mode, uid: st.Uid, gid: st.Gid, entries: map[string]uint64{}}
	if n, err := unix.Flistxattr(fd, nil); err == nil {
		s.attrs = n
	}
	return s
}

// openDir opens an entry of a directory for reading if it is a directory itself, not a link.
func openDir(fd int, name string) (int, error) {
	return openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// Clean removes everything that a job has made or left, except kept files, wherever it is. No command may
// be running. It returns ErrSpoiled when a command has changed what was there before, which no compiler
// does, or has made what cannot be removed; ErrLittered where there is too much of it (but not in a bare
// tree, whose directory remains the caller's); and ErrGone where an Outcome has already reported what ended
// the tree's process.
func (t *Tree) Clean() error {
	if t.gone {
		return ErrGone
	}
	if t.busy {
		return fmt.Errorf("%w: a command was not waited for", ErrSpoiled)
	}
	t.job.end()
	t.left = maxRemoved
	if t.bare != "" {
		t.left = math.MaxInt // it would not be removed otherwise
	}
	err := t.restore(t.standing)
	if errors.Is(err, ErrLittered) {
		return err
	}
	if err == nil && t.began != (unix.Timespec{}) {
		err = t.checkKept()
	}
	t.began = unix.Timespec{}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSpoiled, err)
	}
	return nil
}

// restore removes what a standing directory, and those below it, did not contain. The directories that lead
// there have been checked.
func (t *Tree) restore(s *standing) error {
	var st unix.Stat_t
	if err := unix.Fstatat(t.root, s.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("look at %s: %w", s.name, err)
	}
	if st.Ino != s.ino || st.Dev != t.dev || st.Mode != s.mode || st.Uid != s.uid || st.Gid != s.gid {
		return fmt.Errorf("%s is another directory than before", s.name)
	}
	// A change of its entries, owner, mode or attributes would have updated it. Most directories are the toolchain's,
	// and unchanged.
	if st.Ctim != s.ctime {
		if err := t.empty(s); err != nil {
			return err
		}
	}
	for _, d := range s.dirs {
		if err := t.restore(d); err != nil {
			return err
		}
	}
	return nil
}

// empty removes what one standing directory did not contain.
func (t *Tree) empty(s *standing) error {
	fd, err := openDir(t.root, s.name)
	if err != nil {
		return fmt.Errorf("open %s: %w", s.name, err)
	}
	defer unix.Close(fd)
	// A default ACL, for example, would apply to the next job's files.
	if n, err := unix.Flistxattr(fd, nil); err == nil && n != s.attrs {
		return fmt.Errorf("%s has got other attributes", s.name)
	}
	list, err := t.list(fd)
	if err != nil {
		return err
	}
	there := 0
	for i := range list {
		e := &list[i]
		ino, ok := s.entries[e.name]
		if !ok {
			if err := t.remove(fd, e, 1); err != nil {
				return fmt.Errorf("remove %s: %w", e.name, err)
			}
			continue
		}
		if e.ino != ino {
			return fmt.Errorf("%s is not what it was", e.name)
		}
		there++
	}
	if there != len(s.entries) {
		return fmt.Errorf("%s lacks what it had", s.name)
	}
	return s.settle(fd)
}

// settle records when a directory was last changed. The kernel's clock for this stands still for some milliseconds: a
// stamp of the present may also be that of the next change.
func (s *standing) settle(fd int) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	s.ctime = unix.Timespec{}
	if before(st.Ctim, now) {
		s.ctime = st.Ctim
	}
	return nil
}

// remove removes an entry with everything in it.
func (t *Tree) remove(fd int, e *entry, depth int) error {
	if t.left--; t.left < 0 {
		return ErrLittered
	}
	if e.typ != unix.DT_DIR {
		return unix.Unlinkat(fd, e.name, 0)
	}
	if depth > maxDepth {
		return unix.ENAMETOOLONG
	}
	sub, err := openDir(fd, e.name)
	if errors.Is(err, unix.EACCES) { // made by a command that removed its own rights
		if err = unix.Fchmodat(fd, e.name, 0o700, 0); err == nil {
			sub, err = openDir(fd, e.name)
		}
	}
	if err != nil {
		return err
	}
	defer unix.Close(sub)
	var st unix.Stat_t
	if err := unix.Fstat(sub, &st); err != nil {
		return err
	}
	if st.Dev != t.dev {
		return unix.EXDEV // a command has moved a mount point
	}
	list, err := t.list(sub)
	if err != nil {
		return err
	}
	for i := range list {
		err := t.remove(sub, &list[i], depth+1)
		if errors.Is(err, unix.EACCES) && unix.Fchmod(sub, 0o700) == nil {
			err = t.remove(sub, &list[i], depth+1)
		}
		if err != nil {
			return err
		}
	}
	return unix.Unlinkat(fd, e.name, unix.AT_REMOVEDIR)
}

// Unexpected lists what is in the job's directories without having been put there by the caller or by New,
// and without having been opened by Open: what a command made unasked. The job's directories are those
// named to a method of t, and those in which it made files; /tmp is one of them only in that case. Names of
// directories end in a slash. A directory that replaces one that the caller had made is listed as a whole.
// check is called before each directory; its error ends the search.
func (t *Tree) Unexpected(check func() error) ([]string, error) {
	var found []string
	for ino, d := range t.job.dirs {
		if err := check(); err != nil {
			return nil, err
		}
		list, err := t.listJob(d)
		if errors.Is(err, unix.ENOENT) {
			continue // a command has removed it
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", d.name, err)
		}
		for i := range list {
			e := &list[i]
			_, made := d.names[e.name]
			if made && e.typ == unix.DT_DIR {
				_, made = t.job.dirs[e.ino] // otherwise it has been replaced
			}
			_, opened := t.job.opened[e.ino]
			if made || opened || t.stands(ino, e) {
				continue
			}
			name := path.Join(d.name, e.name)
			if e.typ == unix.DT_DIR {
				name += "/"
			}
			found = append(found, name)
		}
	}
	for _, s := range t.kept.dirs {
		if t.job.dirs[s.ino] != nil {
			continue
		}
		if err := check(); err != nil {
			return nil, err
		}
		more, err := t.unforeseen(s)
		if err != nil {
			return nil, err
		}
		found = append(found, more...)
	}
	slices.Sort(found)
	return found, nil
}

// unforeseen lists what was put into a directory that is there for kept files.
func (t *Tree) unforeseen(s *standing) (found []string, err error) {
	var st unix.Stat_t
	if err := unix.Fstatat(t.root, s.name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil || st.Ino != s.ino || st.Ctim == s.ctime {
		return nil, nil // unchanged; or missing, which Clean will report
	}
	fd, err := openDir(t.root, s.name)
	if err != nil {
		return nil, fmt.Errorf("read /%s: %w", s.name, err)
	}
	defer unix.Close(fd)
	list, err := t.list(fd)
	for i := range list {
		e := &list[i]
		_, opened := t.job.opened[e.ino]
		if _, used := t.job.dirs[e.ino]; used || opened || t.stands(s.ino, e) {
			continue
		}
		name := "/" + path.Join(s.name, e.name)
		if e.typ == unix.DT_DIR {
			name += "/"
		}
		found = append(found, name)
	}
	return found, err
}

// listJob returns the entries of a directory of the job.
func (t *Tree) listJob(d *dir) ([]entry, error) {
	var fd int
	var err error
	if d.fd >= 0 {
		fd, err = openDir(d.fd, ".")
	} else {
		fd, err = t.find(d.name)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	return t.list(fd)
}

// stands reports whether an entry of a directory exists between jobs.
func (t *Tree) stands(dir uint64, e *entry) bool {
	s := t.byIno[dir]
	if s == nil {
		return false
	}
	ino, ok := s.entries[e.name]
	return ok && ino == e.ino
}
