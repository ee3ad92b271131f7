package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock (landlock(7)) takes from a thread everything without a rule. Its ABI number says
// which rights the kernel knows. All of those are handled, so everything without a
// rule is refused:
//
//	1  Linux 5.13  files and directories   5  6.10  ioctl of devices
//	2  5.19        renames across them     6  6.12  signals and abstract sockets leave the domain
//	3  6.2         truncating              7  6.15  (log only)
//	4  6.7         TCP                     9  7.1   named Unix sockets
//
// Below 3 a file could be truncated by name alone, but the system calls that do so are not in our list.
const (
	fileRights  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE
	firstRights = 1<<13 - 1 // of ABI 1
	netRights   = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	scopes      = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL
)

// Rights that a rule gives.
const (
	readRights  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	execRights  = readRights | unix.LANDLOCK_ACCESS_FS_EXECUTE
	writeRights = readRights | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SYM |
		unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE
)

const (
	scopedSignals = 6 // the first ABI that contains signals
	newestABI     = 9 // the newest one known here; additions of newer ones are not handled
)

// landlockABI returns the kernel's ABI number; 0: it lacks Landlock, or that is disabled.
func landlockABI() int {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// handled returns all rights of an ABI.
func handled(abi int) unix.LandlockRulesetAttr {
	a := unix.LandlockRulesetAttr{Handled_access_fs: firstRights}
	if abi >= 2 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		a.Handled_access_net = netRights
	}
	if abi >= 5 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	if abi >= scopedSignals {
		a.Scoped = scopes
	}
	if abi >= 9 {
		a.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX
	}
	return a
}

// ruleset creates the kernel's form of p; the caller closes it.
func ruleset(p *Policy, abi int) (fd int, err error) {
	attr := handled(abi)
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return -1, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	fd = int(n)
	for _, r := range []struct {
		names  []string
		rights uint64
	}{{p.List, unix.LANDLOCK_ACCESS_FS_READ_DIR}, {p.Read, readRights}, {p.Exec, execRights}, {p.Write, writeRights}} {
		for _, name := range r.names {
			if err := addRule(fd, name, r.rights&attr.Handled_access_fs); err != nil {
				unix.Close(fd)
				return -1, fmt.Errorf("landlock: permit %s: %w", name, err)
			}
		}
	}
	return fd, nil
}

// addRule gives rights to a file, or to a directory and everything below. A missing one needs no rule.
func addRule(ruleset int, name string, rights uint64) error {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR { // the kernel rejects a directory's rights for a file
		if rights &= fileRights | unix.LANDLOCK_ACCESS_FS_TRUNCATE; rights == 0 {
			return nil
		}
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// restrict puts this thread under a ruleset.
func restrict(ruleset int) error {
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(ruleset), 0, 0); errno != 0 {
		return fmt.Errorf("landlock_restrict_self: %w", errno)
	}
	return nil
}
