package privatetree

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxOpenDirs bounds the descriptors that are kept for a job's directories: the headers of a compile alternate
// between fewer.
const maxOpenDirs = 32

// job records what the caller has done for one job.
type job struct {
	dirs    map[uint64]*dir     // by inode number
	spelled map[string]*dir     // by the name used, with a trailing slash
	open    []*dir              // those with a descriptor
	opened  map[uint64]struct{} // inode numbers of results
}

// dir is a directory that the job uses.
type dir struct {
	name  string              // canonical: without links
	fd    int                 // O_PATH; -1: none, or closed in favour of another
	s     *standing           // nil: it does not stand
	names map[string]struct{} // entries that the caller has made
}

func (j *job) begin() {
	j.dirs, j.spelled, j.opened = map[uint64]*dir{}, map[string]*dir{}, map[uint64]struct{}{}
}

// end forgets the job.
func (j *job) end() {
	j.closeDirs()
	clear(j.dirs)
	clear(j.spelled)
	clear(j.opened)
}

func (j *job) closeDirs() {
	for i, d := range j.open {
		unix.Close(d.fd)
		d.fd, j.open[i] = -1, nil
	}
	j.open = j.open[:0]
}

// standing returns the job's record of a directory that stands.
func (j *job) standing(s *standing) *dir {
	d := j.dirs[s.ino]
	if d == nil {
		d = &dir{name: s.abs(), fd: -1, s: s, names: map[string]struct{}{}}
		j.dirs[s.ino] = d
	}
	return d
}

// jobDir returns the job's record of a directory.
func (t *Tree) jobDir(ino uint64, name func() string) *dir {
	d := t.job.dirs[ino]
	if d == nil {
		d = &dir{name: name(), fd: -1, s: t.byIno[ino], names: map[string]struct{}{}}
		t.job.dirs[ino] = d
	}
	return d
}

// entry returns a descriptor, and from there the name of an entry of a directory that t.dir has returned.
func (t *Tree) entry(d *dir, base string) (fd int, name string) {
	if d.fd >= 0 {
		return d.fd, base
	}
	return t.root, d.s.at(base)
}

// made records that the caller has made an entry of a directory.
func (t *Tree) made(d *dir, base string) {
	d.names[base] = struct{}{}
	if d.s != nil {
		t.touch(d.s)
	}
}

// enter records where a lookup has ended, with its descriptor.
func (j *job) enter(name string, l *lookup) (*dir, error) {
	d := l.base
	if n := len(l.way); n > 0 {
		d = l.t.jobDir(l.way[n-1].ino, func() string { return l.canonical(n) })
	} else if d == nil {
		d = l.t.jobDir(l.t.standing.ino, func() string { return "/" })
	}
	j.spelled[name] = d
	if d.fd >= 0 { // known under another name
		return d, nil
	}
	fd, err := l.take()
	if err != nil {
		return nil, err
	}
	if len(j.open) == maxOpenDirs {
		j.closeDirs()
	}
	d.fd = fd
	j.open = append(j.open, d)
	return d, nil
}

// split splits a name after its last slash.
func split(name string) (in, base string, err error) {
	i := strings.LastIndexByte(name, '/') + 1
	in, base = name[:i], name[i:]
	if in == "" || base == "" || base == "." || base == ".." {
		return "", "", fs.ErrInvalid
	}
	return in, base, nil
}

// Mkdirs makes a directory and all its parents. In a/../b both a and b are made; symbolic links count as the
// kernel follows them.
func (t *Tree) Mkdirs(name string) error {
	if name == "" {
		return fs.ErrInvalid
	}
	if s := t.at(name + "/"); s != nil {
		if s.above == nil { // else Unexpected looks at it in any case
			t.job.standing(s)
		}
		return nil
	}
	_, err := t.dir(name+"/", true)
	if errors.Is(err, ErrTaken) { // one that the toolchain shows whole is fine
		if fd, ferr := t.find(name + "/."); ferr == nil {
			unix.Close(fd)
			return nil
		}
	}
	if err != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return nil
}

