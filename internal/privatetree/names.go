//go:build amd64 || arm64

package privatetree

import (
	"errors"
	"path"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/lookups"
	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// names does, for commands of an answered tree, what their calls that name files ask for, on the files that the names are those of in the
// tree. It looks up a name as the kernel would, one component at a time, with the tree's directory as the root, and goes on at the host
// where there is a mark (marks). A command is blocked in its call meanwhile. It never gets to the kernel with a name of its own, so
// nothing that other threads of it do to its memory leads elsewhere; and this thread is under the commands' own Landlock rules and
// has no capabilities, so a fault in here gives no more than they permit.
//
// Calls that execute programs are the kernel's: what may be executed has the same names on the host and in the tree.
type names struct {
	hold  *sandbox.Hold
	root  int // O_PATH
	bare  string
	files map[string]bool // shown of the host
	dirs  map[string]bool

	caller int                 // process whose call is answered
	cwd    string              // of the running command, in the tree
	wrote  map[string]struct{} // what it has opened for writing
	looks  int                 // at what it takes
	known  map[string]looked   // directories, by absolute spelled names that end in a slash
	text   [unix.PathMax]byte
	more   [unix.PathMax]byte // of calls with two names
	out    [unix.PathMax]byte
}

// unanswerable, in place of an error of a call, ends the command.
const unanswerable = unix.Errno(1 << 20)

// mostKnown bounds the directories that are known.
const mostKnown = 1 << 12

// spot is where a name leads: a canonical name in the tree.
type spot struct {
	name string
	host bool // what the host has under that name
}

// looked is what came of looking up a directory.
type looked struct {
	spot
	no unix.Errno
}

func newNames(bare string, files, dirs []string) *names {
	n := &names{bare: bare, files: map[string]bool{}, dirs: map[string]bool{}, known: map[string]looked{}, wrote: map[string]struct{}{}, root: -1}
	for _, name := range files {
		n.files[name] = true
	}
	for _, name := range dirs {
		n.dirs[name] = true
	}
	return n
}

// begin makes n ready to answer, with a descriptor of the tree's directory. It tries what it needs of the kernel.
func (n *names) begin(hold *sandbox.Hold, root int) (err error) {
	n.hold = hold
	if n.root, err = unix.FcntlInt(uintptr(root), unix.F_DUPFD_CLOEXEC, 0); err != nil {
		return err
	}
	return nil
}

// enter makes a directory of the tree the working directory of this process and of the next command.
func (n *names) enter(dir string) error {
	clear(n.known) // the caller has changed what is there
	clear(n.wrote)
	n.looks = 0
	at, _, no := n.walk(spot{name: "/"}, dir+"/", true, new(int))
	if no != 0 {
		return no
	}
	from, rel := n.at(at)
	fd, no := n.openat(from, rel, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if no != 0 {
		return no
	}
	defer unix.Close(fd)
	n.cwd = at.name
	return n.fchdir(fd)
}

// Most looks at what a command takes are at what it has written, as the tree may keep many files. One in lookWhole is at everything.
const (
	lookWhole = 16
	mostWrote = 1 << 10
)

// taken subtracts what the running command has written from the room available. It returns false if it is time to look at everything.
func (n *names) taken(room *int64) bool {
	if n.looks++; n.looks%lookWhole == 0 || len(n.wrote) >= mostWrote {
		return false
	}
	for name := range n.wrote {
		var st unix.Stat_t
		if unix.Lstat(n.bare+name, &st) == nil {
			*room -= st.Blocks * 512
		}
	}
	return true
}

// leave makes the tree's root this process's working directory again, so that the command's can be removed.
func (n *names) leave() { _ = n.fchdir(n.root) }

func (n *names) fchdir(fd int) error {
	if _, _, no := unix.RawSyscall(unix.SYS_FCHDIR, uintptr(n.hold.Int(fd)), 0, 0); no != 0 {
		return no
	}
	return nil
}

// at returns a descriptor, with the key, and a name by which the kernel finds a spot.
func (n *names) at(s spot) (dir int, name string) {
	switch {
	case s.host:
		return n.hold.Int(unix.AT_FDCWD), s.name
	case s.name == "/":
		return n.hold.Int(n.root), "."
	}
	return n.hold.Int(n.root), s.name[1:]
}

// below returns the entry of a directory.
func (n *names) below(s spot, entry string) spot {
	name := s.name + "/" + entry
	if s.name == "/" {
		name = "/" + entry
	}
	return spot{name, s.host || n.files[name] || n.dirs[name]}
}

// above returns the parent of a directory.
func (n *names) above(s spot) spot {
	name := path.Dir(s.name)
	return spot{name, s.host && !n.dirs[s.name] || n.shown(name)}
}

// shown reports whether a name is in a directory shown whole, or is one.
func (n *names) shown(name string) bool {
	for ; len(name) > 1; name = path.Dir(name) {
		if n.dirs[name] {
			return true
		}
	}
	return false
}

// find looks up a name as a command gives it. missing: there is nothing, but its directory exists.
func (n *names) find(c *sandbox.Call, dirfd uint64, name string, follow bool) (s spot, missing bool, no unix.Errno) {
	if name == "" {
		return s, false, unix.ENOENT
	}
	if name[0] != '/' {
		in, no := n.directory(c, int32(dirfd))
		if no != 0 {
			return s, false, no
		}
		if in != "/" {
			in += "/"
		}
		name = in + name
	}
	i := strings.LastIndexByte(name, '/') + 1
	dir, ok := n.known[name[:i]]
	if !ok {
		dir.spot, missing, dir.no = n.walk(spot{name: "/"}, name[:i], true, new(int))
		if missing && i < len(name) {
			dir.no = unix.ENOENT
		}
		if !missing || i < len(name) {
			if len(n.known) == mostKnown {
				clear(n.known)
			}
			n.known[strings.Clone(name[:i])] = dir
		}
	}
	if dir.no != 0 || i == len(name) {
		return dir.spot, missing, dir.no
	}
	return n.walk(dir.spot, name[i:], follow, new(int))
}

// walk follows a name from a directory.
func (n *names) walk(at spot, rest string, follow bool, hops *int) (s spot, missing bool, no unix.Errno) {
	for {
		rest = strings.TrimLeft(rest, "/")
		if rest == "" {
			return at, false, 0
		}
		entry, more, slash := strings.Cut(rest, "/")
		rest = more
		switch {
		case entry == ".":
			continue
		case entry == "..":
			at = n.above(at)
			continue
		case len(entry) > unix.NAME_MAX:
			return at, false, unix.ENAMETOOLONG
		}
		next := n.below(at, entry)
		if len(next.name) >= unix.PathMax { // longer than what the kernel takes in one piece
			return at, false, unix.ENAMETOOLONG
		}
		last := strings.Trim(rest, "/") == ""
		if last && !slash && !follow {
			return next, false, 0
		}
		switch kind, no := n.kind(next); {
		case no == unix.ENOENT && last:
			return next, true, 0
		case no != 0:
			return next, false, no
		case kind == unix.S_IFLNK:
			if *hops++; *hops > maxHops {
				return next, false, unix.ELOOP
			}
			target, no := n.readlink(next)
			if no != 0 {
				return next, false, no
			}
			if target[0] == '/' {
				at = spot{name: "/"}
			}
			if slash {
				target += "/" + rest
			}
			if rest = target; len(rest) > maxName {
				return next, false, unix.ENAMETOOLONG
			}
		case kind == unix.S_IFDIR:
			at = next
		case !last || slash:
			return next, false, unix.ENOTDIR
		default:
			return next, false, 0
		}
	}
}

// directory returns the name in the tree of the directory that a descriptor of a command is.
func (n *names) directory(c *sandbox.Call, fd int32) (string, unix.Errno) {
	if fd == unix.AT_FDCWD {
		return n.cwd, 0
	}
	link, no := n.readlinkat(n.hold.Int(unix.AT_FDCWD), "/proc/"+strconv.Itoa(c.PID)+"/fd/"+strconv.Itoa(int(fd)))
	switch {
	case no == unix.ENOENT:
		return "", unix.EBADF
	case no != 0:
		return "", no
	case link == n.bare:
		return "/", 0
	case strings.HasPrefix(link, n.bare+"/"):
		return link[len(n.bare):], 0
	case n.shown(link):
		return link, 0
	}
	return "", unix.ENOTDIR
}

// kind returns the type of what is at a spot.
func (n *names) kind(s spot) (uint32, unix.Errno) {
	var st unix.Stat_t
	dir, name := n.at(s)
	no := n.stat(dir, name, &st)
	return st.Mode & unix.S_IFMT, no
}

func (n *names) stat(dir int, name string, st *unix.Stat_t) unix.Errno {
	_, _, no := unix.RawSyscall6(sysFstatat, uintptr(dir), n.pointer(name), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
	return no
}

// pointer returns the address of a name for the kernel, until the next call.
func (n *names) pointer(name string) uintptr {
	return pointer(n.out[:], name)
}

// pointer copies a name into a buffer, which is part of what lives longer than the call, and returns its address.
func pointer(b []byte, name string) uintptr {
	b[copy(b[:len(b)-1], name)] = 0
	return uintptr(unsafe.Pointer(&b[0]))
}

func (n *names) openat(dir int, name string, flags uint64, mode uint64) (int, unix.Errno) {
	fd, _, no := unix.RawSyscall6(unix.SYS_OPENAT, uintptr(dir), n.pointer(name), uintptr(flags), uintptr(mode), 0, 0)
	return int(fd), no
}

func (n *names) readlink(s spot) (string, unix.Errno) {
	if s.name == procDirs[0]+"/exe" || s.name == procDirs[1]+"/exe" {
		return n.readlinkat(n.hold.Int(unix.AT_FDCWD), "/proc/"+strconv.Itoa(n.caller)+"/exe")
	}
	dir, name := n.at(s)
	return n.readlinkat(dir, name)
}

func (n *names) readlinkat(dir int, name string) (string, unix.Errno) {
	var b [unix.PathMax]byte
	k, _, no := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(dir), n.pointer(name), uintptr(unsafe.Pointer(&b)), uintptr(len(b)), 0, 0)
	if no == 0 && k == 0 {
		no = unix.ENOENT
	}
	if no != 0 {
		return "", no
	}
	return string(b[:k]), 0
}

// read returns a name from a command's memory.
func (n *names) read(c *sandbox.Call, at uint64, buf []byte) (string, unix.Errno) {
	name, err := lookups.Name(n.hold.Int(c.PID), at, buf)
	switch {
	case err == nil:
		return name, 0
	case errors.Is(err, unix.ENAMETOOLONG):
		return "", unix.ENAMETOOLONG
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS): // of this process, not of the address
		return "", unanswerable
	}
	return "", unix.EFAULT
}

// write puts b into a command's memory.
func (n *names) write(c *sandbox.Call, at uint64, b []byte) unix.Errno {
	if len(b) == 0 {
		return 0
	}
	if !n.hold.Waits(c) { // its number may be another process's
		return unix.EINTR
	}
	local := unix.Iovec{Base: &b[0]}
	local.SetLen(len(b))
	k, err := unix.ProcessVMWritev(n.hold.Int(c.PID), []unix.Iovec{local}, []unix.RemoteIovec{{Base: uintptr(at), Len: len(b)}}, 0)
	if err != nil || k != len(b) {
		return unix.EFAULT
	}
	return 0
}
