package sandbox

import (
	"cmp"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// filter is a list of system calls and actions. A call that is not in it is refused with EPERM, or as one
// that an older kernel lacks. The kernel runs it as a BPF program over
//
//	0        4       8                    16        64
//	| number | arch  | instruction pointer | arguments, 8 bytes each |
//
// and remembers which calls it always allows (since Linux 5.11): those cost nothing.
type filter struct {
	deny  action // action for a call that no compiler makes
	rules []rule
}

type rule struct {
	nr        uintptr
	if_       []clause // the first one that holds; none: otherwise
	otherwise action
}

// clause holds when all its tests do.
type clause struct {
	tests []test
	do    action
}

// test examines one half of an argument. The kernel ignores the upper half of an int argument, but shows it
// to the filter.
type test struct {
	arg   int
	upper bool
	op    uint16 // BPF_JEQ: equal to value; BPF_JSET: has any of value's bits
	value uint32
	not   bool
}

// action is a SECCOMP_RET_ value.
type action uint32

const (
	allow action = unix.SECCOMP_RET_ALLOW
	kill  action = unix.SECCOMP_RET_KILL_PROCESS
	tell  action = unix.SECCOMP_RET_USER_NOTIF
)

func errno(e unix.Errno) action { return unix.SECCOMP_RET_ERRNO | action(e) }

// x32Bit marks calls of amd64's x32 interface, which has numbers of its own.
const x32Bit = 0x4000_0000

func load(off uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
}

func jump(op uint16, value uint32, yes, no int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: value, Jt: uint8(yes), Jf: uint8(no)}
}

func ret(a action) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: uint32(a)}
}

// program returns the BPF program.
func (f *filter) program() []unix.SockFilter {
	p := []unix.SockFilter{
		load(4), jump(unix.BPF_JEQ, arch, 1, 0), ret(kill), // of another architecture: numbers have other meanings
		load(0), jump(unix.BPF_JGE, x32Bit, 0, 1), ret(kill),
	}
	for i := range f.rules {
		body := f.rules[i].body()
		p = append(append(p, jump(unix.BPF_JEQ, uint32(f.rules[i].nr), 0, len(body))), body...)
	}
	// A caller that is told that the call does not exist falls back to the older way.
	return append(p, jump(unix.BPF_JGE, newCalls, 0, 1), ret(errno(unix.ENOSYS)), ret(errno(unix.EPERM)))
}

// newCalls is the first call number that all architectures share, introduced with Linux 5.1.
const newCalls = 424

// body returns the instructions of a rule, which always end with a return.
func (r *rule) body() (p []unix.SockFilter) {
	for _, c := range r.if_ {
		for i, t := range c.tests {
			off := uint32(16 + 8*t.arg)
			if t.upper {
				off += 4
			}
			// The rest of this clause: two instructions for each further test, and its return.
			yes, no := 0, 2*(len(c.tests)-i-1)+1
			if t.not {
				yes, no = no, yes
			}
			p = append(p, load(off), jump(t.op, t.value, yes, no))
		}
		p = append(p, ret(c.do))
	}
	return append(p, ret(r.otherwise))
}

// install puts this thread, which has no_new_privs, under the filter. With listen it returns a descriptor
// on which calls with the action tell are reported.
func (f *filter) install(listen bool) (listener int, err error) {
	p := f.program()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// The kernel's mitigations against speculation in filtered processes slow a compiler down, and protect
	// parts of one process from each other: a compiler has no such parts.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW)
	set := func(flags uintptr) (uintptr, unix.Errno) {
		n, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog)))
		return n, e
	}
	var n uintptr
	e := unix.EINVAL
	if listen { // since Linux 5.19 no signal interrupts what is being answered
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
		n, e = set(flags | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	}
	if e == unix.EINVAL {
		n, e = set(flags)
	}
	if e != 0 {
		return -1, fmt.Errorf("install a seccomp filter of %d instructions: %w", len(p), e)
	}
	return cmp.Or(int(n), -1), nil
}

// seccompOffered reports whether this thread may be put under a filter.
func seccompOffered() bool {
	if arch == 0 {
		return false
	}
	a := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&a)))
	return e == 0
}