// own gives a new file to the user that runs the commands.
func (t *Tree) own(fd int, base string) error {
	if t.uid == 0 && t.gid == 0 {
		return nil
	}
	return unix.Fchownat(fd, base, t.uid, t.gid, unix.AT_SYMLINK_NOFOLLOW)
}

// Write makes a file, and its directory if need be. mtime is in nanoseconds since 1970. Modes are 0644, 0755 if
// exec, and 0755 for directories, less the caller's umask. A file of the toolchain with the same content will do;
// one with other content is ErrTaken.
func (t *Tree) Write(name string, content []byte, mtime int64, exec bool) error {
	if err := t.write(name, content, mtime, exec); err != nil {
		return &fs.PathError{Op: "write", Path: name, Err: err}
	}
	return nil
}

func (t *Tree) write(name string, content []byte, mtime int64, exec bool) error {
	in, base, err := split(name)
	if err != nil {
		return err
	}
	d, err := t.dir(in, true)
	if errors.Is(err, ErrTaken) {
		return t.same(name, content)
	}
	if err != nil {
		return err
	}
	mode := uint32(0o644)
	if exec {
		mode = 0o755
	}
	dir, at := t.entry(d, base)
	fd, err := openat(dir, at, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW, mode)
	if errors.Is(err, unix.EEXIST) {
		if _, ours := d.names[base]; ours {
			return fs.ErrExist
		}
		return t.same(name, content)
	}
	if err != nil {
		return err
	}
	t.made(d, base)
	if err = fill(fd, content); err == nil {
		err = setTime(fd, mtime)
	}
	if err == nil && (t.uid != 0 || t.gid != 0) {
		err = unix.Fchown(fd, t.uid, t.gid)
	}
	if cerr := unix.Close(fd); err == nil {
		err = cerr
	}
	return err
}

// fill writes all of content.
func fill(fd int, content []byte) error {
	for len(content) > 0 {
		n, err := unix.Write(fd, content)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		content = content[max(n, 0):]
	}
	return nil
}

