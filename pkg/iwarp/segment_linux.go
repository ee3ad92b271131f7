//go:build !race

package iwarp

import "golang.org/x/sys/unix"

// sendSegment writes p as far as the socket takes it, and if that is all of it, ends
// TCP's segment behind it: MSG_EOR keeps the kernel from adding to the packet what
// is written next. again says that the socket takes nothing now.
func sendSegment(fd int, p []byte) (n int, again bool, err error) {
	for {
		n, err = unix.SendmsgN(fd, p, nil, nil, unix.MSG_EOR|unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			return n, false, nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return 0, true, nil
		}
		return 0, false, err
	}
}
