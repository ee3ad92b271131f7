//go:build !race

package quick

import (
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// What start has set up; see there.
var (
	stack     unsafe.Pointer
	local     [2]uintptr
	goroutine [64]uintptr
)

// system makes a system call. It returns what the kernel does: a negative number is an error's.
func system(trap, a, b, c, d, e uintptr) int

// at returns the nth word of the kernel's stack as a pointer, to a string if it is one of argv or the environment.
func at(n int) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Add(stack, 8*n)) }

func char(p unsafe.Pointer, i int) byte { return *(*byte)(unsafe.Add(p, i)) }

// started is what the process was started with.
var started struct {
	words, environ    unsafe.Pointer // blocks of strings, each with a NUL behind it
	nWords, nEnviron  int            // their lengths
	socket, dir       unsafe.Pointer // values of RDISTCC_CM_SOCKET and RDISTCC_DIR; nil: none, or empty
	runtime, home     unsafe.Pointer // of XDG_RUNTIME_DIR and HOME
	report            unsafe.Pointer // of RDISTCC_REPORT
	records           bool           // a record is wanted that only the rest of the wrapper writes
	euid              int
	seconds, nanosecs int64
}

// run is all of it. It ends the process, or returns for the runtime to start.
func run() {
	clock(&started.seconds, &started.nanosecs)
	left.began = started.seconds*1e9 + started.nanosecs
	if !readStack() || !ordinary() || !findSocket() || !connect() {
		return
	}
	if ask() && receive() {
		return // with what is left
	}
	for i := 0; i < left.n; i++ {
		system(syscall.SYS_CLOSE, uintptr(left.fds[i]), 0, 0, 0, 0)
	}
	system(syscall.SYS_CLOSE, uintptr(left.fd), 0, 0, 0, 0)
	left.fd = 0
}

const reportVariable = "RDISTCC_REPORT="

// readStack finds words and variables. It reports whether the command may be a compile without a link, which is for the manager.
func readStack() bool {
	argc := *(*int)(stack)
	if argc < 3 {
		return false
	}
	compiles := false
	end := at(1)
	started.words = end
	for i := 1; i <= argc; i++ {
		p := at(i)
		if p != end {
			return false // they are not one behind the other
		}
		if i > 1 && char(p, 0) == '@' {
			return false
		}
		compiles = compiles || is(p, "-c") || is(p, "-S")
		end = unsafe.Add(p, length(p)+1)
	}
	started.nWords = int(uintptr(end) - uintptr(started.words))
	started.environ = end
	for i := argc + 2; at(i) != nil; i++ {
		p := at(i)
		if p != end || begins(p, "_RDISTCC_") && !begins(p, ipc.PartVariable+"=") {
			return false
		}
		if begins(p, "RDISTCC_MODE=local") || begins(p, "RDISTCC_INPUTS=") || begins(p, "DISTCC_DIR=") {
			return false // it may stay here, or the wrapper reads files of its own
		}
		if begins(p, reportVariable) { // the last one counts, as in typed.Read
			started.report = nil
			value(p, reportVariable, &started.report)
		}
		started.records = started.records || begins(p, "RDISTCC_TRACE=") || begins(p, "RDISTCC_LOG=") ||
			begins(p, "RDISTCC_VERBOSE=") && !is(p, "RDISTCC_VERBOSE=0") && !is(p, "RDISTCC_VERBOSE=1") // which say nothing of what goes well
		value(p, "RDISTCC_CM_SOCKET=", &started.socket)
		value(p, "RDISTCC_DIR=", &started.dir)
		value(p, "XDG_RUNTIME_DIR=", &started.runtime)
		value(p, "HOME=", &started.home)
		end = unsafe.Add(p, length(p)+1)
	}
	started.nEnviron = int(uintptr(end) - uintptr(started.environ))
	return compiles && started.nWords+started.nEnviron < ipc.MaxFrame-len(head)
}

func length(p unsafe.Pointer) int {
	n := 0
	for char(p, n) != 0 {
		n++
	}
	return n
}

func begins(p unsafe.Pointer, s string) bool {
	for i := 0; i < len(s); i++ {
		if char(p, i) != s[i] {
			return false
		}
	}
	return true
}

func is(p unsafe.Pointer, s string) bool { return begins(p, s) && char(p, len(s)) == 0 }

// value sets v if the variable p is the first with this name and has a value. name ends in "=".
func value(p unsafe.Pointer, name string, v *unsafe.Pointer) {
	if *v == nil && begins(p, name) && char(p, len(name)) != 0 {
		*v = unsafe.Add(p, len(name))
	}
}

