package privatetree

import (
	"errors"
	"io/fs"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// lookup follows a name through the tree, one component at a time, as the kernel does for a process in the
// tree: a link to /etc/passwd leads to the tree's own. It never looks up "..", so nothing that happens
// meanwhile leads it outside.
//
// openat2 with RESOLVE_IN_ROOT would do it in one call, but is not available to a service of systemd that has
// RestrictSUIDSGID or DynamicUser.
type lookup struct {
	t     *Tree
	base  *dir    // where the walk began; nil: at the root
	way   []frame // from there to the current directory
	hops  int     // symbolic links that may still be followed
	make  bool    // create missing directories
	cross bool    // mounts may be entered
}

// frame is a directory on the way.
type frame struct {
	fd   int // O_PATH
	ino  uint64
	name string // in its parent
}

// maxName bounds a name, in bytes, as the kernel does: a longer one did not come from the kernel, and links
// may make it grow.
const maxName = unix.PathMax

// top returns the current directory.
func (l *lookup) top() int {
	switch {
	case len(l.way) > 0:
		return l.way[len(l.way)-1].fd
	case l.base != nil:
		return l.base.fd
	}
	return l.t.root
}

// take ends the walk and returns a descriptor of the current directory.
func (l *lookup) take() (int, error) {
	n := len(l.way)
	if n == 0 {
		return unix.FcntlInt(uintptr(l.top()), unix.F_DUPFD_CLOEXEC, 0)
	}
	fd := l.way[n-1].fd
	l.way = l.way[:n-1]
	l.end()
	return fd, nil
}

// back drops the last n directories of the way.
func (l *lookup) back(n int) {
	for ; n > 0; n-- {
		unix.Close(l.way[len(l.way)-1].fd)
		l.way = l.way[:len(l.way)-1]
	}
}

func (l *lookup) end() { l.back(len(l.way)) }

// restart begins again at the root.
func (l *lookup) restart() {
	l.end()
	l.base = nil
}

// canonical returns the name of the first n directories of the way.
func (l *lookup) canonical(n int) string {
	var b strings.Builder
	if l.base != nil && l.base.name != "/" {
		b.WriteString(l.base.name)
	}
	for _, f := range l.way[:n] {
		b.WriteByte('/')
		b.WriteString(f.name)
	}
	if b.Len() == 0 {
		return "/"
	}
	return b.String()
}

// follow walks along name. If that ends at something other than a directory, the walk stays in the directory before
// it, and file is the name of the entry there.
func (l *lookup) follow(name string) (file string, err error) {
	for rest := name; rest != ""; {
		var c string
		c, rest, _ = strings.Cut(rest, "/")
		switch c {
		case "", ".":
			continue
		case "..":
			switch {
			case len(l.way) > 0:
				l.back(1)
			case l.base != nil:
				rest = path.Dir(l.base.name) + "/" + rest
				l.restart()
			}
			continue
		}
		target, kind, err := l.step(c)
		switch {
		case err != nil:
			return "", err
		case kind == unix.S_IFLNK:
			if l.hops--; l.hops < 0 {
				return "", unix.ELOOP
			}
			if target[0] == '/' {
				l.restart()
			}
			if rest = target + "/" + rest; len(rest) > maxName {
				return "", unix.ENAMETOOLONG
			}
		case kind != unix.S_IFDIR:
			if strings.Trim(rest, "/") != "" {
				return "", unix.ENOTDIR
			}
			return c, nil
		}
	}
	return "", nil
}

// step goes to the entry c of the current directory if that is a directory. It returns the entry's kind and, for a
// link, the target.
func (l *lookup) step(c string) (target string, kind uint32, err error) {
	if len(l.way) >= maxDepth {
		return "", 0, unix.ENAMETOOLONG
	}
	const flags = unix.O_PATH | unix.O_NOFOLLOW
	fd, err := openat(l.top(), c, flags, 0)
	made := errors.Is(err, unix.ENOENT) && l.make
	if made {
		if err = l.mkdir(c); err == nil {
			fd, err = openat(l.top(), c, flags, 0)
		}
	}
	if err != nil {
		return "", 0, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil {
		if there := l.t.marks.of(&st, l.t.dev); there != "" && l.cross {
			unix.Close(fd)
			if fd, err = openat(unix.AT_FDCWD, there, flags, 0); err != nil {
				return "", 0, err
			}
			err = unix.Fstat(fd, &st)
		} else if (there != "" || st.Dev != l.t.dev) && !l.cross {
			err = unix.EXDEV
		}
	}
	kind = st.Mode & unix.S_IFMT
	if err == nil && kind == unix.S_IFDIR {
		l.way = append(l.way, frame{fd, st.Ino, c})
		if made {
			l.t.jobDir(st.Ino, func() string { return l.canonical(len(l.way)) })
		}
		return "", kind, nil
	}
	if err == nil && kind == unix.S_IFLNK {
		target, err = readLink(fd, "")
	}
	unix.Close(fd)
	return target, kind, err
}

// mkdir makes an entry of the current directory.
func (l *lookup) mkdir(c string) error {
	d := l.base
	if d != nil && len(l.way)+strings.Count(d.name, "/") >= maxDepth {
		return unix.ENAMETOOLONG
	}
	if err := unix.Mkdirat(l.top(), c, 0o755); err != nil {
		return err
	}
	if n := len(l.way); n > 0 || d == nil {
		ino := l.t.standing.ino
		if n > 0 {
			ino = l.way[n-1].ino
		}
		d = l.t.jobDir(ino, func() string { return l.canonical(n) })
	}
	l.t.made(d, c)
	return l.t.own(l.top(), c)
}

// readLink reads a symbolic link of a directory; an empty name means the descriptor's own.
func readLink(fd int, name string) (string, error) {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, name, buf)
	if err == nil && n == 0 {
		err = unix.ENOENT
	}
	return string(buf[:max(n, 0)]), err
}

// dir returns the directory with that name, which ends in a slash, with a descriptor. With make it creates a missing
// one.
func (t *Tree) dir(name string, make bool) (*dir, error) {
	if name == "" || name[0] != '/' {
		return nil, fs.ErrInvalid
	}
	if len(name) > maxName { // before all its prefixes are looked up
		return nil, unix.ENAMETOOLONG
	}
	if s := t.at(name); s != nil {
		return t.job.standing(s), nil
	}
	j := &t.job
	l := lookup{t: t, hops: maxHops, make: make}
	rest := name
	for i := len(name); i > 0; i = strings.LastIndexByte(name[:i-1], '/') + 1 {
		if d := j.spelled[name[:i]]; d != nil && d.fd >= 0 {
			l.base, rest = d, name[i:]
			break
		}
	}
	if l.base != nil && rest == "" {
		return l.base, nil
	}
	defer l.end()
	file, err := l.follow(rest)
	if err == nil && file != "" {
		err = unix.ENOTDIR
	}
	if err != nil {
		return nil, takenError(err)
	}
	return j.enter(name, &l)
}

// find opens for reading what a name leads to. It follows links, and opens the toolchain's files too.
func (t *Tree) find(name string) (int, error) {
	if len(name) > maxName {
		return -1, unix.ENAMETOOLONG
	}
	l := lookup{t: t, hops: maxHops, cross: true}
	defer l.end()
	file, err := l.follow(name)
	if err != nil {
		return -1, err
	}
	if file == "" {
		file = "."
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY
	fd, err := openat(l.top(), file, flags, 0)
	var st unix.Stat_t
	if err != nil || t.marks == nil || unix.Fstat(fd, &st) != nil {
		return fd, err
	}
	if there := t.marks.of(&st, t.dev); there != "" {
		unix.Close(fd)
		return openat(unix.AT_FDCWD, there, flags, 0)
	}
	return fd, nil
}

// openat opens an entry of a directory.
func openat(fd int, base string, flags int, mode uint32) (int, error) {
	for {
		f, err := unix.Openat(fd, base, flags|unix.O_CLOEXEC, mode)
		if !errors.Is(err, unix.EINTR) {
			return f, err
		}
	}
}

// takenError returns ErrTaken for what the kernel reports where the toolchain has something.
func takenError(err error) error {
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EROFS) || errors.Is(err, unix.ENOTDIR) {
		return ErrTaken
	}
	return err
}
