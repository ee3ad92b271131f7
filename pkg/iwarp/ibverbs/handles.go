//go:build ibverbs && cgo && linux

package ibverbs

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// handles maps numbers, by which C code refers to our objects, to those objects. It is per process:
// devices opened twice share one queue of asynchronous events.
var handles = struct {
	sync.RWMutex
	last uintptr
	m    map[uintptr]any
}{m: make(map[uintptr]any)}

// newHandle returns a number for x, never 0. It fits 32 bits, as a work request's id has no room
// for more, and 2^32 later objects do not reuse it before the first is gone.
func newHandle(x any) uintptr {
	handles.Lock()
	defer handles.Unlock()
	for {
		handles.last = (handles.last + 1) & 0xffffffff
		if _, taken := handles.m[handles.last]; !taken && handles.last != 0 {
			handles.m[handles.last] = x
			return handles.last
		}
	}
}

func dropHandle(h uintptr) {
	handles.Lock()
	delete(handles.m, h)
	handles.Unlock()
}

// byHandle returns the object with a number, or nil.
func byHandle[T any](h uintptr) (x T) {
	handles.RLock()
	x, _ = handles.m[h].(T)
	handles.RUnlock()
	return x
}

// poller waits for a library's descriptor by Go's own netpoller.
type poller struct {
	file *os.File
	raw  syscall.RawConn
}

// newPoller makes fd non-blocking and watches a duplicate: fd itself stays the library's.
func newPoller(fd int, name string) (*poller, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	p := &poller{file: os.NewFile(uintptr(dup), name)}
	if p.raw, err = p.file.SyscallConn(); err != nil {
		p.file.Close()
		return nil, err
	}
	return p, nil
}

// loop calls drain, which consumes everything available, whenever there is something. It returns
// when the poller is closed.
func (p *poller) loop(drain func()) {
	_ = p.raw.Read(func(uintptr) bool {
		drain()
		return false // not done: wait for more
	})
}

func (p *poller) close() { p.file.Close() }
