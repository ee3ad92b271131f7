// Package socket is the Unix socket that wrappers connect to, and how it goes from one connection
// manager to the next: that of the same user, or of the machine.
//
//	listen      the manager's end of it
//	takeover    asking another manager for it, or to stop
//
// It knows nothing of what is said over the connections, but for the two questions of a successor.
package socket

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc/ipcserver"
)

// ErrInUse: another manager serves the socket.
var ErrInUse = ipcserver.ErrInUse

// Listener is the socket that wrappers connect to.
type Listener struct {
	*net.UnixListener
	Path string
	// Group: the directory is open to a group, so the manager is the machine's.
	Group bool

	own  *ipcserver.Listener // nil: the service manager's, which keeps name and lock
	left atomic.Bool         // another manager has it now
}

// Listen opens the socket path, with its directory if that is missing. In a
// directory of mode 0750 it is open to the directory's group, otherwise to this
// user alone. A directory that others could write to is refused.
//
// given, if not nil, is the socket that a service manager has opened already.
func Listen(path string, given *os.File) (*Listener, error) {
	if given != nil {
		return inherit(given)
	}
	path, group, err := place(path)
	if err != nil {
		return nil, err
	}
	own, err := ipcserver.Listen(path, group)
	if err != nil {
		return nil, err
	}
	return &Listener{UnixListener: own.UnixListener, Path: path, Group: group, own: own}, nil
}

// place makes a socket's directory where it is missing, and reports whether it is open to
// a group.
func place(path string) (abs string, group bool, err error) {
	if abs, err = filepath.Abs(path); err != nil {
		return "", false, fmt.Errorf("socket %s: %w", path, err)
	}
	dir := filepath.Dir(abs)
	if err := ipcserver.MakeDir(dir); err != nil {
		return "", false, fmt.Errorf("socket %s: directory %s: %w", abs, dir, err)
	}
	st, err := os.Stat(dir)
	if err != nil {
		return "", false, fmt.Errorf("socket %s: %w", abs, err)
	}
	return abs, st.Mode().Perm()&0o050 == 0o050, nil
}

func inherit(f *os.File) (*Listener, error) {
	defer f.Close() // FileListener has its own copy
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("socket from the service manager: %w", err)
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("socket from the service manager is %s, want a Unix stream socket", l.Addr()), l.Close())
	}
	u.SetUnlinkOnClose(false)
	out := &Listener{UnixListener: u, Path: u.Addr().String()}
	if dir, err := os.Stat(filepath.Dir(out.Path)); err == nil {
		out.Group = dir.Mode().Perm()&0o050 == 0o050 && ipc.CheckDir(filepath.Dir(out.Path)) == nil
	}
	return out, nil
}

// AcceptConn waits for the next wrapper.
func (l *Listener) AcceptConn() (*ipcserver.Conn, error) {
	c, err := l.AcceptUnix()
	if err != nil {
		return nil, err
	}
	return ipcserver.NewConn(c), nil
}

// Given reports whether the socket is the service manager's, which gives it to no other.
func (l *Listener) Given() bool { return l.own == nil }

// Lend calls f with the descriptors of the socket and of its lock: a successor that gets copies
// of both holds what l holds. The socket is not a Given one.
func (l *Listener) Lend(f func(socket, lock int) error) error { return l.own.Lend(f) }

// HandOn leaves the socket to another manager: Close keeps its name.
func (l *Listener) HandOn() { l.left.Store(true) }

// Left reports whether another manager has the socket.
func (l *Listener) Left() bool { return l.left.Load() }

// Hide takes the name away, so that no further wrapper connects. The lock stays
// until Close: no successor can have taken the name by then.
func (l *Listener) Hide() error {
	if l.own == nil {
		return nil
	}
	if err := os.Remove(l.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close stops listening; connections stay.
func (l *Listener) Close() error {
	if l.left.Load() {
		return l.own.Leave()
	}
	if l.own == nil {
		return l.UnixListener.Close()
	}
	return l.own.Close()
}
