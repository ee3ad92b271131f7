package probe

import (
	"errors"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// privileges are attempts to gain privileges.
var privileges = []Attempt{
	{Name: "set-uid-root", Class: Privilege, Do: setRoot},
	{Name: "capability", Class: Privilege, Do: hasCapability},
	{Name: "set-id-program", Class: Privilege, Do: setIDProgram},
	{Name: "set-id-bit", Class: Privilege, Do: setIDBit},
	{Name: "make-device", Class: Privilege, Do: makeDevice},
	{Name: "new-user-namespace", Class: Privilege, Do: func(*Targets) error { return unix.Unshare(unix.CLONE_NEWUSER) }},
	{Name: "new-net-namespace", Class: Privilege, Do: func(*Targets) error { return unix.Unshare(unix.CLONE_NEWNET) }},
	{Name: "new-mount-namespace", Class: Privilege, Do: func(*Targets) error { return unix.Unshare(unix.CLONE_NEWNS) }},
	{Name: "clone-user-namespace", Class: Privilege, Do: func(*Targets) error { return cloneWith(unix.CLONE_NEWUSER) }},
	{Name: "clone3-user-namespace", Class: Privilege, Do: clone3},
	{Name: "mount", Class: Privilege, Do: mount},
	{Name: "mount-by-descriptor", Class: Privilege, Do: fsopen},
	{Name: "clone-mount", Class: Privilege, Do: cloneMount},
	{Name: "pivot-root", Class: Privilege, Do: func(*Targets) error { return past(unix.PivotRoot(nowhere, nowhere), unix.ENOENT) }},
	{Name: "chroot", Class: Privilege, Do: func(*Targets) error { return unix.Chroot("/") }},
	{Name: "raise-priority", Class: Privilege, Do: func(*Targets) error { return unix.Setpriority(unix.PRIO_PROCESS, 0, -20) }},
	{Name: "real-time", Class: Privilege, Do: realTime},
	{Name: "raise-limit", Class: Privilege, Do: raiseLimit},
	{Name: "set-host-name", Class: Privilege, Do: setHostName},
	{Name: "set-clock", Class: Privilege, Do: setTimeZone},
	{Name: "load-module", Class: Privilege, Do: loadModule},
	{Name: "reboot", Class: Privilege, Do: reboot},
	{Name: "kexec", Class: Privilege, Do: kexec},
	{Name: "swap-off", Class: Privilege, Do: swapOff},
}

// nowhere is a name that does not exist.
const nowhere = "/nowhere.rdistccd-probe"

// setRoot makes the system call directly. Without cgo, the library function makes all threads of the
// program execute it and waits for them, and a forked process has only one.
func setRoot(*Targets) error {
	was := unix.Geteuid()
	if _, _, no := unix.RawSyscall(unix.SYS_SETRESUID, 0, 0, 0); no != 0 {
		return no
	}
	if was == 0 {
		return hasCapability(nil) // root in name only has no power
	}
	return nil
}

// hasCapability checks the process's capabilities, and those that it could give itself.
func hasCapability(*Targets) error {
	var data [2]unix.CapUserData
	if err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0]); err != nil {
		return err
	}
	for _, d := range data {
		if d.Effective|d.Permitted != 0 {
			return nil
		}
	}
	return unix.EPERM
}

// setIDProgram starts one of the programs that run as root for everyone.
func setIDProgram(*Targets) error {
	err := error(unix.ENOENT)
	for _, name := range []string{"/usr/bin/su", "/usr/bin/mount", "/usr/bin/passwd", "/usr/bin/sudo"} {
		var st unix.Stat_t
		if e := unix.Stat(name, &st); e != nil || st.Mode&unix.S_ISUID == 0 {
			continue
		}
		if err = becomes(name, name, "--version"); err == nil {
			return nil
		}
	}
	return err
}

