package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// become gives up root's rights for good. Compilers are run for others: as root
// they could do to this machine whatever a source makes them do.
func become(name string, log *slog.Logger) error {
	if os.Geteuid() != 0 {
		if name != "" {
			if u, err := user.Current(); err != nil || u.Username != name {
				return usageError{fmt.Errorf("become user %s: only root can; leave out --user", name)}
			}
		}
		return nil
	}
	if name == "" {
		log.Warn("compilers run as root; name another user with --user")
		return nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return usageError{fmt.Errorf("become user %s: %w", name, err)}
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}
	if err := errors.Join(syscall.Setgroups([]int{gid}), syscall.Setgid(gid), syscall.Setuid(uid)); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}
	// A change of user takes the right to open one's own descriptors anew.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become user %s: %w", name, err)
	}
	return nil
}
