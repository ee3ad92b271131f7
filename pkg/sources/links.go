package sources

import (
	"strconv"
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/job"
)

// follow notes the symbolic links on the way to the directory dir, so that the tree over
// there has them too. Those of the system are not for us to make: the toolchain brings
// those that it needs. It reports whether all links are noted.
func (p *pack) follow(dir string) bool {
	if dir == "" || dir[0] != '/' {
		dir = p.o.Cwd + "/" + dir
	}
	all := true
	at := "" // where we are, without links
	for word := range strings.SplitSeq(dir, "/") {
		switch word {
		case "", ".":
			continue
		case "..":
			at = at[:max(0, strings.LastIndexByte(at, '/'))]
			continue
		}
		next := at + "/" + word
		real, known := p.real[next]
		if !known {
			real = next
			var st syscall.Stat_t
			if lstat(next, &st) == nil && st.Mode&syscall.S_IFMT == syscall.S_IFLNK {
				real = realPath(next)
				if real == "" {
					return false
				}
				if system(next) {
					all = false
				} else {
					p.Links = append(p.Links, job.Link{Name: next, Target: real})
				}
			}
			if p.real == nil {
				p.real = make(map[string]string)
			}
			p.real[next] = real
		}
		at = real
	}
	return all
}

// system reports whether name is where distributions put links of their own.
func system(name string) bool {
	for _, dir := range [...]string{"/usr/", "/etc/", "/lib", "/bin", "/sbin"} {
		if strings.HasPrefix(name, dir) {
			return true
		}
	}
	return false
}

// realPath is name without links, or empty.
func realPath(name string) string {
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
