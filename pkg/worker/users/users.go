// Package users finds numbers of users that confined compiles run as, each runner's another:
// whether this process can become them, which ones no other daemon of the machine has, and where
// they could not get to.
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

// Default is the first number where nobody has chosen one, and maxTried how many from the first on
// a daemon looks at for some that no other daemon has: systemd keeps these for such users (61184 to 65519).
const (
	Default  = 61184
	maxTried = 65519 - Default + 1
)

// Range is one of user numbers that this daemon alone has among those of the machine: the
// kernel counts a user's processes on the whole machine, and a compile of one daemon's
// must not use up, or signal, what is another's. A number is claimed by an abstract
// socket's name, which the kernel takes back when the process ends, however that is. Such
// names reach no further than a network namespace: see spread.
type Range struct {
	First   int
	sockets []int
}

// Claim takes count numbers in a row, first or behind it, that no other daemon has and
// that this process can become. From Default on each network namespace begins at its own. An error says why compiles cannot have users. Where other daemons have all
// of them, it takes the first ones without a claim, which is said in the log: whoever keeps names
// of sockets taken must not decide that compiles run as this process's own user.
func Claim(first, count int, log *slog.Logger) (Range, error) {
	if !sandbox.MayBecome() {
		return Range{}, errors.New("only root can, with the capabilities to change users, to give files away and to kill")
	}
	tried := maxTried
	for _, name := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return Range{}, err
		}
		if tried = min(tried, mapped(string(text), first)); tried < count {
			return Range{}, fmt.Errorf("%s has not the numbers %d to %d", name, first, first+count-1)
		}
	}
	at := first
	if first == Default {
		at += spread(netNamespace(), count, tried)
	}
	return claimAmong(first, at, count, tried, log), nil
}

// firstNamespace is the number of a machine's first namespace, or above it. Later ones
// count on from there: no two of a machine have the same.
const firstNamespace = 0xf0000000

// netNamespace is the number of this process's network namespace; 0: that is not known.
func netNamespace() uint64 {
	var st unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &st) != nil {
		return 0
	}
	return st.Ino
}

// spread is how far behind the first of tried numbers the daemons of a network namespace look for count of them.
// Daemons in containers of one machine see nothing of each other's claims, but the kernel counts their users'
// processes together: from the same number on they would have the same users, and their compiles could start nothing.
func spread(namespace uint64, count, tried int) int {
	if namespace <= firstNamespace || count < 1 || count > tried {
		return 0
	}
	return int((namespace-firstNamespace)%uint64(tried/count)) * count
}

// mapped is how many numbers in a row, first and those behind it, one line of a map of a user namespace has.
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

// claimAmong is Claim among the tried numbers from first on: from at on, and then those before.
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
				log.Warn("the users that compiles run as are not claimed", "first", n, "err", err)
				return Range{First: n}
			}
			n = taken + 1
		}
	}
	log.Warn("other daemons have all users that compiles could run as; their processes count together: set daemon.compile-users", "first", at, "tried", tried)
	return Range{First: at}
}

// claim is for all numbers, or gives the first that it could not have.
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

// Release gives the numbers back.
func (u *Range) Release() {
	for _, fd := range u.sockets {
		unix.Close(fd)
	}
	u.sockets = nil
}

// ClosedTo is the directory on the way to path, itself included, that other users cannot
// enter; "" if there is none.
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
