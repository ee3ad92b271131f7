package tree

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/sandbox"
)

// A bare tree has no namespaces. Its commands see the host's names, and what Landlock lets them open of
// that; system calls by list keep them from leaving their process group, which is killed at once.
// What they leave is this process's to reap.

// bareRoot makes Spec.Bare ready, and gives a descriptor of it.
func (c *child) bareRoot(s *Spec) (int, error) {
	step := func(err error) (int, error) { return -1, &stepError{"use " + s.Bare, err, false} }
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return step(err)
	}
	list, err := os.ReadDir(s.Bare)
	if err != nil {
		return step(err)
	}
	if len(list) > 0 {
		return step(errors.New("directory is not empty"))
	}
	unix.Umask(0)
	if err := unix.Mkdir(s.Bare+"/tmp", 0o1777); err != nil {
		return step(err)
	}
	unix.Umask(0o022)
	fd, err := unix.Open(s.Bare, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return step(err)
	}
	if err := unix.Chmod(s.Bare, 0o700); err != nil {
		return step(err)
	}
	if c.cred != nil {
		err = unix.Chown(s.Bare, s.UID, s.GID)
	}
	if err != nil {
		return step(err)
	}
	return fd, nil
}

// killStrays kills what has left its process group: nothing can where system calls are by list.
func (c *child) killStrays() {
	if c.measures.Has(sandbox.Seccomp) || c.family == nil {
		return
	}
	c.ask(func() {
		_, _ = c.family.Usage(0, func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) })
	})
}

// ownUsers reports whether this process is in another user namespace than the machine's first one.
func ownUsers() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	return len(f) != 3 || f[2] != "4294967295"
}
