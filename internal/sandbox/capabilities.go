package sandbox

import "golang.org/x/sys/unix"

// Has reports whether this process has a capability (unix.CAP_...).
func Has(capability int) bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[capability/32].Effective&(1<<(capability%32)) != 0
}

// Incapable reports whether this thread has no capability, and can make none effective.
func Incapable() bool {
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[0].Permitted|data[1].Permitted == 0
}

// MayBecome reports whether this process may start others as another user, and give files to it.
func MayBecome() bool {
	return Has(unix.CAP_SETUID) && Has(unix.CAP_SETGID) && Has(unix.CAP_CHOWN) && Has(unix.CAP_KILL)
}
