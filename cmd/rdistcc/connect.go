package main

import (
	"strings"
	"syscall"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// managerError describes trouble with the manager in one line.
type managerError string

func (e managerError) Error() string { return string(e) }

// connect finds the manager and checks that it can be trusted. If none runs, it starts one
// when start is set and otherwise returns (nil, nil).
func (s *settings) connect(start bool) (*ipc.Conn, error) {
	path := ipc.SocketPath(s.getenv)
	if s.getenv("RDISTCC_CM_SOCKET") == "" {
		// Anyone with write access to the directory could put a socket of their own there.
		dir := ipc.StateDir(s.getenv)
		if err := ipc.CheckDir(dir); err != nil && err != syscall.ENOENT {
			return nil, managerError(dir + ": " + err.Error() + " (RDISTCC_DIR names another one)")
		}
	}
	conn, err := ipc.Dial(path)
	if absent(err) {
		if !start {
			return nil, nil
		}
		conn, err = s.startManager(path)
	}
	if err != nil {
		switch err.(type) {
		case managerError, *startRefusal:
			return nil, err
		}
		return nil, managerError(path + ": " + err.Error())
	}
	uid, err := conn.PeerUID()
	if err == nil {
		err = ipc.Trusted(path, uid)
	}
	if err != nil {
		conn.Close()
		return nil, managerError(path + ": " + err.Error())
	}
	return conn, nil
}

// absent reports whether err means that no process serves the socket.
func absent(err error) bool { return err == syscall.ENOENT || err == syscall.ECONNREFUSED }

// stateDir returns the state directory, creating it if need be and checking its ownership and mode.
func (s *settings) stateDir() (string, error) {
	dir := ipc.StateDir(s.getenv)
	err := makeDirs(dir)
	if err == nil {
		err = ipc.CheckDir(dir)
	}
	if err != nil {
		return "", managerError(dir + ": " + err.Error() + " (RDISTCC_DIR names another one)")
	}
	return dir, nil
}

// makeDirs creates dir and its missing parents, accessible to this user only.
func makeDirs(dir string) error {
	err := syscall.Mkdir(dir, 0o700)
	if err == syscall.ENOENT {
		slash := strings.LastIndexByte(strings.TrimRight(dir, "/"), '/')
		if slash <= 0 {
			return err
		}
		if err := makeDirs(dir[:slash]); err != nil {
			return err
		}
		err = syscall.Mkdir(dir, 0o700)
	}
	if err == syscall.EEXIST {
		return nil
	}
	return err
}
