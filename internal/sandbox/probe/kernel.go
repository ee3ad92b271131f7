package probe

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel are attempts on parts of the kernel that a compile has no use for, and on what it reveals about the machine.
var kernel = []Attempt{
	{Name: "session-keyring", Class: Kernel, Do: func(*Targets) error { return keyctl(0, -3, 0) }}, // KEYCTL_GET_KEYRING_ID of the session's
	{Name: "add-key", Class: Kernel, Do: addKey},
	{Name: "bpf", Class: Kernel, Do: bpf},
	{Name: "perf-event", Class: Kernel, Do: perfEvent},
	{Name: "userfaultfd", Class: Kernel, Do: userfaultfd},
	{Name: "io-uring", Class: Kernel, Do: ioUring},
	{Name: "fanotify", Class: Kernel, Do: fanotify},
	{Name: "inject-typing", Class: Kernel, Do: injectTyping},
	{Name: "personality", Class: Kernel, Do: personality},
	{Name: "other-call-numbers", Class: Kernel, Do: otherNumbers},
	{Name: "descriptors-table", Class: Kernel, Do: modifyLDT},
	{Name: "open-kmsg", Class: Kernel, Do: func(*Targets) error { return opens("/dev/kmsg", unix.O_WRONLY) }},
	{Name: "open-mem", Class: Kernel, Do: func(*Targets) error { return opens("/dev/mem", unix.O_RDONLY) }},
	{Name: "open-ptmx", Class: Kernel, Do: func(*Targets) error { return opens("/dev/ptmx", unix.O_RDWR) }},
	{Name: "open-fuse", Class: Kernel, Do: func(*Targets) error { return opens("/dev/fuse", unix.O_RDWR) }},
	{Name: "open-kvm", Class: Kernel, Do: func(*Targets) error { return opens("/dev/kvm", unix.O_RDWR) }},
	{Name: "write-sysctl", Class: Kernel, Do: func(*Targets) error { return opens("/proc/sys/kernel/hostname", unix.O_WRONLY) }},
	{Name: "write-core-pattern", Class: Kernel, Do: func(*Targets) error { return opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }},
	{Name: "write-sysrq", Class: Kernel, Do: func(*Targets) error { return opens("/proc/sysrq-trigger", unix.O_WRONLY) }},
	{Name: "write-sys", Class: Kernel, Do: func(*Targets) error { return opens("/sys/kernel/mm/ksm/run", unix.O_WRONLY) }},
	{Name: "write-cgroup", Class: Kernel, Do: func(*Targets) error { return opens("/sys/fs/cgroup/cgroup.procs", unix.O_WRONLY) }},
	{Name: "list-sys", Class: Info, Do: func(*Targets) error { return lists("/sys/devices") }},
	{Name: "read-kernel-log", Class: Info, Do: kernelLog},
	{Name: "read-kernel-symbols", Class: Info, Do: func(*Targets) error { return reads("/proc/kallsyms") }},
	{Name: "read-connections", Class: Info, Do: func(*Targets) error { return lineOf("/proc/net/tcp") }},
	{Name: "read-sockets", Class: Info, Do: func(*Targets) error { return lineOf("/proc/net/unix") }},
}

func keyctl(op, a, b int) error {
	_, _, no := unix.RawSyscall(unix.SYS_KEYCTL, uintptr(op), uintptr(a), uintptr(b))
	return errno(no)
}

// addKey puts a key into the keyring of this process, which ends with it.
func addKey(*Targets) error {
	const process = -2
	kind, _ := unix.BytePtrFromString("user")
	name, _ := unix.BytePtrFromString(Arg0)
	ring := process
	_, _, no := unix.RawSyscall6(unix.SYS_ADD_KEY, pointer(kind), pointer(name), pointer(name), 1, uintptr(ring), 0)
	return errno(no)
}

func bpf(*Targets) error {
	attr := [16]uint32{2, 4, 4, 1} // BPF_MAP_CREATE: an array of one value
	_, _, no := unix.RawSyscall(unix.SYS_BPF, 0, pointer(&attr), unsafe.Sizeof(attr))
	return errno(no)
}

func perfEvent(*Targets) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	attr.Size = uint32(unsafe.Sizeof(attr))
	_, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	return err
}

func userfaultfd(*Targets) error {
	const userModeOnly = 1
	_, _, no := unix.RawSyscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	return errno(no)
}

func ioUring(*Targets) error {
	var params [120]byte // struct io_uring_params
	_, _, no := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, pointer(&params), 0)
	return errno(no)
}

func fanotify(*Targets) error {
	const reportFID = 0x200
	_, err := unix.FanotifyInit(reportFID|unix.FAN_CLOEXEC, unix.O_RDONLY)
	return err
}

// injectTyping types a letter on a terminal: the job's, if it has one, else one of its own.
func injectTyping(*Targets) error {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		if fd, err = unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0); err != nil {
			return err
		}
	}
	letter := byte(0)
	_, _, no := unix.RawSyscall(unix.SYS_IOCTL, uintptr(fd), unix.TIOCSTI, pointer(&letter))
	return errno(no)
}

func personality(*Targets) error {
	const readImpliesExec = 0x0400000
	_, _, no := unix.RawSyscall(unix.SYS_PERSONALITY, readImpliesExec, 0, 0)
	return errno(no)
}

// otherNumbers makes a socket by the call's number in the other system call interface that the processor's
// kernel supports: a list of numbers alone does not see it.
func otherNumbers(*Targets) error {
	const x32 = 0x40000000
	if runtime.GOARCH != "amd64" {
		return unix.ENOSYS
	}
	_, _, no := unix.RawSyscall(x32+unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM, 0)
	return errno(no)
}

func modifyLDT(*Targets) error {
	const call = 154 // on amd64
	if runtime.GOARCH != "amd64" {
		return unix.ENOSYS
	}
	var buf [16]byte
	_, _, no := unix.RawSyscall(call, 0, pointer(&buf), uintptr(len(buf)))
	return errno(no)
}

func kernelLog(*Targets) error {
	const size = 10
	_, err := unix.Klogctl(size, nil)
	return err
}

// lineOf requires more than a heading: the table of another network is empty.
func lineOf(name string) error {
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf := make([]byte, 4096)
	n, err := unix.Read(fd, buf)
	if err != nil {
		return err
	}
	lines := 0
	for _, c := range buf[:n] {
		if c == '\n' {
			lines++
		}
	}
	if lines < 2 {
		return unix.ENODATA
	}
	return nil
}