// ordinary reports whether umask and limits are such that the manager may make the job (typed.Command), and files can be
// written as long as results are.
func ordinary() bool {
	started.euid = system(syscall.SYS_GETEUID, 0, 0, 0, 0, 0)
	mask := system(syscall.SYS_UMASK, 0, 0, 0, 0, 0)
	system(syscall.SYS_UMASK, uintptr(mask), 0, 0, 0, 0)
	const most = 1 << 40
	return (mask&0o600 == 0 || started.euid == 0) &&
		system(syscall.SYS_PRLIMIT64, 0, syscall.RLIMIT_FSIZE, 0, uintptr(unsafe.Pointer(&limit)), 0) == 0 && limit.Cur >= most
}

var limit syscall.Rlimit

// address is the socket's, with the length of its name.
var (
	address syscall.RawSockaddrUnix
	nName   int
)

// add appends a string to the socket's name. It reports whether there was room.
func add(p unsafe.Pointer) bool {
	for i := 0; char(p, i) != 0; i++ {
		if nName >= len(address.Path)-1 {
			return false
		}
		address.Path[nName] = int8(char(p, i))
		nName++
	}
	address.Path[nName] = 0
	return true
}

// Names, as the kernel takes them.
var (
	belowRuntime = [...]byte{'/', 'r', 'd', 'i', 's', 't', 'c', 'c', 0}
	belowHome    = [...]byte{'/', '.', 'c', 'a', 'c', 'h', 'e', '/', 'r', 'd', 'i', 's', 't', 'c', 'c', 0}
	socketName   = [...]byte{'/', 'c', 'm', '.', 's', 'o', 'c', 'k', 0}
	exe          = [...]byte{'/', 'p', 'r', 'o', 'c', '/', 's', 'e', 'l', 'f', '/', 'e', 'x', 'e', 0}
	mounts       = [...]byte{'/', 'p', 'r', 'o', 'c', '/', 's', 'e', 'l', 'f', '/', 'n', 's', '/', 'm', 'n', 't', 0}
	root         = [...]byte{'/', 0}
	cwd          = [...]byte{'.', 0}
)

// findSocket finds the manager's socket, as ipc.SocketPath and ipc.CheckDir do. It leaves doubtful cases to them.
func findSocket() bool {
	if started.socket != nil {
		return add(started.socket)
	}
	switch {
	case started.dir != nil:
		if !add(started.dir) {
			return false
		}
	case started.runtime != nil:
		if !add(started.runtime) || !add(unsafe.Pointer(&belowRuntime)) || !access(unsafe.Pointer(&address.Path), wOK|xOK) {
			return false
		}
	case started.home != nil:
		if !add(started.home) || !add(unsafe.Pointer(&belowHome)) || !access(unsafe.Pointer(&address.Path), wOK|xOK) {
			return false
		}
	default:
		return false
	}
	if system(syscall.SYS_LSTAT, uintptr(unsafe.Pointer(&address.Path)), uintptr(unsafe.Pointer(&st)), 0, 0, 0) != 0 ||
		st.Mode&syscall.S_IFMT != syscall.S_IFDIR || int(st.Uid) != started.euid || st.Mode&0o022 != 0 {
		return false
	}
	return add(unsafe.Pointer(&socketName))
}

// Modes of access.
const xOK, wOK = 1, 2

func access(name unsafe.Pointer, mode uintptr) bool {
	return system(syscall.SYS_ACCESS, uintptr(name), mode, 0, 0, 0) == 0
}

var (
	st      syscall.Stat_t
	peer    syscall.Ucred
	nPeer   uint32 = syscall.SizeofUcred
	patient        = syscall.Timeval{Sec: int64(ipc.Patience / 1e9)}
)

// connect connects to a manager of this user, or of root.
func connect() bool {
	fd := system(syscall.SYS_SOCKET, syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0, 0, 0)
	if fd < 0 {
		return false
	}
	address.Family = syscall.AF_UNIX
	p := uintptr(unsafe.Pointer(&patient))
	if fd > 2 && // a lower one is missing, and must not be taken for it
		system(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address)), uintptr(2+nName+1), 0, 0) == 0 &&
		system(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, p, unsafe.Sizeof(patient)) == 0 &&
		system(syscall.SYS_SETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, p, unsafe.Sizeof(patient)) == 0 &&
		system(syscall.SYS_GETSOCKOPT, uintptr(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED, uintptr(unsafe.Pointer(&peer)), uintptr(unsafe.Pointer(&nPeer))) == 0 &&
		(peer.Uid == 0 || int(peer.Uid) == started.euid) {
		left.fd = fd
		return true
	}
	system(syscall.SYS_CLOSE, uintptr(fd), 0, 0, 0, 0)
	return false
}

func clock(seconds, nanosecs *int64) {
	const monotonic = 1
	if system(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&now)), 0, 0, 0) == 0 {
		*seconds, *nanosecs = now.Sec, now.Nsec
	}
}

var now syscall.Timespec
