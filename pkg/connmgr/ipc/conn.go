package ipc

import (
	"errors"
	"strconv"
	"syscall"
	"time"
)

// maxFDs is how many received descriptors may wait to be taken. A Leased brings two.
const maxFDs = 8

// Errors of a connection.
var (
	// ErrClosed says that the manager ended the connection or died.
	ErrClosed = errors.New("connection manager closed the connection")
	// ErrSilent says that nothing came for Patience, not even a Wait.
	ErrSilent = errors.New("connection manager does not answer")
)

// Conn is a wrapper's end of a connection: one blocking descriptor. Interrupt may be called from any
// goroutine; everything else from one goroutine at a time.
type Conn struct {
	fd   int
	in   []byte // received; in[:used] has been handed out
	used int
	fds  []int // received and not taken yet
}

// Dial connects to the manager that listens on the socket path. Its errors are those of the system calls, of
// type syscall.Errno: ENOENT and ECONNREFUSED mean that no manager runs.
func Dial(path string) (*Conn, error) {
	name, dir, err := ShortPath(path)
	if err != nil {
		return nil, err
	}
	if dir >= 0 {
		defer syscall.Close(dir)
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	err = retry(func() error { return syscall.Connect(fd, &syscall.SockaddrUnix{Name: name}) })
	if err != nil {
		syscall.Close(fd)
		return nil, err
	}
	c := &Conn{fd: fd, in: make([]byte, 0, 4096)}
	if err := c.SetPatience(Patience); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Adopt returns a Conn on the connected descriptor fd, on which in and the descriptors fds have been received. It owns them all.
// Patience has been set.
func Adopt(fd int, in []byte, fds []int) *Conn { return &Conn{fd: fd, in: in, fds: fds} }

// SetPatience sets how long Recv and Send wait for the manager before they return ErrSilent.
func (c *Conn) SetPatience(d time.Duration) error {
	tv := syscall.NsecToTimeval(int64(d))
	for _, o := range [...]int{syscall.SO_RCVTIMEO, syscall.SO_SNDTIMEO} {
		if err := syscall.SetsockoptTimeval(c.fd, syscall.SOL_SOCKET, o, &tv); err != nil {
			return err
		}
	}
	return nil
}

// PeerUID returns the user that the manager runs as, as the kernel recorded it.
func (c *Conn) PeerUID() (uint32, error) {
	cred, err := syscall.GetsockoptUcred(c.fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// PeerPID returns the process that opened the manager's socket, as the kernel recorded it: the manager, or the
// service manager that opened it for that. It returns 0 for a process of another PID namespace.
func (c *Conn) PeerPID() (int, error) {
	cred, err := syscall.GetsockoptUcred(c.fd, syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// Detach returns the descriptor for another protocol, which both ends have agreed on, and what was received of that
// already. The caller owns both; of c, nothing may be called any more.
func (c *Conn) Detach() (fd int, received []byte) {
	for _, fd := range c.fds {
		syscall.Close(fd)
	}
	return c.fd, c.in[c.used:]
}

// Send writes whole frames.
func (c *Conn) Send(b []byte) error {
	for len(b) > 0 {
		n, err := syscall.SendmsgN(c.fd, b, nil, nil, syscall.MSG_NOSIGNAL)
		switch err {
		case nil:
			b = b[n:]
		case syscall.EINTR:
		case syscall.EAGAIN:
			return ErrSilent
		case syscall.EPIPE, syscall.ECONNRESET:
			return ErrClosed
		default:
			return err
		}
	}
	return nil
}

// Recv waits for the next frame that is neither a Wait nor a Place: who calls it goes by the Result. The fields are valid until the next
// call. The error is ErrClosed, ErrSilent, ErrMalformed or a syscall.Errno; the connection cannot be used after it.
func (c *Conn) Recv() (Kind, []byte, error) {
	for {
		if k, fields, err := c.RecvPlace(); k != KindPlace {
			return k, fields, err
		}
	}
}

// RecvPlace is Recv for those who go by a Place if there is one.
func (c *Conn) RecvPlace() (Kind, []byte, error) {
	for {
		k, fields, n, want, err := Next(c.in[c.used:])
		if err != nil {
			return 0, nil, err
		}
		if n > 0 {
			c.used += n
			if k != KindWait {
				return k, fields, nil
			}
			continue
		}
		if err := c.fill(want); err != nil {
			return 0, nil, err
		}
	}
}

// fill reads more bytes, after making room for a frame of want bytes.
func (c *Conn) fill(want int) error {
	rest := len(c.in) - c.used
	if cap(c.in) < want {
		bigger := make([]byte, rest, want)
		copy(bigger, c.in[c.used:])
		c.in = bigger
	} else {
		copy(c.in[:cap(c.in)], c.in[c.used:])
		c.in = c.in[:rest]
	}
	c.used = 0
	var oob [64]byte // CMSG_SPACE(maxFDs descriptors) is 48
	for {
		n, oobn, _, _, err := syscall.Recvmsg(c.fd, c.in[rest:cap(c.in)], oob[:], syscall.MSG_CMSG_CLOEXEC)
		switch err {
		case nil:
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return ErrSilent
		case syscall.ECONNRESET:
			return ErrClosed
		default:
			return err
		}
		if oobn > 0 {
			if err := c.takeRights(oob[:oobn]); err != nil {
				return err
			}
		}
		if n == 0 {
			return ErrClosed
		}
		c.in = c.in[:rest+n]
		return nil
	}
}

func (c *Conn) takeRights(oob []byte) error {
	fds, err := ParseRights(oob)
	c.fds = append(c.fds, fds...)
	if err == nil && len(c.fds) > maxFDs {
		err = ErrMalformed
	}
	return err
}

// ParseRights returns the descriptors in a received control buffer. The caller owns them, also those that come
// with an error.
func ParseRights(oob []byte) ([]int, error) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, ErrMalformed
	}
	var all []int
	for i := range msgs {
		fds, err := syscall.ParseUnixRights(&msgs[i])
		if err != nil {
			return all, ErrMalformed
		}
		all = append(all, fds...)
	}
	return all, nil
}

// TakeFDs returns the n descriptors that came with the last frame; the caller owns them. If their number is
// not n, it closes all and returns ErrMalformed.
func (c *Conn) TakeFDs(n int) ([]int, error) {
	fds := c.fds
	c.fds = nil
	if len(fds) != n {
		for _, fd := range fds {
			syscall.Close(fd)
		}
		return nil, ErrMalformed
	}
	return fds, nil
}

// Interrupt makes a waiting Recv or Send, and every later one, return ErrClosed. The manager sees the end of
// the connection.
func (c *Conn) Interrupt() { _ = syscall.Shutdown(c.fd, syscall.SHUT_RDWR) } // fails only if the peer has gone

// Close ends the connection and closes the descriptors that were not taken.
func (c *Conn) Close() {
	for _, fd := range c.fds {
		syscall.Close(fd)
	}
	c.fds = nil
	syscall.Close(c.fd)
}

// maxSunPath is the length of the longest name that a sockaddr_un can hold, without the final NUL.
const maxSunPath = 107

// ShortPath returns a name for path that fits into a sockaddr_un: path itself, with dir -1, or a name under
// /proc/self/fd that goes through dir, an open descriptor of path's directory. The caller closes dir when the
// name is no longer needed.
func ShortPath(path string) (name string, dir int, err error) {
	if len(path) <= maxSunPath {
		return path, -1, nil
	}
	slash := len(path) - 1
	for slash > 0 && path[slash] != '/' {
		slash--
	}
	if path[slash] != '/' {
		return "", -1, syscall.ENAMETOOLONG
	}
	err = retry(func() error {
		dir, err = syscall.Open(path[:slash+1], oPath|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return "", -1, err
	}
	name = "/proc/self/fd/" + strconv.Itoa(dir) + path[slash:]
	if len(name) > maxSunPath {
		syscall.Close(dir)
		return "", -1, syscall.ENAMETOOLONG
	}
	return name, dir, nil
}

const oPath = 0x200000 // O_PATH, which package syscall lacks

// retry calls f until it returns something else than EINTR.
func retry(f func() error) error {
	for {
		if err := f(); err != syscall.EINTR {
			return err
		}
	}
}
