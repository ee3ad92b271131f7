package lookups

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a stop says (PTRACE_GETEVENTMSG): which argument of the call is the name, or that nothing is known of the call.
const (
	nameFirst = 1 + iota
	nameSecond
	unseen
)

// x32 is a bit in the numbers of an amd64 kernel's x32 calls.
const x32 = 0x4000_0000

// program returns a seccomp filter that stops a traced thread in the calls that look up names, and in those of another architecture,
// whose numbers mean something else.
func program() []unix.SockFilter {
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	jump := func(op uint16, value uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, K: value, Jt: yes, Jf: no}
	}
	ret := func(v uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: v} }
	p := []unix.SockFilter{
		load(4), jump(unix.BPF_JEQ, arch, 1, 0), ret(unix.SECCOMP_RET_TRACE | unseen),
		load(0), jump(unix.BPF_JGE, x32, 0, 1), ret(unix.SECCOMP_RET_TRACE | unseen),
	}
	for what, calls := range [...][]uint32{nameFirst: first, nameSecond: second} {
		for _, nr := range calls {
			p = append(p, jump(unix.BPF_JEQ, nr, 0, 1), ret(unix.SECCOMP_RET_TRACE|uint32(what)))
		}
	}
	return append(p, ret(unix.SECCOMP_RET_ALLOW))
}

// filter puts this thread, which can then look up no names itself, and everything that it starts under the filter. The thread has to
// be locked to its goroutine, and to end with it.
func filter() error {
	if arch == 0 {
		return fmt.Errorf("%w on %s", ErrUnseen, runtime.GOARCH)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("%w: no_new_privs: %w", ErrUnseen, err)
	}
	p := program()
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	// The mitigations against speculation would only slow the program down.
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(p)
	if e != 0 {
		return fmt.Errorf("%w: seccomp: %w", ErrUnseen, e)
	}
	return nil
}
