package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// become gives up root's rights for good. Compilers run on behalf of others: as root
// they could do to this machine whatever a source makes them do.
func become(name string) error {
	if os.Geteuid() != 0 {
		if name != "" {
			if u, err := user.Current(); err != nil || u.Username != name {
				return usageError{fmt.Errorf("become user %s: only root can; leave out --user", name)}
			}
		}
		return nil
	}
	if name == "" {
		return nil // compiles get users of their own
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
	return nil
}

// seclude keeps this process's memory, environment and descriptors from other processes of the same
// user, above all compiles: they cannot open its files in /proc, and cannot trace it. Core dumps are
// off: its memory has keys and sources, and those of compilers would land in the work directory.
func seclude() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("keep this process private: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core dumps: %w", err)
	}
	return nil
}
