//go:build amd64 || arm64

package privatetree

import (
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// answer does what a call asks for, and lets the command go on. An excess means that it has not: the call is one that no compiler makes,
// or one to which there is no answer.
func (n *names) answer(c *sandbox.Call) sandbox.Excess {
	modern(c)
	n.caller = c.PID
	f := answers[c.NR]
	if f == nil {
		return sandbox.ExcessDenied
	}
	value, no := f(n, c)
	switch no {
	case answered:
		return sandbox.ExcessNone
	case unanswerable:
		return sandbox.ExcessNames
	}
	// The caller may be gone, and no other error is possible.
	_ = n.hold.Answer(c, value, no)
	return sandbox.ExcessNone
}

// answered, in place of an error of a call, says that the command goes on already.
const answered = unanswerable + 1

// answers has what does each call. Older calls are turned into these (modern).
var answers = map[uintptr]func(*names, *sandbox.Call) (int64, unix.Errno){
	unix.SYS_OPENAT:     (*names).open,
	sysFstatat:          func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.statInto(c, 1, 3, 2) },
	unix.SYS_STATX:      func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.statInto(c, 1, 2, 4) },
	unix.SYS_FACCESSAT:  func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.access(c, 0) },
	unix.SYS_FACCESSAT2: func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.access(c, c.Args[3]) },
	unix.SYS_READLINKAT: (*names).link,
	unix.SYS_MKDIRAT:    (*names).mkdir,
	unix.SYS_UNLINKAT:   (*names).unlink,
	unix.SYS_RENAMEAT:   func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.two(c, unix.SYS_RENAMEAT2, 0) },
	unix.SYS_RENAMEAT2:  func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.two(c, unix.SYS_RENAMEAT2, c.Args[4]) },
	unix.SYS_LINKAT:     func(n *names, c *sandbox.Call) (int64, unix.Errno) { return n.two(c, unix.SYS_LINKAT, 0) },
	unix.SYS_SYMLINKAT:  (*names).symlink,
	unix.SYS_GETCWD:     (*names).getcwd,
	unix.SYS_STATFS:     (*names).statfs,
	unix.SYS_CHDIR:      (*names).chdir,
	unix.SYS_FCHDIR:     (*names).fchdirTo,
	unix.SYS_MMAP:       (*names).library,
}

// named looks up the name that is argument i of a call, in the directory of the argument before.
func (n *names) named(c *sandbox.Call, i int, follow bool) (s spot, missing bool, no unix.Errno) {
	name, no := n.read(c, c.Args[i], n.text[:])
	if no != 0 {
		return s, false, no
	}
	return n.find(c, c.Args[i-1], name, follow)
}

// existing looks up a name of what has to exist.
func (n *names) existing(c *sandbox.Call, dirfd uint64, name string, follow bool) (s spot, no unix.Errno) {
	s, missing, no := n.find(c, dirfd, name, follow)
	if no == 0 && missing {
		no = unix.ENOENT
	}
	return s, no
}

// here is the working directory, as calls have it.
const here = 1<<64 + unix.AT_FDCWD

func (n *names) open(c *sandbox.Call) (int64, unix.Errno) {
	flags, mode := c.Args[2], c.Args[3]
	if flags&unix.O_CREAT != 0 && mode&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return 0, unix.EPERM
	}
	follow := flags&unix.O_NOFOLLOW == 0 && flags&(unix.O_CREAT|unix.O_EXCL) != unix.O_CREAT|unix.O_EXCL
	s, missing, no := n.named(c, 1, follow)
	switch {
	case no != 0:
		return 0, no
	case missing && (flags&unix.O_CREAT == 0 || flags&unix.O_DIRECTORY != 0):
		return 0, unix.ENOENT
	case s.host && !device(s.name) && (missing || flags&unix.O_ACCMODE != unix.O_RDONLY || flags&unix.O_TRUNC != 0):
		return 0, unix.EROFS
	case flags&unix.O_ACCMODE == unix.O_RDONLY && flags&unix.O_TRUNC != 0: // as the filter has it
		return 0, unix.EPERM
	}
	dir, name := n.at(s)
	fd, no := n.openat(dir, name, flags|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NOCTTY, mode)
	if no != 0 {
		return 0, no
	}
	if flags&unix.O_ACCMODE != unix.O_RDONLY && !s.host && len(n.wrote) < mostWrote {
		n.wrote[s.name] = struct{}{}
	}
	_ = n.hold.Give(c, fd, flags&unix.O_CLOEXEC != 0) // the caller may be gone
	unix.Close(fd)
	return 0, answered
}

