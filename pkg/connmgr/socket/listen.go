// Package socket opens the Unix socket that wrappers connect to and passes it from one connection manager to
// the next one of the same user or the machine.
//
//	listen      the manager's socket
//	takeover    asking another manager for its socket, or to stop
//
// The package knows nothing of the local protocol except the two requests of a successor, Replace and stop.
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
	// Group is set if the directory is open to a group, so that the manager serves the whole machine.
	Group bool

	own  *ipcserver.Listener // nil if the service manager owns the socket, its name and lock
	left atomic.Bool         // another manager has it now
}

// Listen opens the socket path and creates its directory if that is missing. In a directory of mode 0750 the
// socket is open to the directory's group, otherwise to this user only. It returns an error for a directory
// that others could write to, and ErrInUse if another manager serves the socket.
//
// given, if not nil, is a socket that a service manager has already opened. Listen closes it and uses a
// duplicate; path does not matter then.
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

// place creates a socket's directory if it is missing. It returns the socket's absolute path and whether the
// directory is open to a group.
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

// Given reports whether the socket belongs to the service manager. Such a socket cannot be passed to another
// manager.
func (l *Listener) Given() bool { return l.own == nil }

// Lend calls f with the descriptors of the socket and of its lock. A successor that gets copies of both holds
// the socket just as l does. It must not be called for a Given socket.
func (l *Listener) Lend(f func(socket, lock int) error) error { return l.own.Lend(f) }

// HandOn records that another manager has taken the socket, so that Close does not remove it.
func (l *Listener) HandOn() { l.left.Store(true) }

// Left reports whether another manager has taken the socket.
func (l *Listener) Left() bool { return l.left.Load() }

// Hide removes the socket's name, so that no further wrapper connects. It keeps the lock until Close, so that
// no successor can use the name before. It has no effect on a Given socket.
func (l *Listener) Hide() error {
	if l.own == nil {
		return nil
	}
	if err := os.Remove(l.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// Close stops listening. Connections stay open.
func (l *Listener) Close() error {
	if l.left.Load() {
		return l.own.Leave()
	}
	if l.own == nil {
		return l.UnixListener.Close()
	}
	return l.own.Close()
}
