package privatetree

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// MayMount reports whether this process can make mount namespaces without a user namespace around them.
func MayMount() bool {
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
	what := "user namespaces are forbidden to this process; remedy: " + permit(os.Getenv, exists, "unshare, mount and pivot_root")
	if MayMount() {
		what = "forbidden to root too where it is contained; remedy: " + permit(os.Getenv, exists, "mount and pivot_root")
	}
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EUSERS) {
		what = "there are as many namespaces as may be; remedy: higher values of sysctl user.max_*_namespaces"
	}
	return fmt.Errorf("%w: %w (%s)", ErrNoRight, err, what)
}

// permit says what gives a process the right to some system calls, in terms of what contains it.
func permit(getenv func(string) string, exists func(string) bool, calls string) string {
	profile := "--security-opt seccomp=PROFILE with one that permits " + calls
	switch {
	case getenv("KUBERNETES_SERVICE_HOST") != "":
		return "the chart's value confinement: userns or seccomp (docs/kubernetes.md, Confinement)"
	case exists("/.dockerenv"):
		return "docker run " + profile + ", or as root --cap-add SYS_ADMIN --security-opt apparmor=unconfined (docs/kubernetes.md)"
	case exists("/run/.containerenv"):
		return "podman run " + profile + ", or --cap-add SYS_ADMIN (docs/kubernetes.md)"
	}
	return "permit " + calls + " where it is contained (in a systemd unit: RestrictNamespaces=no), or give it CAP_SYS_ADMIN (docs/kubernetes.md)"
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