// device reports whether a name of the host is one of those of devices that can be written.
func device(name string) bool {
	return name == "/dev/null" || name == "/dev/zero" || name == "/dev/full"
}

// statInto does a call with its name in argument i, flags and the place of the result in others.
func (n *names) statInto(c *sandbox.Call, i, flags, into int) (int64, unix.Errno) {
	name, no := n.read(c, c.Args[i], n.text[:])
	if no != 0 {
		return 0, no
	}
	if name == "" && c.Args[flags]&unix.AT_EMPTY_PATH != 0 { // of a descriptor
		_ = n.hold.Continue(c)
		return 0, answered
	}
	s, no := n.existing(c, c.Args[0], name, c.Args[flags]&unix.AT_SYMLINK_NOFOLLOW == 0)
	if no != 0 {
		return 0, no
	}
	dir, rel := n.at(s)
	if c.NR == unix.SYS_STATX {
		var st unix.Statx_t
		if _, _, no := unix.RawSyscall6(unix.SYS_STATX, uintptr(dir), n.pointer(rel), uintptr(c.Args[2]|unix.AT_SYMLINK_NOFOLLOW), uintptr(c.Args[3]), uintptr(unsafe.Pointer(&st)), 0); no != 0 {
			return 0, no
		}
		return 0, n.write(c, c.Args[into], unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st)))
	}
	var st unix.Stat_t
	if no := n.stat(dir, rel, &st); no != 0 {
		return 0, no
	}
	return 0, n.write(c, c.Args[into], unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st)))
}

func (n *names) statfs(c *sandbox.Call) (int64, unix.Errno) {
	name, no := n.read(c, c.Args[0], n.text[:])
	if no != 0 {
		return 0, no
	}
	s, no := n.existing(c, here, name, true)
	if no != 0 {
		return 0, no
	}
	dir, rel := n.at(s)
	fd, no := n.openat(dir, rel, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if no != 0 {
		return 0, no
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return 0, unix.EIO
	}
	return 0, n.write(c, c.Args[1], unsafe.Slice((*byte)(unsafe.Pointer(&st)), unsafe.Sizeof(st)))
}

func (n *names) access(c *sandbox.Call, flags uint64) (int64, unix.Errno) {
	s, missing, no := n.named(c, 1, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
	if no == 0 && missing {
		no = unix.ENOENT
	}
	if no != 0 {
		return 0, no
	}
	if mode := c.Args[2]; s.host && !device(s.name) && mode&unix.W_OK != 0 {
		return 0, unix.EROFS
	} else if !s.host && mode&unix.X_OK != 0 { // nothing that a job writes can be executed
		kind, no := n.kind(s)
		if no != 0 {
			return 0, no
		}
		if kind == unix.S_IFREG {
			return 0, unix.EACCES
		}
	}
	dir, rel := n.at(s)
	_, _, no = unix.RawSyscall6(unix.SYS_FACCESSAT, uintptr(dir), n.pointer(rel), uintptr(c.Args[2]), 0, 0, 0)
	return 0, no
}

func (n *names) link(c *sandbox.Call) (int64, unix.Errno) {
	name, no := n.read(c, c.Args[1], n.text[:])
	if no != 0 {
		return 0, no
	}
	if name == "" { // of a descriptor
		_ = n.hold.Continue(c)
		return 0, answered
	}
	s, no := n.existing(c, c.Args[0], name, false)
	if no != 0 {
		return 0, no
	}
	target, no := n.readlink(s)
	if no != 0 {
		return 0, no
	}
	size := int64(int32(c.Args[3]))
	if size <= 0 {
		return 0, unix.EINVAL
	}
	b := n.text[:copy(n.text[:], target)]
	b = b[:min(int64(len(b)), size)]
	return int64(len(b)), n.write(c, c.Args[2], b)
}

// chdir succeeds where it changes nothing, as in clang-tidy. No compile goes elsewhere, and this process could not do it for a command.
func (n *names) chdir(c *sandbox.Call) (int64, unix.Errno) {
	name, no := n.read(c, c.Args[0], n.text[:])
	if no != 0 {
		return 0, no
	}
	s, no := n.existing(c, here, name, true)
	if no == 0 && s.name != n.cwd {
		no = unanswerable
	}
	return 0, no
}

func (n *names) fchdirTo(c *sandbox.Call) (int64, unix.Errno) {
	if dir, no := n.directory(c, int32(c.Args[0])); no != 0 || dir != n.cwd {
		return 0, unanswerable
	}
	return 0, 0
}

// library has a file mapped to be executed, unless it is the job's: the mounts of other trees forbid that. A command that has other threads
// to change the descriptor meanwhile runs what it likes already.
func (n *names) library(c *sandbox.Call) (int64, unix.Errno) {
	link, no := n.readlinkat(n.hold.Int(unix.AT_FDCWD), "/proc/"+strconv.Itoa(c.PID)+"/fd/"+strconv.Itoa(int(int32(c.Args[4]))))
	switch {
	case no == unix.ENOENT:
		return 0, unix.EBADF
	case no != 0:
		return 0, no
	case link == n.bare || strings.HasPrefix(link, n.bare+"/"):
		return 0, unix.EPERM
	}
	_ = n.hold.Continue(c) // the caller may be gone
	return 0, answered
}

func (n *names) getcwd(c *sandbox.Call) (int64, unix.Errno) {
	b := append(n.text[:0], n.cwd...)
	if b = append(b, 0); uint64(len(b)) > c.Args[1] {
		return 0, unix.ERANGE
	}
	return int64(len(b)), n.write(c, c.Args[0], b)
}

// change forgets what is known: a call has changed, or tried to change, what is there.
func (n *names) change(nr uintptr, args ...uintptr) (int64, unix.Errno) {
	clear(n.known)
	var a [6]uintptr
	copy(a[:], args)
	_, _, no := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5])
	return 0, no
}

