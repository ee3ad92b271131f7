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
	defer t.job.end()
	t.left = maxRemoved
	if t.bare != "" {
		t.left = math.MaxInt // it would not be removed otherwise
	}
	if t.sure || !t.orderly() { // it is as the caller has left it, whoever that is
		t.surveyed = false
	}
	t.sure = false
	err := t.survey()
	if err == nil {
		err = t.restore(t.standing)
	}
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
	t.sure = t.orderly()
	return nil
}

// restore removes what a standing directory, and those below it, did not contain. They are in their places.
func (t *Tree) restore(s *standing) error {
	d := t.job.dirs[s.ino]
	if s.changed || d != nil && len(d.names) > 0 {
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
	return t.settle(s, fd)
}

// settle records when a directory was last changed, if that will tell the next change. Otherwise it is looked at again
// before the next command.
func (t *Tree) settle(s *standing, fd int) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if s.ctime = st.Ctim; !t.tells(st.Ctim, now) {
		t.touch(s)
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
		if d.s != nil && !t.differs(d.s) {
			continue
		}
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
		found = t.unforeseen(found, ino, d, list)
	}
	for _, s := range t.kept.dirs {
		if t.job.dirs[s.ino] != nil || !t.differs(s) || s.seen != t.surveys {
			continue
		}
		if err := check(); err != nil {
			return nil, err
		}
		list, err := t.listStanding(s)
		if err != nil {
			return nil, fmt.Errorf("read /%s: %w", s.name, err)
		}
		found = t.unforeseen(found, s.ino, &dir{name: s.abs()}, list)
	}
	slices.Sort(found)
	return found, nil
}

// unforeseen adds to found what is in a directory without having been put there.
func (t *Tree) unforeseen(found []string, ino uint64, d *dir, list []entry) []string {
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
	return found
}

// listJob returns the entries of a directory of the job.
func (t *Tree) listJob(d *dir) ([]entry, error) {
	if d.s != nil && d.s.seen == t.surveys {
		return t.listStanding(d.s)
	}
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

// listStanding returns the entries of a directory that stands in its place.
func (t *Tree) listStanding(s *standing) ([]entry, error) {
	fd, err := openDir(t.root, s.name)
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
