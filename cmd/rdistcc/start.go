package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Bounds of starting a manager.
const (
	readyWithin = 3 * time.Second  // until it serves
	lockWithin  = 10 * time.Second // for others that are starting one
	notAgain    = 10 * time.Second // after a failure, for all wrappers together
)

// readyEnv names the descriptor to which a manager writes one byte when it serves.
const readyEnv = "RDISTCC_READY_FD"

// startManager starts a manager for the socket path, or waits for the one that
// another wrapper is starting, and connects.
func (s *settings) startManager(path string) (*ipc.Conn, error) {
	dir, err := s.stateDir()
	if err != nil {
		return nil, err
	}
	lock, err := syscall.Open(dir+"/"+ipc.LockName, syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, managerError(dir + "/" + ipc.LockName + ": " + err.Error())
	}
	defer syscall.Close(lock) // and with it the lock
	if !flockWithin(lock, lockWithin) {
		return nil, managerError("connection manager is still being started by another rdistcc")
	}
	if conn, err := ipc.Dial(path); !absent(err) {
		return conn, err
	}
	if failedLately(lock) {
		return nil, managerError("connection manager did not start a moment ago (see " + dir + "/" + ipc.LogName + ")")
	}
	if err := s.spawnManager(path, dir); err != nil {
		_, _ = syscall.Pwrite(lock, []byte("failed\n"), 0) // only saves time
		return nil, err
	}
	_ = syscall.Ftruncate(lock, 0) // as above
	return ipc.Dial(path)
}

// flockWithin takes an exclusive lock. The goroutine that waits too long for it
// ends with the process, which is soon.
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

// failedLately: the last attempt failed, and is not long ago. Then a big build
// does not wait for it file by file.
func failedLately(lock int) bool {
	var st syscall.Stat_t
	if syscall.Fstat(lock, &st) != nil || st.Size == 0 {
		return false
	}
	age := time.Since(time.Unix(st.Mtim.Unix()))
	return age >= 0 && age < notAgain
}

// spawnManager starts rdistcc-cm, detached, and waits until it serves.
func (s *settings) spawnManager(path, dir string) error {
	file, ok := findSibling("rdistcc-cm", s.path)
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

	// What a build passes on to its children (make's job server, pipes that
	// somebody reads to the end) is not for a process that outlives it.
	restore := closeOnExec()
	pid, err := syscall.ForkExec(file, []string{"rdistcc-cm", "--socket", absolute(path, cwd)},
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
		_ = syscall.Kill(pid, syscall.SIGKILL) // our child still: nobody is to meet it half started
		return managerError("connection manager did not start within 3 s (see " + dir + "/" + ipc.LogName + ")")
	}
	var b [1]byte
	if n, _ := syscall.Read(ready[0], b[:]); n != 1 {
		return managerError("connection manager did not start (see " + dir + "/" + ipc.LogName + ")")
	}
	return nil
}

// managerEnv is ours without what concerns one command; file names in it no
// longer depend on the working directory.
func managerEnv(env []string, cwd string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		switch name {
		case safeguard, readyEnv, "PWD":
			continue
		case "RDISTCC_CONFIG", "RDISTCC_DIR", "RDISTCC_CM_SOCKET", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME":
			if value != "" {
				kv = name + "=" + absolute(value, cwd)
			}
		}
		out = append(out, kv)
	}
	return append(out, readyEnv+"=3")
}
