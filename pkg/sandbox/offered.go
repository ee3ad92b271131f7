package sandbox

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// nothing is the name of no file.
const nothing = "/proc/self/no such file"

// Offered says which measures this machine offers to this process, by trying each: on
// a thread and in a process that end with that. A tree that New refuses all the same says why.
func Offered() Set {
	s := Bounds
	tried := make(chan Set)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		_, set, err := Start(&Policy{})
		if err != nil {
			set = NoNewPrivs
		}
		tried <- set
	}()
	s |= <-tried
	if namespacesOffered() {
		s |= Tree | Processes | Network | IPC
	}
	if MayBecome() {
		s |= User
	}
	if _, err := delegated(); err == nil {
		s |= Cgroup
	}
	return s
}

// namespacesOffered makes the namespaces of a tree, with a user namespace where this process has no right to mount, and
// changes a mount in them; to execute nothing is what fails at last.
func namespacesOffered() bool {
	sys := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWNET,
		// Go's library makes all mounts private then: that takes the right to mount.
		Unshareflags: unix.CLONE_NEWNS,
	}
	if !Has(unix.CAP_SYS_ADMIN) {
		sys.Cloneflags |= unix.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	_, err := syscall.ForkExec(nothing, []string{nothing}, &syscall.ProcAttr{Sys: sys})
	return errors.Is(err, fs.ErrNotExist)
}

// Has says whether this process has a capability (unix.CAP_...).
func Has(capability int) bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

// Incapable says that this thread has no capability, and can make none effective.
func Incapable() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[0].Permitted|data[1].Permitted == 0
}

// MayBecome says whether this process may start others as another user, and give files to it.
func MayBecome() bool {
	return Has(unix.CAP_SETUID) && Has(unix.CAP_SETGID) && Has(unix.CAP_CHOWN) && Has(unix.CAP_KILL)
}
