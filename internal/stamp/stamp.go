// Package stamp distinguishes states of a file or directory by what stat returns, without reading the
// content: as long as the stamp is the same so is the content, provided that it was settled when it was
// taken, and that the file system is faithful.
package stamp

import (
	"time"

	"golang.org/x/sys/unix"
)

// Stamp identifies one state of a file or directory.
type Stamp struct {
	Dev, Ino     uint64
	Size         int64 // bytes
	MTime, CTime int64 // nanoseconds since 1970
	Mode         uint32
}

// Of returns the stamp in st.
func Of(st *unix.Stat_t) Stamp {
	return Stamp{st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano(), st.Mode}
}

// Tick is more than the granularity with which kernels record the time of a change, in nanoseconds: a
// change later than a tick after a stamp was taken gives another stamp.
const Tick = 50 * int64(time.Millisecond)

// Settled reports whether a later change would show in the stamp, which was taken at now, in nanoseconds
// since 1970. It would not if the last change was a moment ago, or in the future, as when the clock was set
// back.
func (s *Stamp) Settled(now int64) bool { return s.CTime < now-Tick }

// Is reports whether the stamp is that of a file of a kind, such as unix.S_IFREG.
func (s *Stamp) Is(kind uint32) bool { return s.Mode&unix.S_IFMT == kind }

// Faithful reports whether file systems of a type, as returned by statfs, record every change of a file or
// directory in its time of change. Network and user-space file systems may not, or may report it late.
func Faithful(fs *unix.Statfs_t) bool { return faithful[int64(fs.Type)] }

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

// Told reports whether the kernel tells of each change of a directory's names on file systems of a type (inotify): whether it makes
// all changes itself, each one by that directory. It does not know what is done to an overlay's layers.
func Told(fs *unix.Statfs_t) bool { return told[int64(fs.Type)] }

var told = map[int64]bool{
	unix.EXT4_SUPER_MAGIC:  true,
	unix.XFS_SUPER_MAGIC:   true,
	unix.BTRFS_SUPER_MAGIC: true,
	unix.TMPFS_MAGIC:       true,
	unix.F2FS_SUPER_MAGIC:  true,
	unix.RAMFS_MAGIC:       true,
}