// setTime sets a file's times of access and modification, in nanoseconds since 1970.
func setTime(fd int, ns int64) error {
	at := unix.NsecToTimespec(ns)
	times := [2]unix.Timespec{at, at}
	// The library's function takes only names; an empty name means the descriptor's file.
	_, _, errno := unix.Syscall6(unix.SYS_UTIMENSAT, uintptr(fd), 0, uintptr(unsafe.Pointer(&times)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// same returns nil if the toolchain has a file with that name and content.
func (t *Tree) same(name string, content []byte) error {
	fd, err := t.find(name)
	if err != nil {
		return ErrTaken
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	st, err := f.Stat()
	if err != nil || !st.Mode().IsRegular() || st.Size() != int64(len(content)) {
		return ErrTaken
	}
	buf := make([]byte, 64<<10)
	for len(content) > 0 {
		n, err := f.Read(buf)
		if err != nil || n > len(content) || !bytes.Equal(buf[:n], content[:n]) {
			return ErrTaken
		}
		content = content[n:]
	}
	return nil
}

// Hardlink makes name the same file as old, which Write has made.
func (t *Tree) Hardlink(old, name string) error {
	if err := t.hardlink(old, name); err != nil {
		return &os.LinkError{Op: "link", Old: old, New: name, Err: err}
	}
	return nil
}

func (t *Tree) hardlink(old, name string) error {
	in, base, err := split(old)
	if err != nil {
		return err
	}
	from, err := t.dir(in, false)
	if err == nil {
		err = t.link(from, base, name)
	}
	if !errors.Is(err, ErrTaken) && !errors.Is(err, unix.EEXIST) {
		return err
	}
	// Another spelling of the same file, or one of the two belongs to the toolchain.
	fd, err := t.find(old)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var a, b unix.Stat_t
	if err := unix.Fstat(fd, &a); err != nil {
		return err
	}
	if to, err := t.find(name); err == nil {
		err := unix.Fstat(to, &b)
		unix.Close(to)
		if err == nil && a.Ino == b.Ino && a.Dev == b.Dev {
			return nil
		}
	}
	content := make([]byte, a.Size)
	if _, err := unix.Pread(fd, content, 0); err != nil {
		return err
	}
	return t.write(name, content, a.Mtim.Nano(), a.Mode&0o100 != 0)
}

// link links an entry of a directory to name.
func (t *Tree) link(from *dir, base, name string) error {
	in, toBase, err := split(name)
	if err != nil {
		return err
	}
	fd, at := t.entry(from, base)
	if from.fd >= 0 { // the next step may close it
		if fd, err = unix.FcntlInt(uintptr(from.fd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			return err
		}
		defer unix.Close(fd)
	}
	to, err := t.dir(in, true)
	if err != nil {
		return err
	}
	toFD, toAt := t.entry(to, toBase)
	if err := unix.Linkat(fd, at, toFD, toAt, 0); err != nil {
		return takenError(err)
	}
	t.made(to, toBase)
	return nil
}

// Symlink makes a symbolic link. One that already exists must be the same.
func (t *Tree) Symlink(target, name string) error {
	if err := t.symlink(target, name); err != nil {
		return &os.LinkError{Op: "symlink", Old: target, New: name, Err: err}
	}
	return nil
}

func (t *Tree) symlink(target, name string) error {
	in, base, err := split(name)
	if err != nil {
		return err
	}
	d, err := t.dir(in, true)
	if err != nil {
		return err
	}
	fd, at := t.entry(d, base)
	err = unix.Symlinkat(target, fd, at)
	if errors.Is(err, unix.EEXIST) {
		there, err := readLink(fd, at)
		// One of the toolchain's may be spelled differently.
		if err != nil || there != target && path.Join(in, there) != target {
			return ErrTaken
		}
		return nil
	}
	if err != nil {
		return takenError(err)
	}
	t.made(d, base)
	return t.own(fd, at)
}

// Open opens a file that a command has made. It must be a regular file, neither a link to one nor a file of the
// toolchain. The error for a missing one is fs.ErrNotExist. An opened file is not Unexpected.
func (t *Tree) Open(name string) (File, error) {
	f, err := t.openFile(name)
	if err != nil {
		return File{FD: -1}, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f, nil
}

func (t *Tree) openFile(name string) (File, error) {
	in, base, err := split(name)
	if err != nil {
		return File{}, err
	}
	d, err := t.dir(in, false)
	if err != nil {
		return File{}, err
	}
	from, at := t.entry(d, base)
	fd, err := openat(from, at, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return File{}, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		switch {
		case st.Dev != t.dev, t.marks.of(&st, t.dev) != "":
			err = ErrTaken
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = fmt.Errorf("not a regular file: %w", fs.ErrInvalid)
		}
	}
	if err != nil {
		unix.Close(fd)
		return File{}, err
	}
	t.job.opened[st.Ino] = struct{}{}
	return File{FD: fd, Size: st.Size, Exec: st.Mode&0o100 != 0}, nil
}

// Stat returns what commands see of a file: one that the caller has made, or one of the toolchain.
func (t *Tree) Stat(name string) (st unix.Stat_t, err error) {
	fd, err := t.find(name)
	if err == nil {
		err = unix.Fstat(fd, &st)
		unix.Close(fd)
	}
	if err != nil {
		return st, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return st, nil
}

// Remove removes a regular file that a command has made. Anything else in its place stays.
func (t *Tree) Remove(name string) { t.unlink(name, unix.S_IFREG) }

// unlink removes a file of one type. What cannot be removed now is left to Clean.
func (t *Tree) unlink(name string, typ uint32) {
	in, base, err := split(name)
	if err != nil {
		return
	}
	d, err := t.dir(in, false)
	if err != nil {
		return
	}
	var st unix.Stat_t
	fd, at := t.entry(d, base)
	if unix.Fstatat(fd, at, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == typ && unix.Unlinkat(fd, at, 0) == nil && d.s != nil {
		t.touch(d.s)
	}
}
