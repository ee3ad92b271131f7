package main

import (
	"slices"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// pollFD is struct pollfd.
type pollFD struct {
	fd      int32
	events  int16
	revents int16
}

const (
	pollIn  = 0x01
	pollOut = 0x04
	pollHup = 0x10
)

// poll waits until one of fds is ready, and reports whether one is. A negative limit means
// no limit.
func poll(fds []pollFD, limit time.Duration) bool {
	end := time.Now().Add(limit)
	for {
		var ts *syscall.Timespec
		if limit >= 0 {
			t := syscall.NsecToTimespec(int64(max(time.Until(end), 0)))
			ts = &t
		}
		n, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)),
			uintptr(unsafe.Pointer(ts)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		return errno == 0 && n > 0
	}
}

func readable(fd int, limit time.Duration) bool {
	return poll([]pollFD{{fd: int32(fd), events: pollIn}}, limit)
}

// closeOnExec marks every descriptor close-on-exec for the next child. The function that it
// returns undoes that.
func closeOnExec() (restore func()) {
	dir, err := syscall.Open("/proc/self/fd", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return func() {}
	}
	defer syscall.Close(dir)
	var changed []int
	buf := make([]byte, 4096)
	for {
		n, err := syscall.ReadDirent(dir, buf)
		if err != nil || n <= 0 {
			break
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			fd := s2fd(name)
			if fd < 3 {
				continue
			}
			flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
			if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
				syscall.CloseOnExec(fd)
				changed = append(changed, fd)
			}
		}
	}
	return func() {
		for _, fd := range changed {
			_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_SETFD, 0) // it was so before
		}
	}
}

// s2fd parses a descriptor's number; "." and ".." yield -1.
func s2fd(name string) int {
	n := 0
	for _, c := range []byte(name) {
		if c < '0' || c > '9' {
			return -1
		}
		n = n*10 + int(c-'0')
	}
	return n
}

// copyFile appends the content of file name to fd, at its current offset.
func copyFile(fd int, name string) bool {
	src, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(src)
	buf := make([]byte, 256<<10)
	for {
		n, err := syscall.Read(src, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err == nil
		}
		for b := buf[:n]; len(b) > 0; {
			w, err := syscall.Write(fd, b)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return false // the slot is full: the offset shows it
			}
			b = b[w:]
		}
	}
}

func pwriteAll(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := syscall.Pwrite(fd, b, off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

// workingDir returns the working directory as compilers name it: PWD if that is the same
// directory, else the kernel's name for it. A PWD that means something else to each process
// (/proc/self/cwd) is for the compiler alone.
func workingDir(s *settings) string {
	pwd := s.getenv("PWD")
	if shared, _ := unit.Shared(pwd); strings.HasPrefix(shared, "/") {
		var a, b syscall.Stat_t
		if typed.Stat(pwd, &a) == nil && typed.Stat(".", &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino {
			return pwd
		}
	}
	dir, err := syscall.Getwd()
	if err != nil {
		return ""
	}
	return dir
}

// closedUmask reports whether the umask keeps this user from reopening the files it creates.
func closedUmask() bool {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	return mask&0o600 != 0 && syscall.Geteuid() != 0
}

// memoryLimited reports whether a limit of this process tells a program how much memory it may use.
func memoryLimited() bool {
	const rss, unlimited = 5, ^uint64(0)
	var limit syscall.Rlimit
	return slices.ContainsFunc([]int{syscall.RLIMIT_AS, syscall.RLIMIT_DATA, rss}, func(which int) bool {
		return syscall.Getrlimit(which, &limit) == nil && limit.Cur != unlimited
	})
}

func micros(d time.Duration) uint32 { return uint32(min(d/time.Microsecond, 1<<32-1)) }
