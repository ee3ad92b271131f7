package sandbox

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policy says what a confined thread, and all that it starts, may use.
type Policy struct {
	// Names of files, or of directories with all that is below, as the thread sees
	// them. Everything else it may not open. One that is not there is passed over.
	List  []string // for the names of what is in directories
	Read  []string // for reading
	Exec  []string // for reading, and executing
	Write []string // for everything but executing

	UID, GID int  // the user that what it starts becomes; zero: none
	Alone    bool // it is in a pid namespace's first process
}

// Hold is what the thread that starts commands keeps over them: calls that it makes
// with a key are permitted, and it hears of those that no compiler makes.
//
// A number of a process is an int: the kernel ignores the upper half of the register that it
// comes in, but shows it to the filter. The key is in there. It is random, no command ever
// sees it, and one that tries another is treated as one that calls what no compiler does.
type Hold struct {
	key      uint32
	spare    []int // processes and threads that commands must not signal
	listener int   // -1: none
}

// Start puts this thread, which is locked to its goroutine and starts commands one after the other, and all that it starts
// under p, and says by which measures: those of Landlock, Seccomp and NoNewPrivs that this kernel offers, each with all
// that it offers of it. It cannot be undone. With an error the thread is confined not at all
// or not wholly: it must not start anything.
func Start(p *Policy) (*Hold, Set, error) {
	h := &Hold{listener: -1}
	if err := h.makeKey(); err != nil {
		return nil, 0, err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, 0, fmt.Errorf("set no_new_privs: %w", err)
	}
	set := NoNewPrivs
	abi := landlockABI()
	if abi > 0 {
		fd, err := ruleset(p, abi)
		if err != nil {
			return nil, 0, err
		}
		err = restrict(fd)
		unix.Close(fd)
		if err != nil {
			return nil, 0, err
		}
		set |= Landlock
	}
	if !seccompOffered() {
		return h, set, nil
	}
	if !p.Alone {
		own := os.Getpid()
		h.spare = []int{own, unix.Gettid(), -own}
	}
	contained := p.Alone || abi >= scopedSignals || p.UID != 0
	var err error
	if h.listener, err = newFilter(h, p, abi, true, contained).install(true); err != nil {
		// Before Linux 5.0, or under a filter that is listened to already: such calls are only refused.
		h.listener, err = newFilter(h, p, abi, false, contained).install(false)
	}
	if err != nil {
		return nil, 0, err
	}
	return h, set | Seccomp, nil
}

// makeKey makes a key that is not the upper half of a small number, be it negative.
func (h *Hold) makeKey() error {
	for h.key == 0 || h.key == ^uint32(0) {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return err
		}
		h.key = binary.NativeEndian.Uint32(b[:])
	}
	return nil
}

// Int is n with the key: for the process of kill and prlimit, the group of setpgid,
// the process or group of setpriority and the descriptor of ioctl.
func (h *Hold) Int(n int) int {
	if h == nil {
		return n
	}
	return int(uint64(h.key)<<32 | uint64(uint32(n)))
}

// Listener is a descriptor that is ready for reading when a command has made a call that no
// compiler makes, and waits in it; -1: there is none, and such calls are just refused.
func (h *Hold) Listener() int {
	if h == nil {
		return -1
	}
	return h.listener
}

// notification is the kernel's struct seccomp_notif; response its struct seccomp_notif_resp.
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
)

// Refuse takes a call that waits and lets it fail with EPERM. It returns the call's
// number, or an error when there is none any more, as its process has ended.
func (h *Hold) Refuse() (nr int, err error) {
	var n notification
	if err := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
		return 0, err
	}
	r := response{id: n.id, err: -int32(unix.EPERM)}
	if err := h.ioctl(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)); err != nil && !errors.Is(err, unix.ENOENT) {
		return int(n.nr), err
	}
	return int(n.nr), nil
}

func (h *Hold) ioctl(cmd uintptr, arg unsafe.Pointer) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(h.Int(h.listener)), cmd, uintptr(arg)); e != 0 {
		return e
	}
	return nil
}