func setIDBit(*Targets) error {
	name, err := writeOwn(".", nil)
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	if err := unix.Chmod(name, 0o4755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(name, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_ISUID == 0 {
		return unix.EPERM
	}
	return nil
}

func makeDevice(*Targets) error {
	name := scratch("device")
	if err := unix.Mknod(name, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))); err != nil {
		return err
	}
	return unix.Unlink(name)
}

func cloneWith(flags uintptr) error {
	pid, err := fork(flags)
	if err != nil {
		return err
	}
	if pid == 0 {
		leave(0)
	}
	reap(pid)
	return nil
}

// clone3 has its flags where a filter of system calls cannot see them.
func clone3(*Targets) error {
	args := [8]uint64{0: unix.CLONE_NEWUSER, 4: uint64(unix.SIGCHLD)}
	pid, _, no := unix.RawSyscall(unix.SYS_CLONE3, pointer(&args), unsafe.Sizeof(args), 0)
	if no != 0 {
		return no
	}
	if pid == 0 {
		leave(0)
	}
	reap(int(pid))
	return nil
}

func mount(*Targets) error {
	name := scratch("mount")
	if err := unix.Mkdir(name, 0o700); err != nil {
		return err
	}
	defer func() { _ = unix.Rmdir(name) }()
	if err := unix.Mount("probe", name, "tmpfs", 0, "size=4096"); err != nil {
		return err
	}
	return unix.Unmount(name, unix.MNT_DETACH)
}

func fsopen(*Targets) error {
	_, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	return err
}

func cloneMount(*Targets) error {
	_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	return err
}

func realTime(*Targets) error {
	const fifo = 1
	param := int32(1)
	_, _, no := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, fifo, pointer(&param))
	return errno(no)
}

// raiseLimit lowers a limit of its own, and undoes that.
func raiseLimit(*Targets) error {
	var was unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, nil, &was); err != nil {
		return err
	}
	if was.Max == 0 {
		return past(unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 0, Max: 1}, nil))
	}
	if err := unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 0, Max: was.Max - 1}, nil); err != nil {
		return err
	}
	return unix.Prlimit(0, unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: 0, Max: was.Max}, nil)
}

func setHostName(*Targets) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	return unix.Sethostname([]byte(unix.ByteSliceToString(u.Nodename[:])))
}

// setTimeZone sets the kernel's time zone to its current value, which requires the right to set the clock.
func setTimeZone(*Targets) error {
	var zone [2]int32
	if _, _, no := unix.RawSyscall(unix.SYS_GETTIMEOFDAY, 0, pointer(&zone), 0); no != 0 {
		return no
	}
	if zone != [2]int32{} {
		return errors.ErrUnsupported // it could change the clock
	}
	_, _, no := unix.RawSyscall(unix.SYS_SETTIMEOFDAY, 0, pointer(&zone), 0)
	return errno(no)
}

func loadModule(*Targets) error {
	var none byte
	_, _, no := unix.RawSyscall(unix.SYS_INIT_MODULE, 0, 0, pointer(&none))
	return past(errno(no), unix.EFAULT, unix.ENOEXEC)
}

// reboot asks without the magic numbers, without which nothing happens.
func reboot(*Targets) error {
	_, _, no := unix.RawSyscall6(unix.SYS_REBOOT, 0, 0, 0, 0, 0, 0)
	return past(errno(no), unix.EINVAL)
}

func kexec(*Targets) error {
	_, _, no := unix.RawSyscall6(unix.SYS_KEXEC_LOAD, 0, 0, 0, 1<<15, 0, 0) // an invalid flag
	return past(errno(no), unix.EINVAL)
}

func swapOff(*Targets) error {
	name, _ := unix.BytePtrFromString(filepath.Join(nowhere, "swap"))
	_, _, no := unix.RawSyscall(unix.SYS_SWAPOFF, pointer(name), 0, 0)
	return past(errno(no), unix.ENOENT)
}