func (n *names) mkdir(c *sandbox.Call) (int64, unix.Errno) {
	if c.Args[2]&(unix.S_ISUID|unix.S_ISGID) != 0 {
		return 0, unix.EPERM
	}
	s, _, no := n.named(c, 1, false)
	switch {
	case no != 0:
		return 0, no
	case s.host, s.name == "/":
		return 0, n.noRoom(s)
	}
	dir, rel := n.at(s)
	return n.change(unix.SYS_MKDIRAT, uintptr(dir), n.pointer(rel), uintptr(c.Args[2]))
}

func (n *names) unlink(c *sandbox.Call) (int64, unix.Errno) {
	s, _, no := n.named(c, 1, false)
	switch {
	case no != 0:
		return 0, no
	case s.host, s.name == "/":
		return 0, unix.EROFS
	}
	dir, rel := n.at(s)
	return n.change(unix.SYS_UNLINKAT, uintptr(dir), n.pointer(rel), uintptr(c.Args[2]))
}

// noRoom returns why nothing can be made at a spot that the toolchain has.
func (n *names) noRoom(s spot) unix.Errno {
	if _, absent := n.kind(s); absent != 0 {
		return unix.EROFS
	}
	return unix.EEXIST
}

func (n *names) symlink(c *sandbox.Call) (int64, unix.Errno) {
	target, no := n.read(c, c.Args[0], n.more[:])
	if no != 0 {
		return 0, no
	}
	s, _, no := n.named(c, 2, false)
	switch {
	case no != 0:
		return 0, no
	case s.host, s.name == "/":
		return 0, n.noRoom(s)
	}
	dir, rel := n.at(s)
	return n.change(unix.SYS_SYMLINKAT, pointer(n.more[:], target), uintptr(dir), n.pointer(rel))
}

// two does a call with two names, each after its directory.
func (n *names) two(c *sandbox.Call, nr uintptr, flags uint64) (int64, unix.Errno) {
	if nr == unix.SYS_LINKAT && c.Args[4] != 0 {
		return 0, unix.EINVAL
	}
	from, _, no := n.named(c, 1, false)
	if no != 0 {
		return 0, no
	}
	to, _, no := n.named(c, 3, false)
	switch {
	case no != 0:
		return 0, no
	case from.host != to.host:
		return 0, unix.EXDEV
	case from.host, from.name == "/", to.name == "/":
		return 0, unix.EROFS
	}
	dir, rel := n.at(from)
	dir2, rel2 := n.at(to)
	return n.change(nr, uintptr(dir), pointer(n.more[:], rel), uintptr(dir2), n.pointer(rel2), uintptr(flags))
}
