package quick

import (
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// left is what the beginning of this process leaves to the rest of it.
var left struct {
	fd   int // connected to the manager; 0: none
	in   [8192]byte
	from int // in[from:to] was received and not looked at
	to   int
	fds  [maxFDs]int32
	n    int // of fds

	began int64 // when, in nanoseconds of the monotonic clock; 0: not so
}

// maxFDs is how many descriptors are taken from the manager, which sends two at most.
const maxFDs = 8

// Left returns the connection on which the manager was asked about this process's command. Its answer is there, or on its way. nil: it
// was not asked. The caller owns it; there is none the next time.
func Left() *ipc.Conn {
	if left.fd == 0 {
		return nil
	}
	var fds []int
	for _, fd := range left.fds[:left.n] {
		fds = append(fds, int(fd))
	}
	c := ipc.Adopt(left.fd, left.in[left.from:left.to], fds)
	left.fd = 0
	return c
}

// Began returns when the process has begun: where the manager was asked, the runtime has only started with its answer.
func Began() time.Time {
	now := time.Now()
	const monotonic = 1
	var ts syscall.Timespec
	if left.began != 0 {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0); errno == 0 {
			return now.Add(time.Duration(left.began - ts.Nano()))
		}
	}
	return now
}

// start is where the wrapper's process begins, if it is linked with `-ldflags '-E .../quick.start'`. It does not return.
//
//nolint:unused // by the linker
func start()
