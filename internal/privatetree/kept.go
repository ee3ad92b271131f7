package privatetree

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// Kept identifies a file that stays in a tree from one job to the next.
type Kept struct {
	Sum   [sha256.Size]byte // of its content
	MTime int64             // nanoseconds since 1970
	Exec  bool
}

// kept holds everything that a tree keeps between jobs beyond its initial content: files, and the
// directories that lead to them. Commands can read the files but not write them. If commands have a user of
// their own, the files belong to another one. Otherwise they are read-only, and a change of that updates
// their time, by which Clean notices it.
type kept struct {
	most  int64 // bytes that they may take
	bytes int64
	files map[string]*keptFile
	bases map[string]int       // how many of the files have this last component
	dirs  map[string]*standing // all that stand without the toolchain's need, by their names in standing
	// spelled has the directories that each name given to KeepDir needs: where it leads, and what it has before "..".
	spelled map[string][]*standing
}

// keptFile is one kept file.
type keptFile struct {
	Kept
	in    *standing // its directory; nil: the toolchain has this file with this content
	base  string
	st    fileStamp
	bytes int64
	fixed bool // its stamp is older than the clock from which the next one would be taken
}

// fileStamp shows whether a file was changed.
type fileStamp struct {
	ino          uint64
	size         int64
	mode         uint32
	nlink        uint64
	mtime, ctime unix.Timespec
}

func stampOf(st *unix.Stat_t) fileStamp {
	return fileStamp{st.Ino, st.Size, st.Mode, uint64(st.Nlink), st.Mtim, st.Ctim} //nolint:unconvert // other widths elsewhere
}

// keptOverhead is roughly what a file takes besides its pages, in bytes: its inode, its entry, and its record here.
const keptOverhead = 2 << 10

// mostKept bounds how many files a tree keeps.
const mostKept = 1 << 14

func (k *kept) begin(most int64) {
	*k = kept{most: most, files: map[string]*keptFile{}, bases: map[string]int{}, dirs: map[string]*standing{}, spelled: map[string][]*standing{}}
}

// Keeps returns what the tree keeps under that name.
func (t *Tree) Keeps(name string) (Kept, bool) {
	f := t.kept.files[name]
	if f == nil {
		return Kept{}, false
	}
	return f.Kept, true
}

// KeepsBase reports whether the tree keeps a file whose name ends in the component base.
func (t *Tree) KeepsBase(base string) bool { return t.kept.bases[base] > 0 }

// KeptBytes returns how many bytes the tree's kept files take.
func (t *Tree) KeptBytes() int64 { return t.kept.bytes }

