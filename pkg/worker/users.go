package worker

import (
	"fmt"
	"log/slog"

	"golang.org/x/sys/unix"
)

// usersTried is how many numbers a daemon looks at for some that no other daemon of this
// machine has: as many as systemd keeps for such users (61184 to 65519).
const usersTried = 65519 - 61184 + 1

// users is a range of user numbers that this daemon alone has among those of the machine: the
// kernel counts a user's processes on the whole machine, and a compile of one daemon's
// must not use up, or signal, what is another's. A number is claimed by an abstract
// socket's name, which the kernel takes back when the process ends, however that is.
type users struct {
	first   int
	sockets []int
}

// claimUsers takes count numbers in a row of the tried ones from first on. Where none
// are free, it takes the first ones without a claim, which is said in the log: whoever keeps names
// of sockets taken must not decide that compiles run as this process's own user.
func claimUsers(first, count, tried int, log *slog.Logger) users {
	for at := first; at+count <= first+tried; {
		u := users{first: at}
		n, err := u.claim(count)
		if err == nil {
			return u
		}
		u.release()
		if err != unix.EADDRINUSE {
			log.Warn("the users that compiles run as are not claimed", "first", first, "err", err)
			return users{first: first}
		}
		at = n + 1
	}
	log.Warn("other daemons have all users that compiles could run as; their processes count together: set daemon.compile-users", "first", first, "tried", tried)
	return users{first: first}
}

// claim is for all numbers, or gives the first that it could not have.
func (u *users) claim(count int) (n int, err error) {
	for n = u.first; n < u.first+count; n++ {
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

// release gives the numbers back.
func (u *users) release() {
	for _, fd := range u.sockets {
		unix.Close(fd)
	}
	u.sockets = nil
}
