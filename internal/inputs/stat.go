package inputs

import (
	"errors"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stat and lstat retry after a signal.
func stat(path string, st *unix.Stat_t) error {
	for {
		if err := unix.Stat(path, st); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func lstat(path string, st *unix.Stat_t) error {
	for {
		if err := unix.Lstat(path, st); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// lstatIn is lstat of the concatenation of parts, using buf for the path: the table does this for each file
// of each job, and unix.Lstat allocates.
func lstatIn(buf *[]byte, st *unix.Stat_t, parts ...string) error {
	b := (*buf)[:0]
	for _, p := range parts {
		if strings.IndexByte(p, 0) >= 0 {
			return unix.EINVAL
		}
		b = append(b, p...)
	}
	b = append(b, 0)
	*buf = b
	at := unix.AT_FDCWD
	for {
		_, _, errno := unix.Syscall6(sysFstatat, uintptr(at), uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(st)), unix.AT_SYMLINK_NOFOLLOW, 0, 0)
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		default:
			return errno
		}
	}
}

// absent reports whether an error means that there is no file with a name.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }
