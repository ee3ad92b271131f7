// Package sandboxtest makes a process run as under a kernel, or in a container, that offers less.
package sandboxtest

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// refusal is a system call that fails; with a mask, only if the argument has one of its bits.
type refusal struct {
	nr   uintptr
	arg  int
	mask uint32
	err  unix.Errno
}

const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// refusals has the system calls to refuse for each name that Without accepts.
var refusals = map[string][]refusal{
	"landlock":               {{nr: unix.SYS_LANDLOCK_CREATE_RULESET, err: unix.ENOSYS}},
	"landlock, switched off": {{nr: unix.SYS_LANDLOCK_CREATE_RULESET, err: unix.EOPNOTSUPP}},
	"landlock, broken":       {{nr: unix.SYS_LANDLOCK_RESTRICT_SELF, err: unix.E2BIG}},
	"seccomp":                {{nr: unix.SYS_SECCOMP, err: unix.EINVAL}},
	"listener":               {{nr: unix.SYS_SECCOMP, arg: 1, mask: unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, err: unix.EBUSY}},
	"others' memory":         {{nr: unix.SYS_PROCESS_VM_READV, err: unix.EPERM}}, // as with Yama's ptrace_scope=2
	"namespaces":             {{nr: unix.SYS_UNSHARE, err: unix.EPERM}, {nr: unix.SYS_CLONE, mask: namespaces, err: unix.EPERM}, {nr: unix.SYS_CLONE3, err: unix.ENOSYS}},
	"mounts":                 {{nr: unix.SYS_MOUNT, err: unix.EACCES}},
	"users":                  {{nr: unix.SYS_CAPGET, err: unix.EPERM}},
	"what docker denies": {
		{nr: unix.SYS_UNSHARE, err: unix.EPERM}, {nr: unix.SYS_SETNS, err: unix.EPERM}, {nr: unix.SYS_CLONE, mask: namespaces, err: unix.EPERM},
		{nr: unix.SYS_CLONE3, err: unix.ENOSYS}, {nr: unix.SYS_MOUNT, err: unix.EPERM}, {nr: unix.SYS_UMOUNT2, err: unix.EPERM},
		{nr: unix.SYS_PIVOT_ROOT, err: unix.EPERM}, {nr: unix.SYS_OPEN_TREE, err: unix.EPERM}, {nr: unix.SYS_MOVE_MOUNT, err: unix.EPERM},
		{nr: unix.SYS_MOUNT_SETATTR, err: unix.EPERM}, {nr: unix.SYS_BPF, err: unix.EPERM}, {nr: unix.SYS_PERF_EVENT_OPEN, err: unix.EPERM},
		{nr: unix.SYS_KEYCTL, err: unix.EPERM}, {nr: unix.SYS_ADD_KEY, err: unix.EPERM}, {nr: unix.SYS_REQUEST_KEY, err: unix.EPERM},
		{nr: unix.SYS_USERFAULTFD, err: unix.EPERM}, {nr: unix.SYS_IO_URING_SETUP, err: unix.EPERM},
	},
}

// Without takes the features that its arguments name from all threads of this process and everything that
// it starts. It cannot be undone: a test calls it in a process of its own.
func Without(what ...string) error {
	ins := func(code uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k}
	}
	const load, equal, has, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	var p []unix.SockFilter
	for _, w := range what {
		list, ok := refusals[w]
		if !ok {
			return fmt.Errorf("nothing is called %q", w)
		}
		for _, r := range list {
			mask := r.mask
			p = append(p, ins(load, 0, 0, 0), ins(equal, uint32(r.nr), 0, 3), ins(load, uint32(16+8*r.arg), 0, 0))
			if mask == 0 {
				p = append(p, ins(has, 0, 0, 0))
			} else {
				p = append(p, ins(has, mask, 0, 1))
			}
			p = append(p, ins(ret, unix.SECCOMP_RET_ERRNO|uint32(r.err), 0, 0))
		}
	}
	p = append(p, ins(ret, unix.SECCOMP_RET_ALLOW, 0, 0))
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return errors.Join(errors.New("refuse system calls"), e)
	}
	return nil
}
