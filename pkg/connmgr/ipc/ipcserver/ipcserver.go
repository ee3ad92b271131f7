// Package ipcserver implements the manager's end of the local protocol (package ipc): the socket, its
// connections, and the Wait frames that tell a wrapper that its answer will still come.
package ipcserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/inflight"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// writeTimeout bounds a write to a wrapper that does not read: a stopped process must not block a goroutine
// forever.
const writeTimeout = 10 * time.Second

// handOver is how long a new manager waits for one that is ending. Wrappers wait 3 s for the new one.
const handOver = 2 * time.Second

// maxFDs is how many descriptors one message may carry; wrappers send none.
const maxFDs = 8

// ErrInUse says that another manager serves the socket.
var ErrInUse = errors.New("another connection manager serves it")

// Listen opens the socket path with mode 0600, or 0660 if group is set. It replaces a socket that is not
// served and reaches a path that is too long for a socket address through its directory. It returns ErrInUse
// if another manager serves the socket.
//
// The listener holds a lock on the file path+".lock" until it is closed. The lock keeps apart two managers
// that start on one path at the same time.
func Listen(path string, group bool) (*Listener, error) {
	lock, err := lockFile(path)
	if err != nil {
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	l, err := listen(path, group)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("socket %s: %w", path, err)
	}
	return &Listener{UnixListener: l, path: path, lock: lock}, nil
}

func listen(path string, group bool) (*net.UnixListener, error) {
	name, dir, err := ipc.ShortPath(path)
	if err != nil {
		return nil, err
	}
	if dir >= 0 {
		defer syscall.Close(dir)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // its short name may refer to another file by then
	mode := os.FileMode(0o600)
	if group {
		mode = 0o660
	}
	if err := os.Chmod(path, mode); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// lockFile takes the exclusive lock of the socket path, or returns ErrInUse. If the holder of the lock no
// longer listens, it is about to end, and lockFile waits for it.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	err = flock(f, syscall.LOCK_EX|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK {
		if c, derr := ipc.Dial(path); derr == nil {
			c.Close()
			f.Close()
			return nil, ErrInUse
		}
		got := make(chan error, 1)
		go func() { got <- flock(f, syscall.LOCK_EX) }()
		select {
		case err = <-got:
		case <-time.After(handOver):
			go func() { <-got; f.Close() }()
			return nil, ErrInUse
		}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		if err := syscall.Flock(int(f.Fd()), how); err != syscall.EINTR {
			return err
		}
	}
}

// Listener is the manager's socket.
type Listener struct {
	*net.UnixListener
	path string
	lock *os.File
}

// Path returns the path of the socket, as given to Listen or Adopt.
func (l *Listener) Path() string { return l.path }

// Close removes the socket, stops listening and releases the lock. Connections stay open.
func (l *Listener) Close() error {
	// Removed while the lock is held, so that it is never a successor's socket.
	err := os.Remove(l.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.UnixListener.Close(), l.lock.Close())
}

// Lend calls f with the descriptors of the socket and of its lock, which are valid during the call. A process
// that gets copies of both holds the socket just as l does.
func (l *Listener) Lend(f func(socket, lock int) error) error {
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = f(int(fd), int(l.lock.Fd())) })
	return errors.Join(cerr, err)
}

// Leave stops listening. The socket and its lock stay with the process that got copies of them.
func (l *Listener) Leave() error { return errors.Join(l.UnixListener.Close(), l.lock.Close()) }

// Adopt returns a listener for the socket path from the descriptors that its holder has lent. It owns them,
// even if it fails.
func Adopt(path string, socket, lock int) (*Listener, error) {
	s, k := os.NewFile(uintptr(socket), path), os.NewFile(uintptr(lock), path+".lock")
	defer s.Close() // FileListener has its own copy
	listens, err := syscall.GetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
	if err == nil && listens == 0 {
		err = syscall.EINVAL
	}
	var own, there os.FileInfo
	if err == nil {
		own, err = k.Stat()
	}
	if err == nil {
		there, err = os.Lstat(path + ".lock")
	}
	if err == nil && !os.SameFile(own, there) {
		err = errors.New("its lock is another file's")
	}
	var l net.Listener
	if err == nil {
		l, err = net.FileListener(s)
	}
	if err != nil {
		k.Close()
		return nil, fmt.Errorf("socket %s, from another manager: %w", path, err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		k.Close()
		return nil, fmt.Errorf("socket %s, from another manager: it is %s", path, l.Addr())
	}
	u.SetUnlinkOnClose(false)
	return &Listener{UnixListener: u, path: path, lock: k}, nil
}

// AcceptConn waits for the next wrapper.
func (l *Listener) AcceptConn() (*Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return NewConn(c), nil
}

// MakeDir creates the socket's directory with mode 0700 if it is missing. It returns an error for a directory
// that belongs to another user or that others may write to (ipc.CheckDir).
func MakeDir(dir string) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return ipc.CheckDir(dir)
}

