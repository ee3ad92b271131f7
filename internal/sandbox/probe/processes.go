package probe

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// processes are attempts on other processes, and on what they share.
var processes = []Attempt{
	{Name: "ptrace", Class: Process, Do: func(t *Targets) error { return onProcess(t, unix.PtraceSeize) }},
	{Name: "process-vm-readv", Class: Process, Do: func(t *Targets) error { return onProcess(t, readMemory) }},
	{Name: "process-vm-writev", Class: Process, Do: func(t *Targets) error { return onProcess(t, writeMemory) }},
	{Name: "signal-none", Class: Process, Do: func(t *Targets) error { return onProcess(t, func(p int) error { return unix.Kill(p, 0) }) }},
	{Name: "signal-continue", Class: Process, Do: func(t *Targets) error { return onProcess(t, func(p int) error { return unix.Kill(p, unix.SIGCONT) }) }},
	{Name: "signal-group", Class: Process, Do: func(t *Targets) error { return onProcess(t, func(p int) error { return unix.Kill(-p, unix.SIGCONT) }) }},
	{Name: "signal-thread", Class: Process, Do: func(t *Targets) error {
		return onProcess(t, func(p int) error { return unix.Tgkill(p, p, unix.SIGCONT) })
	}},
	{Name: "signal-by-descriptor", Class: Process, Do: func(t *Targets) error { return onProcess(t, signalPidfd) }},
	{Name: "steal-descriptor", Class: Process, Do: func(t *Targets) error { return onProcess(t, stealDescriptor) }},
	{Name: "enter-namespace", Class: Process, Do: func(t *Targets) error { return opens(procOf(t, "ns/net"), unix.O_RDONLY) }},
	{Name: "compare-process", Class: Process, Do: func(t *Targets) error { return onProcess(t, compare) }},
	{Name: "read-limits", Class: Info, Do: func(t *Targets) error { return onProcess(t, readLimits) }},
	{Name: "set-limits", Class: Process, Do: func(t *Targets) error { return onProcess(t, setLimits) }},
	{Name: "set-priority", Class: Process, Do: func(t *Targets) error { return onProcess(t, setPriority) }},
	{Name: "set-affinity", Class: Process, Do: func(t *Targets) error { return onProcess(t, setAffinity) }},
	{Name: "see-process", Class: Info, Do: func(t *Targets) error { return lists(procOf(t, "")) }},
	{Name: "new-session", Class: Process, Do: func(*Targets) error { _, err := unix.Setsid(); return err }},
	{Name: "new-group", Class: Process, Do: func(*Targets) error { return unix.Setpgid(0, 0) }},
	{Name: "shared-memory", Class: Process, Do: func(t *Targets) error { return shared(unix.SYS_SHMGET, t.ShmKey) }},
	{Name: "new-shared-memory", Class: Process, Do: newSharedMemory},
	{Name: "message-queue", Class: Process, Do: openQueue},
}

// onProcess does something to the other process. With a pid namespace that number may be one of this program's.
func onProcess(t *Targets, do func(pid int) error) error {
	if procOf(t, "") == "" {
		return unix.ESRCH
	}
	return do(t.Process)
}

// readMemory and writeMemory ask for memory that does not exist: a process that gets that far had the right.
func readMemory(pid int) error {
	var buf [1]byte
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{{Base: &buf[0], Len: 1}}, []unix.RemoteIovec{{Base: 8, Len: 1}}, 0)
	return past(err, unix.EFAULT)
}

func writeMemory(pid int) error {
	var buf [1]byte
	_, err := unix.ProcessVMWritev(pid, []unix.Iovec{{Base: &buf[0], Len: 1}}, []unix.RemoteIovec{{Base: 8, Len: 1}}, 0)
	return past(err, unix.EFAULT)
}

// past counts errors that come only after the check of rights as success.
func past(err error, behind ...unix.Errno) error {
	for _, no := range behind {
		if err == no {
			return nil
		}
	}
	return err
}

func signalPidfd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	return unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
}

func stealDescriptor(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, 0, 0)
	return past(err, unix.EBADF)
}

func compare(pid int) error {
	const vm = 1 // KCMP_VM
	_, _, no := unix.RawSyscall6(unix.SYS_KCMP, uintptr(pid), uintptr(unix.Getpid()), vm, 0, 0, 0)
	return errno(no)
}

func readLimits(pid int) error {
	var l unix.Rlimit
	return unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &l)
}

func setLimits(pid int) error {
	var l unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_CORE, nil, &l); err != nil {
		return err
	}
	return unix.Prlimit(pid, unix.RLIMIT_CORE, &l, nil)
}

func setPriority(pid int) error {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, pid)
	if err != nil {
		return err
	}
	return unix.Setpriority(unix.PRIO_PROCESS, pid, 20-n) // the system call counts the other way
}

func setAffinity(pid int) error {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(pid, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(pid, &set)
}

// shared finds a System V object by its key.
func shared(call uintptr, key int) error {
	if key == 0 {
		return unix.ENOENT
	}
	_, _, no := unix.RawSyscall(call, uintptr(key), 0, 0)
	return errno(no)
}

// newSharedMemory makes a segment that would outlive the job.
func newSharedMemory(*Targets) error {
	id, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err == nil {
		_, err = unix.SysvShmCtl(id, unix.IPC_RMID, nil)
	}
	return err
}

// openQueue opens a POSIX message queue.
func openQueue(t *Targets) error {
	if t.Queue == "" {
		return unix.ENOENT
	}
	name, err := unix.BytePtrFromString(t.Queue)
	if err != nil {
		return err
	}
	_, _, no := unix.RawSyscall6(unix.SYS_MQ_OPEN, pointer(name), unix.O_RDONLY|unix.O_NONBLOCK, 0, 0, 0, 0)
	return errno(no)
}

func errno(no unix.Errno) error {
	if no != 0 {
		return no
	}
	return nil
}

func pointer[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
