package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// Bounds for starting a manager.
const (
	// Until it serves, or has taken over from another manager. A machine may be busy with other builds, so that a
	// start takes seconds; one that fails ends at once, and only one that hangs takes all this time.
	readyWithin = 10 * time.Second
	lockWithin  = 15 * time.Second // for other wrappers that are starting one
	notAgain    = 10 * time.Second // after a failure, for all wrappers together
)

// readyEnv names the descriptor to which a manager writes one byte, 1, once it serves,
// or why it does not (see startRefusal).
const readyEnv = "RDISTCC_READY_FD"

// startManager starts a manager for the socket path, or waits for the one that another
// wrapper is starting, and connects to it.
func (s *settings) startManager(path string) (conn *ipc.Conn, err error) {
	err = s.starting(path, func() bool {
		conn, err = ipc.Dial(path)
		return !absent(err)
	})
	if err != nil || conn != nil {
		return conn, err
	}
	return ipc.Dial(path)
}

// replaceManager starts a manager of our version in place of an older one, which finishes
// what it has. It reports whether one of our version serves now.
func (s *settings) replaceManager() bool {
	path := ipc.SocketPath(s.getenv)
	return s.starting(path, func() bool {
		conn, err := s.connect(false)
		if conn == nil || err != nil {
			return false
		}
		defer conn.Close()
		if conn.Send((&ipc.Control{Version: ipc.Version}).Append(nil)) != nil {
			return false
		}
		kind, _, err := conn.Recv() // a request without content is answered, too
		return err == nil && kind == ipc.KindReply
	}, "--replace=older") == nil
}

// otherVersion reports whether the manager did not understand the previous frame.
func otherVersion(kind ipc.Kind, fields []byte) bool {
	var no ipc.GoLocal
	return kind == ipc.KindGoLocal && no.Parse(fields) == nil && no.Reason == reason.Manager && no.Code == reason.ExitProtocol
}

// starting starts a manager for the socket path with further words, one wrapper at a time,
// unless there reports that another wrapper has done so meanwhile.
func (s *settings) starting(path string, there func() bool, words ...string) error {
	dir, err := s.stateDir()
	if err != nil {
		return err
	}
	lock, err := syscall.Open(dir+"/"+ipc.LockName, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return managerError(dir + "/" + ipc.LockName + ": " + err.Error())
	}
	defer syscall.Close(lock) // releases the lock as well
	if !flockWithin(lock, lockWithin) {
		return managerError("connection manager is still being started by another rdistcc")
	}
	if there() {
		return nil
	}
	if err := s.failedLately(lock, dir+"/"+ipc.LogName); err != nil {
		return err
	}
	if err := s.spawnManager(path, dir, words...); err != nil {
		keepFailure(lock, err)
		return err
	}
	_ = syscall.Ftruncate(lock, 0) // as above
	return nil
}

// flockWithin takes an exclusive lock. A goroutine that waits too long for it ends with
// the process, which is soon.
func flockWithin(fd int, limit time.Duration) bool {
	if syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil {
		return true
	}
	got := make(chan bool, 1)
	go func() {
		for {
			err := syscall.Flock(fd, syscall.LOCK_EX)
			if err != syscall.EINTR {
				got <- err == nil
				return
			}
		}
	}()
	select {
	case ok := <-got:
		return ok
	case <-time.After(limit):
		return false
	}
}

// spawnManager starts rdistcc-cm, detached and with further words, and waits until it serves.
func (s *settings) spawnManager(path, dir string, words ...string) error {
	file, ok := findSibling("rdistcc-cm", s.Path)
	if !ok {
		return managerError("rdistcc-cm is neither beside rdistcc nor on PATH")
	}
	cwd := workingDir(s)
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return managerError("/dev/null: " + err.Error())
	}
	defer syscall.Close(null)
	log, err := syscall.Open(dir+"/"+ipc.LogName, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_APPEND|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return managerError(dir + "/" + ipc.LogName + ": " + err.Error())
	}
	defer syscall.Close(log)
	var ready [2]int
	if err := syscall.Pipe2(ready[:], syscall.O_CLOEXEC); err != nil {
		return managerError("pipe: " + err.Error())
	}
	defer syscall.Close(ready[0])

	// What a build passes on to its children (make's jobserver, pipes that somebody reads to
	// the end) must not reach a process that outlives the build.
	restore := closeOnExec()
	pid, err := startProgram(file, append([]string{"rdistcc-cm", "--socket", typed.Absolute(path, cwd)}, words...),
		&syscall.ProcAttr{
			Dir:   "/", // a build tree can be unmounted
			Env:   managerEnv(s.env, cwd),
			Files: []uintptr{uintptr(null), uintptr(null), uintptr(log), uintptr(ready[1])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	restore()
	syscall.Close(ready[1])
	if err != nil {
		return managerError(file + ": " + err.Error())
	}
	if !readable(ready[0], readyWithin) {
		_ = syscall.Kill(pid, syscall.SIGKILL) // still our child, and no wrapper must meet it half started
		return managerError("connection manager did not start within " + itoa(int(readyWithin/time.Second)) + " s (see " + dir + "/" + ipc.LogName + ")")
	}
	var b [maxRefusal]byte
	n, _ := syscall.Read(ready[0], b[:])
	if r := parseRefusal(b[:max(n, 0)]); r != nil {
		return r
	}
	if n != 1 {
		return managerError("connection manager did not start (see " + dir + "/" + ipc.LogName + ")")
	}
	return nil
}

// managerEnv returns our environment without what concerns one command, and with file names
// that no longer depend on the working directory.
func managerEnv(env []string, cwd string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case typed.Safeguard, readyEnv, "PWD", "DISTCC_DIR": // its host list comes with each job
			continue
		case "HOME", "RDISTCC_CONFIG", "RDISTCC_DIR", "RDISTCC_CM_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME":
			if value != "" {
				kv = name + "=" + typed.Absolute(value, cwd)
			}
		}
		out = append(out, kv)
	}
	return append(out, readyEnv+"=3")
}
