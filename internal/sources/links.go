package sources

import (
	"path"
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/internal/unit"
)

// follow records the symbolic links on the way to the directory dir, so that the tree on the host has them
// too. It returns the directory with links resolved. all is false if one was left out, as the system's own
// may differ on the host.
func (p *pack) follow(dir string) (at string, all bool) {
	if dir == "" || dir[0] != '/' {
		dir = p.o.Cwd + "/" + dir
	}
	all = true
	for word := range strings.SplitSeq(dir, "/") {
		switch word {
		case "", ".":
			continue
		case "..":
			at = at[:max(0, strings.LastIndexByte(at, '/'))]
			continue
		}
		next := at + "/" + word
		p.astray = p.astray || next == "/proc"
		real, known := p.real[next]
		if !known {
			real = next
			var st syscall.Stat_t
			if lstat(next, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
				if real = RealPath(next); real == "" {
					return next, false
				}
				if !SystemLink(next) {
					p.Links = append(p.Links, unit.Link{Name: next, Target: real})
				}
			}
			if p.real == nil {
				p.real = make(map[string]string, 64)
			}
			p.real[next] = real
		}
		all = all && (real == next || !SystemLink(next))
		at = real
	}
	return at, all
}

// SystemLink reports whether name is one of the links that distributions have at the top level.
func SystemLink(name string) bool {
	switch name {
	case "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32":
		return true
	}
	return false
}

// way records the links on the way to a file. A ".." in its name must lead where it does here: after a link
// that the tree on the host lacks it would lead to another file.
func (p *pack) way(name string) error {
	if shared, ok := unit.Shared(name); !ok || shared != name {
		return ErrPaths // as the source spells it, the manager could not follow it
	}
	dir := name[:strings.LastIndexByte(name, '/')+1]
	if _, ok := p.ways[dir]; ok {
		return nil
	}
	_, all := p.follow(dir)
	if p.astray {
		return ErrPaths
	}
	if !all && strings.Contains(dir, "/../") {
		var a, b syscall.Stat_t
		if stat(dir, &a) != nil || stat(path.Clean(dir), &b) != nil || a.Dev != b.Dev || a.Ino != b.Ino {
			return ErrPaths
		}
	}
	if p.ways == nil {
		p.ways = make(map[string]struct{}, 32)
	}
	p.ways[dir] = struct{}{}
	return nil
}

// link records a file that is a link, and returns the file that it leads to, or "".
func (p *pack) link(name string) string {
	real := RealPath(name)
	if real == "" {
		return ""
	}
	dir, _ := p.follow(name[:strings.LastIndexByte(name, '/')+1])
	at := dir + "/" + base(name)
	if _, noted := p.real[at]; !noted {
		p.real[at] = real
		p.Links = append(p.Links, unit.Link{Name: at, Target: real})
	}
	return real
}

// RealPath returns name with links resolved, or "".
func RealPath(name string) string {
	const oPath = 0x200000 // O_PATH, which package syscall lacks
	fd, err := syscall.Open(name, oPath|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	buf := make([]byte, 4096)
	n, err := syscall.Readlink("/proc/self/fd/"+strconv.Itoa(fd), buf)
	if err != nil || n == len(buf) || n == 0 || buf[0] != '/' {
		return ""
	}
	return string(buf[:n])
}

func lstat(name string, st *syscall.Stat_t) error {
	for {
		if err := syscall.Lstat(name, st); err != syscall.EINTR {
			return err
		}
	}
}
