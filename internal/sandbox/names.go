package sandbox

import (
	"errors"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Call is a call that a command has made, and in which it is blocked.
type Call struct {
	ID   uint64
	PID  int // of the thread
	NR   uintptr
	Args [6]uint64
}

// notification is the kernel's struct seccomp_notif; response its struct seccomp_notif_resp; addition its struct seccomp_notif_addfd.
type (
	notification struct {
		id         uint64
		pid, flags uint32
		nr         int32
		arch       uint32
		ip         uint64
		args       [6]uint64
	}
	response struct {
		id    uint64
		val   int64
		err   int32
		flags uint32
	}
	addition struct {
		id                       uint64
		flags, from, to, fdFlags uint32
	}
)

// begin prepares the listener for answers.
func (h *Hold) begin() error {
	// Before Linux 5.9 the request is unknown.
	if err := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(&addition{})); !errors.Is(err, unix.ENOENT) {
		return err
	}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(h.Int(h.listener)), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP) // since Linux 6.6; only saves time
	return nil
}

// Receive takes a blocked call, for Answer, Continue or Give. It returns an error when there is none any more because its process has
// ended.
func (h *Hold) Receive() (Call, error) {
	var n notification
	if err := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		return Call{}, err
	}
	return Call{n.id, int(n.pid), uintptr(n.nr), n.args}, nil
}

// Waits reports whether the call's thread is still blocked in it, so that the call's number of the thread is that thread's.
func (h *Hold) Waits(c *Call) bool {
	return h.ioctl(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&c.ID)) == nil
}

// Answer ends a call with a value, or with an error unless that is zero. That the caller has gone is no error.
func (h *Hold) Answer(c *Call, value int64, no unix.Errno) error {
	return h.respond(&response{id: c.ID, val: value, err: -int32(no)})
}

// Continue lets the kernel do a call, whose arguments in memory may be others by then (Linux 5.5).
func (h *Hold) Continue(c *Call) error {
	return h.respond(&response{id: c.ID, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE})
}

// allSignals is never written to.
var allSignals = func() (s unix.Sigset_t) {
	for i := range s.Val {
		s.Val[i] = ^s.Val[i]
	}
	return s
}()

// Give ends a call with a descriptor, of which the caller gets a copy.
//
// No signal must interrupt that, such as the runtime's own. The kernel has noted the answer before it waits for the caller to take the
// descriptor: if the wait ends early, the caller gets none, and 0 as the result (Linux 6.18, seccomp_notify_addfd). Its
// standard input is then the file that it has opened, which is empty.
func (h *Hold) Give(c *Call, fd int, closeOnExec bool) error {
	var old unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &allSignals, &old); err != nil {
		return h.Answer(c, 0, unix.EIO)
	}
	defer func() { _ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil) }() // the same call with the same sizes
	return h.give(c, fd, closeOnExec)
}

func (h *Hold) give(c *Call, fd int, closeOnExec bool) error {
	a := addition{id: c.ID, flags: unix.SECCOMP_ADDFD_FLAG_SEND, from: uint32(fd)}
	if closeOnExec {
		a.fdFlags = unix.O_CLOEXEC
	}
	_, _, no := unix.Syscall(unix.SYS_IOCTL, uintptr(h.Int(h.listener)), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(&a)))
	if no == unix.EINVAL { // before Linux 5.14
		a.flags = 0
		var n uintptr
		if n, _, no = unix.Syscall(unix.SYS_IOCTL, uintptr(h.Int(h.listener)), unix.SECCOMP_IOCTL_NOTIF_ADDFD, uintptr(unsafe.Pointer(&a))); no == 0 {
			return h.Answer(c, int64(n), 0)
		}
	}
	switch no {
	case 0, unix.ENOENT:
		return nil
	}
	return h.Answer(c, 0, no) // it has too many
}

func (h *Hold) respond(r *response) error {
	if err := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (h *Hold) ioctl(cmd uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(h.Int(h.listener)), cmd, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}
