package tree

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Descriptors of a tree's process.
const (
	childSock  = 3
	childBlock = 4
)

// child is a tree's process. It works on one thread: capabilities, and what a
// sandbox forbids, are a thread's, and commands have them of the one that starts them.
type child struct {
	cred *syscall.Credential // of commands; nil: this process's own
	buf  [requestSize]byte
	oob  [64]byte
}

// Main is a tree's process; it does not return.
func Main() {
	runtime.LockOSThread()
	// What commands send to the first process of their namespace has no effect. A
	// signal that is caught, unlike one that is ignored, is the default again in them.
	signal.Notify(make(chan os.Signal, 1))
	calmRuntime()
	c := &child{}
	if err := c.setup(); err != nil {
		r := reply{errno: uint32(unix.EIO), text: err.Error()}
		var no syscall.Errno
		if errors.As(err, &no) {
			r.errno = uint32(no)
		}
		if e := new(stepError); errors.As(err, &e) {
			r.right = e.right
		}
		_ = c.send(&r)
		os.Exit(1)
	}
	for {
		req, files, err := c.next()
		if err != nil {
			os.Exit(0) // the kernel kills what is left in the namespace
		}
		if req.op != opStart { // a kill that came too late
			continue
		}
		if err := c.send(c.run(req, files)); err != nil {
			os.Exit(0)
		}
	}
}

// threadSlack is how long a thread that nobody waits for may oversleep, in nanoseconds.
const threadSlack = "1000000000"

// calmRuntime lets all threads but this one oversleep. One of the runtime's looks
// every 20 us whether a system call keeps other goroutines from running, and is woken by the end
// of each: that took as much time as all else here, where there are no other goroutines. Without
// the right to do so it stays as it is.
func calmRuntime() {
	threads, err := os.ReadDir("/proc/self/task")
	own, lerr := os.Readlink("/proc/thread-self") // with its number outside of the namespace
	if err != nil || lerr != nil {
		return
	}
	for _, t := range threads {
		if strings.HasSuffix(own, "/"+t.Name()) {
			continue // commands inherit it
		}
		if fd, err := unix.Open("/proc/"+t.Name()+"/timerslack_ns", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			_, _ = unix.Write(fd, []byte(threadSlack))
			unix.Close(fd)
		}
	}
}

// setup makes the tree that the first request describes, and says so with a
// descriptor of its root.
func (c *child) setup() error {
	if err := closeOnExec(); err != nil {
		return &stepError{"look through descriptors", err, false}
	}
	req, _, err := c.next()
	if err != nil {
		return err
	}
	block, err := readBlock(childBlock, req.block)
	if err != nil {
		return err
	}
	r := reader{b: block}
	s := Spec{Size: req.fileMax, UID: int(r.uint32()), GID: int(r.uint32()), Files: r.strings(), Dirs: r.strings()}
	if r.err != nil {
		return r.err
	}
	if s.UID != 0 || s.GID != 0 {
		c.cred = &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.GID)}
	}
	// What waits for a command and for the caller at once needs it.
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return &stepError{"pidfd_open, which needs Linux 5.3", err, true}
	}
	unix.Close(pidfd)
	var b builder
	root, err := b.build(&s)
	if err != nil {
		return err
	}
	if err := confine(); err != nil {
		return err
	}
	defer unix.Close(root)
	ready := reply{text: strings.Join(b.lacks, "\n")}
	return unix.Sendmsg(childSock, ready.encode(), unix.UnixRights(root), nil, unix.MSG_NOSIGNAL)
}

// closeOnExec keeps all descriptors from commands, those too that the caller itself
// was started with.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
}

// confine takes from commands what they do not need. More of a sandbox goes here.
func confine() error {
	// Those of the same user must not reach this process, its memory and its socket.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return &stepError{"make the tree's process private", err, false}
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return &stepError{"set no_new_privs", err, false}
	}
	// A program that is executed gets no capability that is not in this set, as root
	// too. This thread keeps its own, to kill and to become another user.
	for bit := uintptr(0); ; bit++ {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, bit, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // past the last one
		}
		if err != nil {
			return &stepError{"drop capabilities", err, true}
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return &stepError{"drop ambient capabilities", err, false}
	}
	return nil
}