// Conn is the manager's end of one connection. One goroutine at a time may call Recv; Send and Close may be
// called from any.
type Conn struct {
	c         *net.UnixConn
	waitEvery time.Duration // set once in NewConn

	// owned by Recv
	in   []byte
	used int

	mu     sync.Mutex
	owing  bool // guarded by mu: a frame has not been answered yet
	waiter *time.Timer
	closed bool
}

// NewConn returns the manager's end of the connection c. It owns c.
func NewConn(c *net.UnixConn) *Conn {
	return &Conn{c: c, waitEvery: ipc.WaitEvery, in: make([]byte, 0, 1024)}
}

// Peer returns the process, user and group that connected, as the kernel recorded them.
func (c *Conn) Peer() (*syscall.Ucred, error) {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *syscall.Ucred
	cerr := raw.Control(func(fd uintptr) {
		cred, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if cerr != nil {
		return nil, cerr
	}
	return cred, err
}

// Gone reports whether the wrapper has hung up, or the connection is closed, whatever there still is to receive.
func (c *Conn) Gone() bool {
	raw, err := c.c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd)}}
		n, err := unix.Poll(p, 0)
		gone = n > 0 && err == nil && p[0].Revents&unix.POLLHUP != 0
	})
	return gone || err != nil
}

// Recv waits for the next frame. The fields are valid until the next call. An error, such as io.EOF, means
// that the wrapper is gone. If the frame needs an answer, Wait frames go out until Send.
func (c *Conn) Recv() (ipc.Kind, []byte, error) {
	for {
		k, fields, n, want, err := ipc.Next(c.in[c.used:])
		if err != nil {
			return 0, nil, err
		}
		if n > 0 {
			c.used += n
			switch k {
			case ipc.KindLease, ipc.KindWhole, ipc.KindSubmit, ipc.KindLocal, ipc.KindControl, ipc.KindReplace, ipc.KindMade, ipc.KindListed, ipc.KindRan:
				c.owe()
			}
			return k, fields, nil
		}
		if err := c.fill(want); err != nil {
			return 0, nil, err
		}
	}
}

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
	n, err := c.c.Read(c.in[rest:cap(c.in)])
	c.in = c.in[:rest+n]
	if n > 0 {
		return nil
	}
	return err
}

// Send writes one frame as the answer to what was received last. The peer gets duplicates of the descriptors
// fds, which stay the caller's.
func (c *Conn) Send(frame []byte, fds ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owing = false
	if c.waiter != nil {
		c.waiter.Stop()
	}
	return c.sendLocked(frame, fds)
}

func (c *Conn) sendLocked(frame []byte, fds []int) error {
	if c.closed {
		return net.ErrClosed
	}
	if err := c.c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if len(fds) == 0 {
		_, err := c.c.Write(frame)
		return err
	}
	if len(fds) > maxFDs {
		return ipc.ErrMalformed
	}
	n := 0
	err := inflight.Send(func() (err error) {
		n, _, err = c.c.WriteMsgUnix(frame, syscall.UnixRights(fds...), nil)
		return err
	})
	if err != nil {
		return err
	}
	if n < len(frame) { // the descriptors went with the first byte
		_, err = c.c.Write(frame[n:])
	}
	return err
}

// owe starts the Wait frames.
func (c *Conn) owe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.owing = true
	if c.waiter == nil {
		c.waiter = time.AfterFunc(c.waitEvery, c.sayWait)
	} else {
		c.waiter.Reset(c.waitEvery)
	}
}

func (c *Conn) sayWait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.owing || c.closed {
		return
	}
	// An error also shows in Recv.
	if c.sendLocked(ipc.AppendBare(nil, ipc.KindWait), nil) == nil {
		c.waiter.Reset(c.waitEvery)
	}
}

// Raw returns the connection for another protocol, which both ends have agreed on. Neither Recv nor Send may be called
// any more. Close ends it as before. It fails if the peer has sent more than it was asked for.
func (c *Conn) Raw() (net.Conn, error) {
	if len(c.in) > c.used {
		return nil, ipc.ErrMalformed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.c, c.c.SetDeadline(time.Time{})
}

// Close ends the connection. A waiting Recv returns an error.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	c.closed = true
	if c.waiter != nil {
		c.waiter.Stop()
	}
	return c.c.Close()
}
