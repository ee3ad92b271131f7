//go:build !race

package iwarp

import "golang.org/x/sys/unix"

// sendSegment writes as much of p as the socket takes, and if that is all of it, ends TCP's
// segment after it: MSG_EOR keeps the kernel from adding what is written next to the same packet.
// again reports that the socket takes no more now.
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
