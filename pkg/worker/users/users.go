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

	"github.com/rdistcc/rdistcc/pkg/sandbox"
)

// maxTried is how many numbers a daemon looks at for some that no other daemon of this
// machine has: as many as systemd keeps for such users (61184 to 65519).
const maxTried = 65519 - 61184 + 1

// Range is one of user numbers that this daemon alone has among those of the machine: the
// kernel counts a user's processes on the whole machine, and a compile of one daemon's
// must not use up, or signal, what is another's. A number is claimed by an abstract
// socket's name, which the kernel takes back when the process ends, however that is.
type Range struct {
	First   int
	sockets []int
}

// Claim takes count numbers in a row, first or behind it, that no other daemon has and
// that this process can become. An error says why compiles cannot have users. Where other daemons have all
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
	return claimAmong(first, count, tried, log), nil
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

// claimAmong is Claim among the tried numbers from first on.
func claimAmong(first, count, tried int, log *slog.Logger) Range {
	for at := first; at+count <= first+tried; {
		u := Range{First: at}
		n, err := u.claim(count)
		if err == nil {
			return u
		}
		u.Release()
		if err != unix.EADDRINUSE {
			log.Warn("the users that compiles run as are not claimed", "first", first, "err", err)
			return Range{First: first}
		}
		at = n + 1
	}
	log.Warn("other daemons have all users that compiles could run as; their processes count together: set daemon.compile-users", "first", first, "tried", tried)
	return Range{First: first}
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
