// Command contained starts a command under a system call filter like that which Docker gives containers by default: no
// namespaces, no mounts, none of the calls that have holes. `.ci/bare -container` runs the tests so.
//
// The filter stays for all that the command starts. The caller is root, so that no_new_privs need not be set, which Docker
// does not set either, and drops capabilities afterwards.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// denied are calls that fail with EPERM, as for a container without CAP_SYS_ADMIN.
var denied = []uint32{unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_FANOTIFY_INIT,
	unix.SYS_QUOTACTL, unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
	unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_ACCT, unix.SYS_VHANGUP,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME, unix.SYS_LOOKUP_DCOOKIE}

// namespaces are the flags with which clone fails alike.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

func filter() []unix.SockFilter {
	const nr, arg0 = 0, 16 // offsets in struct seccomp_data; flags are the lower half of the argument
	load := func(off uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: off}
	}
	equal := func(k uint32, skip uint8) unix.SockFilter { // goes on behind the next one if it is not k
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	fail := func(errno uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | errno}
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	// clone3 has its flags in memory, where no filter can look: the C library then takes clone.
	all := []unix.SockFilter{load(nr), equal(unix.SYS_CLONE3, 1), fail(uint32(unix.ENOSYS)), equal(unix.SYS_CLONE, 4),
		load(arg0), {Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: namespaces, Jf: 1}, fail(uint32(unix.EPERM)), allow}
	for _, call := range denied {
		all = append(all, equal(call, 1), fail(uint32(unix.EPERM)))
	}
	return append(all, allow)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "contained:", err)
		os.Exit(1)
	}
}

// run becomes the command; it returns only with an error.
func run(command []string) error {
	if len(command) == 0 {
		return fmt.Errorf("usage: contained COMMAND [ARGUMENT...]")
	}
	path, err := exec.LookPath(command[0])
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	code := filter()
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return unix.Exec(path, slices.Clone(command), os.Environ())
}
