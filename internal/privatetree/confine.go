package privatetree

import (
	"errors"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// confine takes from commands what they do not need, and with it from the thread that starts them.
func (c *child) confine(s *Spec) error {
	// Commands of the same user must not reach this process, its memory and its socket.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &stepError{"make the tree's process private", err, false}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return &stepError{"set no_new_privs", err, false}
	}
	if err := dropCapabilities(s); err != nil {
		return err
	}
	if s.Answered { // commands have none, and this thread does for them what they ask for
		var none [2]unix.CapUserData
		if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
			return &stepError{"drop capabilities", err, false}
		}
	}
	c.measures |= sandbox.NoNewPrivs
	if c.cred != nil {
		c.measures |= sandbox.User
	}
	if err := c.limitSelf(); err != nil {
		return &stepError{"limit the tree's process", err, false}
	}
	if !s.Confine {
		return nil
	}
	hold, set, err := sandbox.Start(policy(s))
	if err != nil {
		return &stepError{"confine commands", err, false}
	}
	c.hold = hold
	c.measures |= set
	return nil
}

// policy returns what commands may use.
func policy(s *Spec) *sandbox.Policy {
	p := &sandbox.Policy{UID: s.UID, GID: s.GID, Alone: s.Bare == "", Names: s.Answered}
	p.Exec = append(append(p.Exec, s.Files...), s.Dirs...)
	if s.Bare == "" {
		// The tree contains nothing that they must not see; mounts determine where they may write.
		p.Write = []string{"/"}
		return p
	}
	// A compiler looks for its parts, such as gcc's for clang, in directories with one for each version. A right
	// covers everything below too: a directory that contains the commands' directory is not listed, as other
	// commands' directories are beside that.
	for _, name := range p.Exec {
		dir := path.Dir(path.Dir(name))
		if strings.Count(dir, "/") > 1 && !strings.HasPrefix(s.Bare, dir+"/") && !slices.Contains(p.List, dir) {
			p.List = append(p.List, dir)
		}
	}
	p.Write = []string{s.Bare, "/dev/null", "/dev/zero", "/dev/full"}
	// Nothing of /proc that has the name of a process: a rule would cover only this one's own directory, or
	// all. Following the links in it, as clang does, requires no right.
	p.Read = []string{
		"/dev/urandom", "/dev/random", "/proc/meminfo", "/proc/cpuinfo", "/proc/filesystems", "/sys/devices/system/cpu/online",
		"/etc/ld.so.cache", "/etc/localtime", "/usr/lib/locale", "/usr/share/locale",
	}
	return p
}

// dropCapabilities keeps every executed program from having one, even as root. This thread keeps its own, to kill and
// to become another user.
func dropCapabilities(s *Spec) error {
	for bit := uintptr(0); ; bit++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last one
		}
		if errors.Is(err, unix.EPERM) && (s.UID != 0 || sandbox.Incapable()) {
			break // a user without capabilities, whose programs get none with no_new_privs
		}
		if err != nil {
			return &stepError{"drop capabilities", err, true}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return &stepError{"drop ambient capabilities", err, false}
	}
	return nil
}
