package privatetree

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// A bare tree has no namespaces. Its commands see the host's names, and can open those of them that Landlock
// permits. A list of system calls keeps them from leaving their process group, which is killed at once.
// This process reaps what they leave.

// bareRoot prepares Spec.Bare, and returns a descriptor of it.
func (c *child) bareRoot(s *Spec) (int, error) {
	step := func(err error) (int, error) { return -1, &stepError{"use " + s.Bare, err, false} }
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return step(err)
	}
	if err := bareEmpty(s); err != nil {
		return step(err)
	}
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

// bareEmpty checks that nothing is in a bare tree but what the caller has made, and makes its /tmp.
func bareEmpty(s *Spec) error {
	unix.Umask(0o022)
	if s.Answered { // Tree.mark has done so
		return nil
	}
	list, err := os.ReadDir(s.Bare)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return errors.New("directory is not empty")
	}
	if err := unix.Mkdir(s.Bare+"/tmp", 0o777); err != nil {
		return err
	}
	return unix.Chmod(s.Bare+"/tmp", 0o1777)
}

// killStrays kills what has left its process group: where system calls are filtered nothing can.
func (c *child) killStrays() {
	if c.measures.Has(sandbox.Seccomp) || c.family == nil {
		return
	}
	c.ask(func() {
		_, _ = c.family.Usage(0, func(pid int) { _ = unix.Kill(pid, unix.SIGKILL) })
	})
}

// ownUsers reports whether this process is in a user namespace other than the machine's first one.
func ownUsers() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b))
	return len(f) != 3 || f[2] != "4294967295"
}
