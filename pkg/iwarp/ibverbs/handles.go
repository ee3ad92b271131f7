//go:build ibverbs && cgo && linux

package ibverbs

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// handles are the numbers by which C code knows our objects. They are the
// process's: devices opened twice share one queue of asynchronous events.
var handles = struct {
	sync.RWMutex
	last uintptr
	m    map[uintptr]any
}{m: make(map[uintptr]any)}

// newHandle gives x a number, never 0. It fits 32 bits: a work request's id has room
// for no more, and 0 to 2^32 objects are not met again before the first is gone.
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

// byHandle finds an object, or nil.
func byHandle[T any](h uintptr) (x T) {
	handles.RLock()
	x, _ = handles.m[h].(T)
	handles.RUnlock()
	return x
}

// poller waits for a library's descriptor in Go's own way.
type poller struct {
	file *os.File
	raw  syscall.RawConn
}

// newPoller makes fd non-blocking and watches a duplicate: fd stays the library's.
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

// loop calls drain, which takes all that there is, whenever there is something. It
// returns when the poller is closed.
func (p *poller) loop(drain func()) {
	_ = p.raw.Read(func(uintptr) bool {
		drain()
		return false // not done: wait for more
	})
}

func (p *poller) close() { p.file.Close() }
