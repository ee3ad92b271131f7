package sandbox

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Policy says what a confined thread, and everything that it starts, may use.
type Policy struct {
	// Names of files, or of directories including everything below, as the thread sees them. It may
	// open nothing else. A missing one is skipped.
	List  []string // for listing the names in directories
	Read  []string // for reading
	Exec  []string // for reading, and executing
	Write []string // for everything except executing

	UID, GID int  // the user that started programs become; zero: none
	Alone    bool // it runs in the first process of a pid namespace

	// Names has the calls of commands that name files wait for answers (Hold.Receive), instead of reaching the kernel. It needs Linux
	// 5.9, and that nothing else listens to a filter of this thread: ErrUnheard otherwise.
	Names bool
}

// ErrUnheard means that no answers can be given to calls here.
var ErrUnheard = errors.New("system calls cannot be answered")

// Hold is the control that the thread that starts commands keeps over them: calls that it makes with a key
// are permitted, and it is told of those that no compiler makes.
//
// A process number is an int: the kernel ignores the upper half of the register that it comes in, but shows
// it to the filter. The key is in that half. It is random, and no command ever sees it. One that tries
// another key is treated like one that makes a call that no compiler makes.
type Hold struct {
	key      uint32
	spare    []int // processes and threads that commands must not signal
	listener int   // -1: none
}

// Start puts this thread, and everything that it starts, under p, and returns the measures by which: those
// of Landlock, Seccomp and NoNewPrivs that this kernel offers, each as completely as it offers it. The
// thread must be locked to its goroutine, and start commands one after the other. It cannot be undone. On
// error the thread is not confined, or not completely: it must not start anything.
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
		if p.Names {
			return nil, 0, fmt.Errorf("%w: no seccomp filters", ErrUnheard)
		}
		return h, set, nil
	}
	if !p.Alone {
		own := os.Getpid()
		h.spare = []int{own, unix.Gettid(), -own}
	}
	contained := p.Alone || abi >= scopedSignals || p.UID != 0
	var err error
	if h.listener, err = newFilter(h, p, abi, true, contained).install(true); err != nil {
		if p.Names {
			return nil, 0, fmt.Errorf("%w: %w", ErrUnheard, err)
		}
		// Before Linux 5.0, or under a filter that already has a listener: such calls are only refused.
		h.listener, err = newFilter(h, p, abi, false, contained).install(false)
	}
	if err != nil {
		return nil, 0, err
	}
	if p.Names {
		if err := h.begin(); err != nil {
			return nil, 0, fmt.Errorf("%w: %w", ErrUnheard, err)
		}
		set |= Names
	}
	return h, set | Seccomp, nil
}

// makeKey makes a key that is not the upper half of a small number, even a negative one.
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

// Int returns n with the key: for the process of kill and prlimit, the group of setpgid, the process or
// group of setpriority and the descriptor of ioctl.
func (h *Hold) Int(n int) int {
	if h == nil {
		return n
	}
	return int(uint64(h.key)<<32 | uint64(uint32(n)))
}

// Listener returns a descriptor that is ready for reading when a command has made a call that no compiler
// makes, and is blocked in it; -1: there is none, and such calls are just refused.
func (h *Hold) Listener() int {
	if h == nil {
		return -1
	}
	return h.listener
}