// Keep makes a file as Write does, but read-only, and keeps it until Retain drops it. If that is impossible, the file
// is written for this job only: the tree already keeps enough, or the name leads through a symbolic link.
func (t *Tree) Keep(name string, k Kept, content []byte) error {
	if err := t.keep(name, k, content); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func (t *Tree) keep(name string, k Kept, content []byte) error {
	in, base, err := split(name)
	if err != nil {
		return err
	}
	if t.kept.bytes+pages(int64(len(content))) > t.kept.most || len(t.kept.files) >= mostKept {
		return t.write(name, content, k.MTime, k.Exec)
	}
	if in == "/" || path.Clean(in) == in[:len(in)-1] {
		if s := t.stand(in); s != nil {
			err := t.keepIn(s, name, base, k, content)
			if err != nil {
				_ = t.prune(s) // if it was made for this file, it is empty
			}
			return err
		}
	}
	d, err := t.dir(in, true)
	if errors.Is(err, ErrTaken) {
		return t.keepSame(name, base, k, content)
	}
	if err != nil {
		return err
	}
	if strings.TrimSuffix(d.name, "/")+"/" != in {
		return t.write(name, content, k.MTime, k.Exec)
	}
	fd, at := t.entry(d, base)
	st, err := makeKept(fd, at, k, content)
	if errors.Is(err, unix.EEXIST) {
		if _, ours := d.names[base]; ours {
			return fs.ErrExist
		}
		return t.keepSame(name, base, k, content)
	}
	t.made(d, base)
	if err != nil {
		return err
	}
	s, err := t.standingAt(d.name)
	if err != nil {
		return err
	}
	t.keepThere(s, name, base, k, st)
	return nil
}

// keepIn makes a kept file in a directory that stands.
func (t *Tree) keepIn(s *standing, name, base string, k Kept, content []byte) error {
	st, err := makeKept(t.root, s.at(base), k, content)
	switch {
	case err == nil:
		t.keepThere(s, name, base, k, st)
	case !errors.Is(err, unix.EEXIST):
		t.made(t.job.standing(s), base) // for Clean
	case t.kept.files[name] != nil:
		return fs.ErrExist
	default:
		if d := t.job.dirs[s.ino]; d != nil {
			if _, ours := d.names[base]; ours {
				return fs.ErrExist
			}
		}
		return t.keepSame(name, base, k, content)
	}
	return err
}

// makeKept makes a kept file, an entry of a directory.
func makeKept(in int, at string, k Kept, content []byte) (st unix.Stat_t, err error) {
	mode := uint32(0o444)
	if k.Exec {
		mode = 0o555
	}
	fd, err := openat(in, at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	if err != nil {
		return st, err
	}
	err = errors.Join(fill(fd, content), setTime(fd, k.MTime))
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil && st.Mode&0o777 != mode { // the caller's umask
		if err = unix.Fchmod(fd, mode); err == nil {
			err = unix.Fstat(fd, &st)
		}
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	if err != nil {
		_ = unix.Unlinkat(in, at, 0) // else Clean will do it
	}
	return st, err
}

// keepThere records a kept file that was made in a directory that stands.
func (t *Tree) keepThere(s *standing, name, base string, k Kept, st unix.Stat_t) {
	s.entries[base] = st.Ino
	s.holds++
	t.touch(s)
	t.kept.add(name, &keptFile{Kept: k, in: s, base: base, st: stampOf(&st), bytes: pages(st.Size)})
}

// pages returns what a file of n bytes takes, in bytes.
func pages(n int64) int64 { return (n+4095)&^4095 + keptOverhead }

// keepSame records that the toolchain has a file with that name and content.
func (t *Tree) keepSame(name, base string, k Kept, content []byte) error {
	if err := t.same(name, content); err != nil {
		return err
	}
	t.kept.add(name, &keptFile{Kept: k, base: base, bytes: keptOverhead})
	return nil
}

func (k *kept) add(name string, f *keptFile) {
	k.files[name] = f
	k.bases[f.base]++
	k.bytes += f.bytes
}

func (k *kept) drop(name string, f *keptFile) {
	delete(k.files, name)
	k.bytes -= f.bytes
	if k.bases[f.base]--; k.bases[f.base] == 0 {
		delete(k.bases, f.base)
	}
}

// standingAt returns the directory with a canonical name as one that stays. The caller has made it for this job, or
// it existed before.
func (t *Tree) standingAt(name string) (*standing, error) {
	rel := cmp.Or(strings.Trim(name, "/"), ".")
	if rel == "." {
		return t.standing, nil
	}
	if s := t.kept.dirs[rel]; s != nil {
		return s, nil
	}
	above, err := t.standingAt(path.Dir("/" + rel))
	if err != nil {
		return nil, err
	}
	for _, s := range above.dirs {
		if s.name == rel {
			return s, nil
		}
	}
	fd, err := openDir(t.root, rel)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	s := newStanding(rel, &st)
	s.attrs = attrs(fd)
	t.adopt(above, s, &st)
	return s, nil
}

// KeepDir makes a directory as Mkdirs does, and keeps it until Retain drops it. If that is impossible, it is made for this job
// only: the tree already keeps enough, or the name leads through a symbolic link.
func (t *Tree) KeepDir(name string) error {
	if !t.sure || name == "" || name[0] != '/' {
		return t.Mkdirs(name)
	}
	way, ok := t.kept.spelled[name]
	if !ok {
		if way = t.standAlong(name); way == nil {
			return t.Mkdirs(name)
		}
		t.kept.spelled[name] = way
		for _, s := range way {
			s.pins++
		}
	}
	for _, s := range way {
		if s.above == nil { // else Unexpected looks at it in any case
			t.job.standing(s)
		}
	}
	return nil
}

// Retain drops the kept files for which want returns false, and the kept directories for which wantDir does, with those
// that lead only to them. It is called before anything of the next job is made.
func (t *Tree) Retain(want func(name string, k Kept) bool, wantDir func(name string) bool) error {
	for name, way := range t.kept.spelled {
		if wantDir(name) {
			continue
		}
		delete(t.kept.spelled, name)
		for _, s := range way {
			s.pins--
		}
	}
	for name, f := range t.kept.files {
		if want(name, f.Kept) {
			continue
		}
		if err := t.discard(name, f); err != nil {
			return fmt.Errorf("%w: drop a kept file: %w", ErrSpoiled, err)
		}
	}
	for _, s := range t.kept.dirs {
		if err := t.prune(s); err != nil {
			return fmt.Errorf("%w: drop a kept directory: %w", ErrSpoiled, err)
		}
	}
	return nil
}

// discard removes a kept file, and the directories that lead only to it.
func (t *Tree) discard(name string, f *keptFile) error {
	t.kept.drop(name, f)
	s := f.in
	if s == nil {
		return nil
	}
	if err := unix.Unlinkat(t.root, s.at(f.base), 0); err != nil {
		return err
	}
	delete(s.entries, f.base)
	s.holds--
	t.touch(s)
	return t.prune(s)
}

// checkKept checks, after a job's commands, that the kept files are unchanged. Their directories have been checked.
// No compiler changes a header.
func (t *Tree) checkKept() error {
	if t.uid != 0 {
		return nil // commands cannot change them
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		return err
	}
	for name, f := range t.kept.files {
		if f.in == nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(t.root, name[1:], &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("look at %s: %w", name, err)
		}
		if stampOf(&st) != f.st {
			return fmt.Errorf("%s was changed", name)
		}
		if f.fixed {
			continue
		}
		// Perhaps made in the clock tick in which the command began: a change could then have the same stamp.
		if !t.tells(f.st.ctime, t.began) {
			if err := t.compare(name, f); err != nil {
				return err
			}
		}
		f.fixed = t.tells(f.st.ctime, now)
	}
	return nil
}

// compare checks a kept file's content against its sum.
func (t *Tree) compare(name string, f *keptFile) error {
	fd, err := openat(t.root, name[1:], unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	r := os.NewFile(uintptr(fd), name)
	defer r.Close()
	b := make([]byte, f.st.size+1)
	n, err := r.ReadAt(b, 0)
	if err == nil || int64(n) != f.st.size || sha256.Sum256(b[:n]) != f.Sum {
		return fmt.Errorf("%s has another content", name)
	}
	return nil
}

// before reports whether a is earlier than b.
func before(a, b unix.Timespec) bool { return a.Sec < b.Sec || a.Sec == b.Sec && a.Nsec < b.Nsec }
