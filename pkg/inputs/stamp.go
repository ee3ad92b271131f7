package inputs

import (
	"errors"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stamp tells one state of a file or directory from another.
type stamp struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
	mode         uint32
}

func stampOf(st *unix.Stat_t) stamp {
	return stamp{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode}
}

// tick is more than the steps in which kernels note the time of a change: what is changed
// later than a tick after a stamp was taken has another stamp.
const tick = 50 * int64(time.Millisecond)

// settled reports whether a later change would show in the stamp, which was taken at now,
// in nanoseconds since 1970. It would not if the last change was a moment ago, or in
// the future, as where the clock was set back.
func (s *stamp) settled(now int64) bool { return s.ctime < now-tick }

func (s *stamp) is(kind uint32) bool { return s.mode&unix.S_IFMT == kind }

// stat and lstat retry when a signal comes.
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

// lstatIn is lstat of what parts come to, with buf to put the path together in: the table does this for each file of
// each job, and unix.Lstat allocates.
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

// absent reports whether an error says that there is no file of a name.
func absent(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) }

// faithful are file systems, by the type that statfs tells, that note every change of a file and of a
// directory in its time of change. Network and user-space file systems need not, or
// tell of it late.
var faithful = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:      true, // and ext2, ext3
	unix.XFS_SUPER_MAGIC:       true,
	unix.BTRFS_SUPER_MAGIC:     true,
	unix.TMPFS_MAGIC:           true,
	unix.F2FS_SUPER_MAGIC:      true,
	unix.OVERLAYFS_SUPER_MAGIC: true,
	unix.SQUASHFS_MAGIC:        true,
	unix.EROFS_SUPER_MAGIC_V1:  true,
	unix.ISOFS_SUPER_MAGIC:     true,
	unix.RAMFS_MAGIC:           true,
	0x2fc12fc1:                 true, // zfs
	0xca451a4e:                 true, // bcachefs
}
