package privatetree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mayMount reports whether this process can make mount namespaces without a user namespace around them.
func mayMount() bool {
	if os.Geteuid() != 0 {
		return false
	}
	var data [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &data[0])
	return err == nil && data[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// switches lists settings of Linux distributions that keep users from making namespaces, and the values that do.
var switches = []struct{ name, off, remedy string }{
	{"user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
	{"user.max_mnt_namespaces", "0", "sysctl user.max_mnt_namespaces=10000"},
	{"user.max_pid_namespaces", "0", "sysctl user.max_pid_namespaces=10000"},
	{"user.max_ipc_namespaces", "0", "sysctl user.max_ipc_namespaces=10000"},
	{"user.max_net_namespaces", "0", "sysctl user.max_net_namespaces=10000"},
	{"kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
	{"kernel.apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
}

// refusals lists the errors by which the kernel refuses to make namespaces or mounts for this process, or at all, or
// reports that a limit is zero.
var refusals = []error{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EUSERS, unix.EINVAL, unix.ENOSYS}

// noRight returns an ErrNoRight that says which step failed, and what would help.
func noRight(step string, err error) error {
	if step != "" {
		err = fmt.Errorf("%s: %w", step, err)
	}
	if !slices.ContainsFunc(refusals, func(no error) bool { return errors.Is(err, no) }) {
		return err
	}
	for _, s := range switches {
		v, rerr := os.ReadFile("/proc/sys/" + strings.ReplaceAll(s.name, ".", "/"))
		if rerr == nil && strings.TrimSpace(string(v)) == s.off {
			return fmt.Errorf("%w: %w (%s is %s; remedy: %s)", ErrNoRight, err, s.name, s.off, s.remedy)
		}
	}
	remedy := "user namespaces are forbidden to this process; remedy: permit them where it is contained, or give it CAP_SYS_ADMIN"
	if mayMount() {
		remedy = "forbidden to root too where it is contained; remedy: a seccomp and AppArmor profile that permits mount and pivot_root"
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		remedy = "there are as many namespaces as may be; remedy: higher values of sysctl user.max_*_namespaces"
	}
	return fmt.Errorf("%w: %w (%s)", ErrNoRight, err, remedy)
}
