// Package users picks the user numbers that confined compiles run as, one for each runner: numbers that this
// process can become and that no other daemon of the machine has. It also finds directories that such users
// could not enter.
package users

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

const (
	// Default is the first number unless another one is configured. systemd reserves 61184 to 65519 for such
	// users.
	Default = 61184
	// maxTried is how many numbers a daemon tries, from the first on, to find some that no other daemon has.
	maxTried = 65519 - Default + 1
)

// Range is a range of user numbers that no other daemon of the machine uses. The kernel counts a user's
// processes on the whole machine, and a compile of one daemon must not use up the limit of another daemon's
// compiles, or signal them. A number is claimed by the name of an abstract socket, which the kernel frees
// when the process ends, however it ends. Such names are visible only within a network namespace: see spread.
type Range struct {
	First   int
	sockets []int
}

// Claim claims count consecutive numbers, at first or above, that no other daemon has and that this process
// can become. If first is Default, daemons in different network namespaces start at different numbers. An
// error says why compiles cannot have users of their own. If other daemons have all numbers, or a claim
// fails, Claim logs that and returns numbers that are not claimed: a process that occupies the socket names
// must not be able to make compiles run as this process's own user.
func Claim(first, count int, log *slog.Logger) (Range, error) {
	if !sandbox.MayBecome() {
		return Range{}, errors.New("only root can, with the capabilities to change users, to give files away and to kill")
	}
	if text, err := os.ReadFile("/proc/self/setgroups"); err == nil && strings.TrimSpace(string(text)) == "deny" {
		// A process that keeps the daemon's groups would not be confined, and one that gives them up would not start.
		return Range{}, errors.New("/proc/self/setgroups denies this user namespace to give up groups")
	}
	tried := maxTried
	for _, name := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return Range{}, err
		}
		if tried = min(tried, mapped(string(text), first)); tried < count {
			return Range{}, fmt.Errorf("%s does not map the numbers %d to %d", name, first, first+count-1)
		}
	}
	at := first
	if first == Default {
		at += spread(netNamespace(), count, tried)
	}
	return claimAmong(first, at, count, tried, log), nil
}

// firstNamespace is at or above the number of a machine's first network namespace. Later namespaces are
// numbered from there upwards, each with a number of its own.
const firstNamespace = 0xf0000000

// netNamespace returns the number of this process's network namespace, or 0 if it is not known.
func netNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// spread returns the offset, among tried numbers, at which daemons of a network namespace begin to look for
// count of them. Daemons in containers of one machine do not see each other's claims, but the kernel counts
// their users' processes together. If they all began at the same number, they would use the same users, and
// their compiles could not start any process.
func spread(namespace uint64, count, tried int) int {
	if namespace <= firstNamespace || count < 1 || count > tried {
		return 0
	}
	return int((namespace-firstNamespace)%uint64(tried/count)) * count
}

// mapped returns how many consecutive numbers, from first on, a line of a user namespace's map contains. text
// is the whole map.
func mapped(text string, first int) int {
	for line := range strings.Lines(text) {
		f := strings.Fields(line) // inside, outside, length
		if len(f) != 3 {
			continue
		}
		inside, err := strconv.Atoi(f[0])
		length, lerr := strconv.Atoi(f[2])
		if err == nil && lerr == nil && first >= inside && first < inside+length {
			return inside + length - first
		}
	}
	return 0
}

// claimAmong claims numbers among the tried ones from first on. It begins at at, and then tries those before.
func claimAmong(first, at, count, tried int, log *slog.Logger) Range {
	for _, part := range [][2]int{{at, first + tried}, {first, at + count - 1}} {
		for n := part[0]; n+count <= part[1]; {
			u := Range{First: n}
			taken, err := u.claim(count)
			if err == nil {
				return u
			}
			u.Release()
			if err != unix.EADDRINUSE {
				log.Warn("compiles run as users that are not claimed", "first", n, "err", err)
				return Range{First: n}
			}
			n = taken + 1
		}
	}
	log.Warn("other daemons have all users that compiles could run as; their processes count together: set daemon.compile-users", "first", at, "tried", tried)
	return Range{First: at}
}

// claim claims count numbers from u.First on. On an error, n is the first number that it could not claim.
func (u *Range) claim(count int) (n int, err error) {
	for n = u.First; n < u.First+count; n++ {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return n, err
		}
		u.sockets = append(u.sockets, fd)
		if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@rdistccd-user-%d", n)}); err != nil {
			return n, err
		}
	}
	return n, nil
}

// Release gives up the claims.
func (u *Range) Release() {
	for _, fd := range u.sockets {
		unix.Close(fd)
	}
	u.sockets = nil
}

// ClosedTo returns the directory on the way to path, or path itself, that other users cannot enter. It
// returns "" if there is none.
func ClosedTo(path string) string {
	for ; ; path = filepath.Dir(path) {
		if fi, err := os.Stat(path); err != nil || fi.Mode().Perm()&0o001 == 0 {
			return path
		}
		if path == "/" || path == "." {
			return ""
		}
	}
}
