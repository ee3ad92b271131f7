//go:build !race

package quick

import (
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// file is an ipc.Placed of the frame that is being read.
type file struct {
	how             uint8
	name, dir, temp unsafe.Pointer
	off, size       int64
	exists, keeps   bool // as compile.Place sees what is in its place
}

// maxFiles bounds the files of a Place.
const maxFiles = 64

var (
	files  [maxFiles]file
	nFiles int
)

// place puts the files of the Place whose fields are in[from:to] in their places. First it looks whether all can be, as
// compile.CanPlace does. If it reports false, the runtime's wrapper tries again, from the Result. A signal comes before or after all
// files: it would leave half of one, which make takes for the whole.
func place(from, to int) bool {
	if !read(from, to) {
		return false
	}
	for i := 0; i < nFiles && i < len(files); i++ {
		if !fits(&files[i]) {
			return false
		}
	}
	if !signals(sigBlock, &every, &before) {
		return false
	}
	for i := 0; i < nFiles && i < len(files); i++ {
		if !write(&files[i]) {
			signals(sigSet, &before, &every)
			return false
		}
	}
	return true
}

// What rt_sigprocmask does, and sets of signals.
const sigBlock, sigSet = 0, 2

var every, before uint64 = 1<<64 - 1, 0

func signals(how uintptr, mask, was *uint64) bool {
	return system(syscall.SYS_RT_SIGPROCMASK, how, uintptr(unsafe.Pointer(mask)), uintptr(unsafe.Pointer(was)), unsafe.Sizeof(*mask), 0) == 0
}

// cursor reads in[at:end]; bad means that it has come beyond that.
var cursor struct {
	at, end int
	bad     bool
}

// take returns where the next n bytes begin.
func take(n int) int {
	if n < 0 || n > cursor.end-cursor.at {
		cursor.bad, n = true, 0
	}
	i := cursor.at
	cursor.at += n
	return i
}

func name() unsafe.Pointer {
	n := int(u32(take(4)))
	i := take(n + 1)
	p := unsafe.Add(unsafe.Pointer(&left.in), i)
	if cursor.bad || char(p, n) != 0 {
		cursor.bad = true
		return unsafe.Pointer(&root)
	}
	return p
}

func number() int64 {
	i := take(8)
	n := int64(uint64(u32(i)) | uint64(u32(i+4))<<32)
	if n < 0 || n > 1<<40 {
		cursor.bad = true
	}
	return n
}

// read reads the fields of a Place.
func read(from, to int) bool {
	cursor.at, cursor.end, cursor.bad = from, to, false
	nFiles = int(u32(take(4)))
	if nFiles > len(files) {
		return false
	}
	for i := 0; i < nFiles && i < len(files); i++ {
		f := &files[i]
		f.how = uint8(u32(take(1)))
		f.name, f.dir, f.temp = name(), name(), name()
		f.off, f.size = number(), number()
		if f.how > ipc.PlacedRenamed {
			return false
		}
	}
	line = name()
	nLine = cursor.at - 1 - int(uintptr(line)-uintptr(unsafe.Pointer(&left.in)))
	return !cursor.bad && cursor.at == cursor.end
}

// fits reports whether a file can be placed, as far as can be seen.
func fits(f *file) bool {
	switch system(syscall.SYS_LSTAT, uintptr(f.name), uintptr(unsafe.Pointer(&st)), 0, 0, 0) {
	case 0:
		if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
			return false
		}
		f.exists = true
		f.keeps = f.how == ipc.PlacedInPlace || f.how == ipc.PlacedUnlinked && st.Size == 0
	case -int(syscall.ENOENT):
	default:
		return false
	}
	if (f.keeps || f.exists && f.how == ipc.PlacedRenamed) && !access(f.name, wOK) {
		return false
	}
	return f.keeps || access(f.dir, wOK|xOK)
}

// write writes a file as compile.Place does. If that fails, nothing that it made is left.
func write(f *file) bool {
	to, flags := f.name, uintptr(syscall.O_WRONLY|syscall.O_CLOEXEC|syscall.O_CREAT|syscall.O_TRUNC)
	if f.how == ipc.PlacedRenamed {
		to, flags = f.temp, syscall.O_WRONLY|syscall.O_CLOEXEC|syscall.O_CREAT|syscall.O_EXCL
	} else if f.exists && !f.keeps && system(syscall.SYS_UNLINK, uintptr(f.name), 0, 0, 0, 0) != 0 {
		return false
	}
	fd := system(syscall.SYS_OPEN, uintptr(to), flags, 0o666, 0, 0)
	if fd < 0 {
		return false
	}
	done := fill(fd, f)
	done = system(syscall.SYS_CLOSE, uintptr(fd), 0, 0, 0, 0) == 0 && done
	if done && f.how == ipc.PlacedRenamed {
		done = system(syscall.SYS_RENAME, uintptr(f.temp), uintptr(f.name), 0, 0, 0) == 0
	}
	if !done && !f.keeps {
		system(syscall.SYS_UNLINK, uintptr(to), 0, 0, 0, 0)
	}
	return done
}

var offset int64

// fill copies a file's bytes from the sink, the only descriptor that has come.
func fill(fd int, f *file) bool {
	offset = f.off
	for rest := f.size; rest > 0; {
		n := system(syscall.SYS_SENDFILE, uintptr(fd), uintptr(left.fds[0]), uintptr(unsafe.Pointer(&offset)), uintptr(min(rest, 1<<30)), 0)
		switch {
		case n == -int(syscall.EINTR) || n == -int(syscall.EAGAIN):
		case n <= 0:
			return false
		default:
			rest -= int64(n)
		}
	}
	return true
}

// line is the Place's line for the report, nLine its length.
var (
	line  unsafe.Pointer
	nLine int
)

// report writes the line, as appendFile of the wrapper does. If it reports false, the runtime's wrapper places the files again, and
// waits for a pipe's reader, or says what is wrong with the report.
func report() bool {
	if started.report == nil {
		return true
	}
	const flags = syscall.O_WRONLY | syscall.O_APPEND | syscall.O_CREAT | syscall.O_CLOEXEC | syscall.O_NONBLOCK // no signal would end a wait
	written := -1
	if fd := system(syscall.SYS_OPEN, uintptr(started.report), flags, 0o666, 0, 0); fd >= 0 {
		written = system(syscall.SYS_WRITE, uintptr(fd), uintptr(line), uintptr(nLine), 0, 0)
		if system(syscall.SYS_CLOSE, uintptr(fd), 0, 0, 0, 0) != 0 {
			written = -1
		}
	}
	if written != nLine {
		signals(sigSet, &before, &every)
		return false
	}
	return true
}

// over is an ipc.Finish of a compile that went well on a host, up to its TotalUS.
var over = [...]byte{20, 0, 0, 0, byte(ipc.KindFinish), ipc.WhereRemote, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}

// finish tells the manager, and ends the process.
func finish() {
	var seconds, nanosecs int64
	clock(&seconds, &nanosecs)
	us := min(max(((seconds-started.seconds)*1e9+nanosecs-started.nanosecs)/1000, 0), 1<<32-1)
	for i := 0; i < 4; i++ {
		over[11+i] = byte(us >> (8 * i))
	}
	// The manager counts it. It learns from the end of the connection that the command is over.
	system(syscall.SYS_SENDTO, uintptr(left.fd), uintptr(unsafe.Pointer(&over)), uintptr(len(over)), syscall.MSG_NOSIGNAL, 0)
	system(syscall.SYS_EXIT_GROUP, 0, 0, 0, 0, 0)
}