// next waits for a request. The caller's end is io.EOF.
func (c *child) next() (req request, files []int, err error) {
	for {
		n, files, err := receive(childSock, c.buf[:], c.oob[:], 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		if err == nil {
			err = req.decode(c.buf[:n])
		}
		return req, files, err
	}
}

func (c *child) send(r *reply) error {
	return unix.Send(childSock, r.encode(), unix.MSG_NOSIGNAL)
}

// run does one command, until nothing of it lives.
func (c *child) run(req request, files []int) *reply {
	r := &reply{seq: req.seq}
	err := c.runAll(&req, files, r)
	for _, fd := range files {
		unix.Close(fd)
	}
	if err != nil {
		r.errno = uint32(unix.EIO)
		var no syscall.Errno
		if errors.As(err, &no) {
			r.errno = uint32(no)
		}
	}
	return r
}

// runAll runs the programs of a command one after the other. An error means that one could not
// be started.
func (c *child) runAll(req *request, files []int, r *reply) error {
	block, err := readBlock(childBlock, req.block)
	if err != nil {
		return err
	}
	in := reader{b: block}
	where, env := in.strings(), in.strings()
	if in.err != nil || len(where) != 1 || len(files) != 3 {
		return unix.EINVAL
	}
	limit, err := limitFiles(uint64(req.fileMax))
	if err != nil {
		return err
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir:   where[0],
		Env:   env,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd, Credential: c.cred},
	}
	for len(in.b) > 0 && !r.killed && r.exit == 0 && r.signal == 0 {
		path, argv := in.strings(), in.strings()
		if in.err != nil || len(path) != 1 {
			return unix.EINVAL
		}
		pid, err := syscall.ForkExec(path[0], argv, attr)
		if err != nil {
			return err
		}
		// The group, as the command may have children already.
		if req.nice != 0 {
			_ = unix.Setpriority(unix.PRIO_PGRP, pid, int(req.nice))
		}
		_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: limit}, nil)
		if m := uint64(req.memMax); m > 0 {
			limitMemory(pid, m)
		}
		r.killed = c.wait(req.seq, pidfd)
		r.add(pid)
		unix.Close(pidfd)
	}
	return nil
}

// limitMemory bounds what a process may map, and what it has started already: in a
// namespace where nothing else runs those have the next numbers.
func limitMemory(pid int, max uint64) {
	for missing := 0; missing < 16; pid++ {
		if unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: max, Max: max}, nil) != nil {
			missing++
		}
	}
}

// add reaps a process that has ended, with all that it has left.
func (r *reply) add(pid int) {
	var status unix.WaitStatus
	var use unix.Rusage
	if err := wait4(pid, &status, 0, &use); err != nil {
		r.errno = uint32(unix.ECHILD)
	}
	killRest()
	if status.Signaled() {
		r.signal = int32(status.Signal())
	} else {
		r.exit = int32(status.ExitStatus())
	}
	r.cpu += use.Utime.Nano() + use.Stime.Nano()
	r.maxRSS = max(r.maxRSS, uint64(use.Maxrss)<<10)
}

// limitFiles bounds the files of commands, in bytes: softly this process's own, which
// writes none, so that commands have the bound from their first instruction on.
func limitFiles(limit uint64) (uint64, error) {
	if limit == 0 {
		limit = unix.RLIM_INFINITY
	}
	var old unix.Rlimit
	if err := unix.Prlimit(0, unix.RLIMIT_FSIZE, nil, &old); err != nil {
		return 0, err
	}
	limit = min(limit, old.Max)
	if limit == old.Cur {
		return limit, nil
	}
	return limit, unix.Prlimit(0, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}, nil)
}

// wait returns when the command has ended, and says whether the caller asked to
// kill it. When the caller itself has ended, so does this process.
func (c *child) wait(seq uint64, pidfd int) (killed bool) {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: childSock, Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err != nil {
			continue // EINTR: no other error is possible here
		}
		if fds[0].Revents != 0 {
			return killed
		}
		if fds[1].Revents == 0 {
			continue
		}
		req, _, err := c.next()
		if err != nil {
			os.Exit(0)
		}
		if req.op == opKill && req.seq == seq {
			killed = true
			_ = unix.Kill(-1, unix.SIGKILL) // all of the namespace but this process
		}
	}
}

// killRest kills and reaps whatever a command has left: every process of the
// namespace whose parent is gone is this one's child.
func killRest() {
	for flags := unix.WNOHANG; ; {
		pid, err := unix.Wait4(-1, nil, flags|unix.WALL, nil)
		switch {
		case errors.Is(err, unix.ECHILD):
			return
		case err == nil && pid == 0:
			_ = unix.Kill(-1, unix.SIGKILL)
			flags = 0
		}
	}
}

func wait4(pid int, status *unix.WaitStatus, flags int, use *unix.Rusage) error {
	for {
		_, err := unix.Wait4(pid, status, flags, use)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
