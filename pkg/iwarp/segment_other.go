//go:build !linux || race

package iwarp

import "syscall"

// sendSegment writes p as far as the socket takes it. Where there is no way to end
// a segment, or where the race detector has to see the system call, TCP cuts as it
// likes.
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
