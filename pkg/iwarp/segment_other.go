//go:build !linux || race

package iwarp

import "syscall"

// sendSegment writes as much of p as the socket takes. Here a segment cannot be ended, or the race
// detector must see the system call, so TCP cuts as it likes.
func sendSegment(fd int, p []byte) (n int, again bool, err error) {
	for {
		n, err = syscall.Write(fd, p)
		switch err {
		case nil:
			return n, false, nil
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return 0, true, nil
		}
		return 0, false, err
	}
}
