package privatetree

import (
	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

const sysFstatat = unix.SYS_NEWFSTATAT

// modern turns an older call into the one that takes a directory's descriptor too.
func modern(c *sandbox.Call) {
	a := c.Args
	set := func(nr uintptr, args ...uint64) {
		c.NR, c.Args = nr, [6]uint64{}
		copy(c.Args[:], args)
	}
	switch c.NR {
	case unix.SYS_OPEN:
		set(unix.SYS_OPENAT, here, a[0], a[1], a[2])
	case unix.SYS_CREAT:
		set(unix.SYS_OPENAT, here, a[0], unix.O_CREAT|unix.O_WRONLY|unix.O_TRUNC, a[1])
	case unix.SYS_STAT:
		set(sysFstatat, here, a[0], a[1], 0)
	case unix.SYS_LSTAT:
		set(sysFstatat, here, a[0], a[1], unix.AT_SYMLINK_NOFOLLOW)
	case unix.SYS_ACCESS:
		set(unix.SYS_FACCESSAT, here, a[0], a[1])
	case unix.SYS_READLINK:
		set(unix.SYS_READLINKAT, here, a[0], a[1], a[2])
	case unix.SYS_MKDIR:
		set(unix.SYS_MKDIRAT, here, a[0], a[1])
	case unix.SYS_RMDIR:
		set(unix.SYS_UNLINKAT, here, a[0], unix.AT_REMOVEDIR)
	case unix.SYS_UNLINK:
		set(unix.SYS_UNLINKAT, here, a[0], 0)
	case unix.SYS_RENAME:
		set(unix.SYS_RENAMEAT2, here, a[0], here, a[1], 0)
	case unix.SYS_LINK:
		set(unix.SYS_LINKAT, here, a[0], here, a[1], 0)
	case unix.SYS_SYMLINK:
		set(unix.SYS_SYMLINKAT, a[0], here, a[1])
	}
}
