package vigil

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Kernel is what the kernel is asked to tell of: what happens in directories (inotify), and to the table of mounts. Its methods
// are called one at a time. It is closed once nothing refers to it.
type Kernel struct {
	Events int // inotify's file: who has a directory watched calls inotify_add_watch with it
	Limit  int // how many directories this user may have watched, with those of other programs
	mounts int // the table of mounts
	buf    []byte
}

// Open returns a Kernel, or nil if the kernel tells nothing. mounts is the table of mounts; "": this process's.
func Open(mounts string) *Kernel {
	if mounts == "" {
		mounts = "/proc/self/mountinfo"
	}
	k := &Kernel{buf: make([]byte, 64<<10)}
	text, err := os.ReadFile("/proc/sys/fs/inotify/max_user_watches")
	if _, scan := fmt.Sscan(string(text), &k.Limit); err != nil || scan != nil {
		return nil
	}
	if k.Events, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return nil
	}
	if k.mounts, err = unix.Open(mounts, unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		_ = unix.Close(k.Events)
		return nil
	}
	runtime.AddCleanup(k, func(fds [2]int) {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}, [2]int{k.Events, k.mounts})
	return k
}

// Listen calls heed with each event that has been told since it was called before: its watch, inotify's mask, and the name in the
// directory, or "" for the directory itself. It reports whether more may have happened than that: a mount was made or ended, or
// the kernel could not be read. An event with IN_Q_OVERFLOW says that others are missing.
func (k *Kernel) Listen(heed func(wd int32, mask uint32, name string)) (lost bool) {
	fds := [...]unix.PollFd{{Fd: int32(k.Events), Events: unix.POLLIN}, {Fd: int32(k.mounts), Events: unix.POLLPRI}}
	_, err := unix.Poll(fds[:], 0)
	for err == unix.EINTR {
		_, err = unix.Poll(fds[:], 0)
	}
	lost = err != nil || fds[1].Revents != 0
	for fds[0].Revents != 0 {
		n, err := unix.Read(k.Events, k.buf)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return lost
		case err != nil || n <= 0:
			return true
		}
		for b := k.buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
			name := b[unix.SizeofInotifyEvent : unix.SizeofInotifyEvent+size]
			heed(int32(binary.NativeEndian.Uint32(b)), mask, strings.TrimRight(string(name), "\x00"))
			b = b[unix.SizeofInotifyEvent+size:]
		}
	}
	return lost
}
