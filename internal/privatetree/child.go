package privatetree

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

	"github.com/rdistcc/rdistcc/internal/entrypoint"
	"github.com/rdistcc/rdistcc/internal/inflight"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// Descriptors of a tree's process.
const (
	childSock  = 3
	childBlock = 4
)

// child is a tree's process. It works on one thread: capabilities, and what a sandbox forbids, belong to a thread,
// and commands inherit them from the one that starts them. Another thread does what that thread itself may not
// do (ask).
type child struct {
	cred     *syscall.Credential // for commands; nil: this process's own
	measures sandbox.Set
	buf      [requestSize]byte
	oob      [64]byte

	hold  *sandbox.Hold // over commands; nil: they are not confined
	alone bool          // this is the first process of a pid namespace
	bare  string        // Spec.Bare
	names *names        // what answers commands' calls; nil: the kernel does
	size  int64         // Spec.Size

	// see limits.go
	own           [len(momentary)]unix.Rlimit
	mapped        uint64 // bytes
	countsTasks   bool   // no other tasks belong to the commands' user
	otherTasks    int    // otherwise how many do
	userNamespace bool
	family        *sandbox.Family // for ask; nil: processes cannot be examined here
	noProc        bool            // commands have no /proc
	asked         chan func()
	answered      chan struct{}

	group int // process group of the running command; 0: none
}

// Main runs a tree's process; it does not return.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == tryArg {
		os.Exit(0)
	}
	c := &child{asked: make(chan func()), answered: make(chan struct{})}
	go c.main()
	for f := range c.asked {
		f()
		c.answered <- struct{}{}
	}
}

// ask has an unconfined thread call f.
func (c *child) ask(f func()) {
	c.asked <- f
	<-c.answered
}

// main runs on a thread other than the process's first. That one represents the process when others signal it,
// and must not be in the commands' domain.
func (c *child) main() {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go c.main()
		select {} // blocks the first thread
	}
	// Signals from commands to the first process of their namespace have no effect. A caught signal, unlike
	// an ignored one, has its default action again in them.
	signal.Notify(make(chan os.Signal, 1))
	entrypoint.Given() // for good: everything that it starts is a command
	calmRuntime()
	if err := c.setup(); err != nil {
		r := reply{errno: uint32(unix.EIO), text: err.Error()}
		var no syscall.Errno
		if errors.As(err, &no) {
			r.errno = uint32(no)
		}
		if e := new(stepError); errors.As(err, &e) {
			r.right = e.right
		}
		r.unanswered = errors.Is(err, sandbox.ErrUnheard)
		_ = c.send(&r)
		os.Exit(1)
	}
	for {
		req, files, err := c.next()
		if err != nil {
			c.exit()
		}
		if req.op != opStart && req.op != opStartPair { // a kill that came too late
			continue
		}
		if err := c.send(c.run(req, files)); err != nil {
			c.exit()
		}
	}
}

// threadSlack is how late an idle thread may wake up, in nanoseconds.
const threadSlack = "1000000000"

// calmRuntime lets all threads except this one wake up late. One of the runtime's threads checks every 20
// us whether a system call keeps other goroutines from running, and is woken by the end of each. That took
// as much time as everything else here, where there are no other goroutines. Without the right to change
// it, it stays as it is.
func calmRuntime() {
	threads, err := os.ReadDir("/proc/self/task")
	own, lerr := os.Readlink("/proc/thread-self") // includes its number outside of the namespace
	if err != nil || lerr != nil {
		return
	}
	for _, t := range threads {
		if strings.HasSuffix(own, "/"+t.Name()) {
			continue // commands inherit its slack
		}
		if fd, err := unix.Open("/proc/"+t.Name()+"/timerslack_ns", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
			_, _ = unix.Write(fd, []byte(threadSlack))
			unix.Close(fd)
		}
	}
}

// setup makes the tree that the first request describes, and reports that with a descriptor of its root.
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
	r := wire.Reader[string]{Rest: block}
	s := Spec{Size: req.limits.File, UID: int(r.Uint32()), GID: int(r.Uint32())}
	bits := r.Uint32()
	s.Confine, s.Answered, s.Files, s.Dirs = bits&confineBit != 0, bits&answeredBit != 0, r.Texts(), r.Texts()
	s.Bare, s.Root = r.Text(), r.Text()
	if s.Answered {
		c.names = newNames(s.Bare, r.Texts(), r.Texts())
	}
	if what := r.End(); what != "" {
		return errors.New("request for a tree: " + what)
	}
	if s.UID != 0 || s.GID != 0 {
		c.cred = &syscall.Credential{Uid: uint32(s.UID), Gid: uint32(s.GID)}
	}
	// Waiting for a command and for the caller at the same time requires it.
	pidfd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return &stepError{"pidfd_open, which needs Linux 5.3", err, true}
	}
	unix.Close(pidfd)
	root, lacks, err := c.root(&s)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	if err := c.confine(&s); err != nil {
		return err
	}
	if c.names != nil {
		if err := c.names.begin(c.hold, root); err != nil {
			return err
		}
	}
	ready := reply{text: strings.Join(lacks, "\n"), measures: c.measures}
	return inflight.Send(func() error {
		return unix.Sendmsg(childSock, ready.encode(), unix.UnixRights(root), nil, unix.MSG_NOSIGNAL)
	})
}

// root makes the root directory of commands, and returns a descriptor of it.
func (c *child) root(s *Spec) (fd int, lacks []string, err error) {
	c.bare, c.size, c.alone = s.Bare, s.Size, s.Bare == ""
	c.mapped = mapped()
	if c.alone {
		c.userNamespace = ownUsers()
		var b builder
		fd, err = b.build(s)
		c.measures |= sandbox.Tree | sandbox.Processes | sandbox.Network | sandbox.IPC
		c.family, c.noProc = b.family, b.noProc
		return fd, b.lacks, err
	}
	c.family, _ = sandbox.OpenFamily("/proc")
	fd, err = c.bareRoot(s)
	return fd, nil, err
}

// closeOnExec keeps all descriptors from commands, including those with which the caller itself was started.
func closeOnExec() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return err
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

// run runs one command, until none of its processes is alive.
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

// runAll runs the programs of a command one after the other. It fails if one could not be started.
func (c *child) runAll(req *request, files []int, r *reply) error {
	block, err := readBlock(childBlock, req.block)
	if err != nil {
		return err
	}
	in := wire.Reader[string]{Rest: block}
	where, env := in.Text(), in.Texts()
	if in.Fault != "" || len(files) < 3 || len(files) > 4 {
		return unix.EINVAL
	}
	pidfd := -1
	attr := &syscall.ProcAttr{
		Dir:   where,
		Env:   env,
		Files: []uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pgid: c.hold.Int(0), PidFD: &pidfd, Credential: c.cred},
	}
	between := ""
	if req.op == opStartPair {
		between = in.Text()
	}
	for len(in.Rest) > 0 && !r.ended() {
		p, err := nextProgram(&in)
		if err != nil {
			return err
		}
		if between != "" {
			second, err := nextProgram(&in)
			if err != nil {
				return err
			}
			if err := c.runPair(req, p, second, between, attr, r); err != nil {
				return err
			}
			between = ""
			continue
		}
		if len(files) == 4 {
			p.Path = "/proc/self/fd/" + strconv.Itoa(files[3])
			if c.noProc && c.family != nil {
				// As seen from the host's, which a probe leaves at once.
				p.Path, attr.Dir, attr.Env = strings.TrimPrefix(p.Path, "/proc/"), "", append(env, "PWD="+where)
				_ = unix.Fchdir(c.family.Proc())
			}
		}
		if c.names != nil { // the new process must make no call that waits for an answer before it executes the program
			if attr.Dir, err = "", c.names.enter(where); err != nil {
				return err
			}
		}
		run, err := c.start(req, p, attr)
		if c.noProc {
			_ = unix.Chdir("/")
		}
		if err != nil {
			return err
		}
		c.watch(req, len(files) == 4, r, run.pidfd).wait()
		unix.Close(run.pidfd)
		c.reap(&req.limits, run.pid, r)
		if c.names != nil {
			c.names.leave()
		}
	}
	return nil
}

// nextProgram reads one program from the block.
func nextProgram(in *wire.Reader[string]) (Program, error) {
	p := Program{Path: in.Text(), Argv: in.Texts()}
	if in.Fault != "" {
		return Program{}, unix.EINVAL
	}
	return p, nil
}

// running is a started program.
type running struct{ pid, pidfd int }

// start starts a program and applies its bounds.
func (c *child) start(req *request, p Program, attr *syscall.ProcAttr) (running, error) {
	if c.noProc {
		c.showProgram(p.Path)
	}
	pid, b, err := c.fork(&req.limits, p.Path, p.Argv, attr)
	if err != nil {
		return running{}, err
	}
	c.group = pid
	// For the whole group, as the command may already have children.
	if req.nice != 0 {
		err := unix.Setpriority(unix.PRIO_PGRP, c.hold.Int(pid), int(req.nice))
		if errors.Is(err, unix.EPERM) && c.cred != nil {
			// As another user, without CAP_SYS_NICE: the following ones inherit it from this thread.
			_ = unix.Setpriority(unix.PRIO_PROCESS, c.hold.Int(0), int(req.nice))
		}
	}
	c.after(&b, pid)
	return running{pid, *attr.Sys.PidFD}, nil
}

// fork starts a program with its bounds.
func (c *child) fork(l *sandbox.Limits, path string, argv []string, attr *syscall.ProcAttr) (pid int, b bounds, err error) {
	if b, err = c.before(l); err == nil {
		pid, err = syscall.ForkExec(path, argv, attr)
	}
	c.restore(&b)
	if errors.Is(err, unix.EAGAIN) && b.tasks > 0 && !c.countsTasks && c.otherTasks >= 0 {
		c.otherTasks = -1 // the user has other tasks that /proc does not show: the bound would affect them
		return c.fork(l, path, argv, attr)
	}
	return pid, b, err
}

// ended reports whether no further program of the command may run.
func (r *reply) ended() bool {
	return r.killed || r.apart || r.excess != sandbox.ExcessNone || r.failed()
}

// reap takes the status of a process that has ended, and ends everything that it has left.
func (c *child) reap(l *sandbox.Limits, pid int, r *reply) {
	if !c.alone {
		c.kill() // until it is waited for, its number still refers to the group
	}
	c.take(pid, r)
	c.endRest(l, r)
}

// take takes the status of a process that has ended. If an earlier one failed, that status stands.
func (c *child) take(pid int, r *reply) {
	var status unix.WaitStatus
	var use unix.Rusage
	if err := wait4(pid, &status, 0, &use); err != nil {
		r.errno = uint32(unix.ECHILD)
	}
	if !r.failed() {
		r.status(status)
	}
	r.cpu += use.Utime.Nano() + use.Stime.Nano()
	r.maxRSS = max(r.maxRSS, uint64(use.Maxrss)<<10)
}

// endRest ends everything that programs have left. A command that was refused further processes may end by itself
// before it is examined: what it left tells.
func (c *child) endRest(l *sandbox.Limits, r *reply) {
	left := c.killRest()
	c.group = 0
	if r.excess == sandbox.ExcessNone {
		r.excess = excessOf(unix.Signal(r.signal))
	}
	if r.excess == sandbox.ExcessNone && !r.killed && l.Processes > 0 && left > l.Processes {
		r.excess = sandbox.ExcessProcesses
	}
}

// status records how a program has ended.
func (r *reply) status(s unix.WaitStatus) {
	if s.Signaled() {
		r.signal = int32(s.Signal())
	} else {
		r.exit = int32(s.ExitStatus())
	}
}

// excessOf returns the excess for which the kernel sends a signal.
func excessOf(s unix.Signal) sandbox.Excess {
	switch s {
	case unix.SIGXFSZ:
		return sandbox.ExcessFile
	case unix.SIGXCPU:
		return sandbox.ExcessCPU
	case unix.SIGSYS:
		return sandbox.ExcessDenied
	}
	return sandbox.ExcessNone
}

// kill kills the running command with all its descendants.
func (c *child) kill() {
	switch {
	case c.alone:
		_ = unix.Kill(c.hold.Int(-1), unix.SIGKILL) // everything in the namespace except this process
	case c.group != 0:
		_ = unix.Kill(c.hold.Int(-c.group), unix.SIGKILL)
		c.killStrays()
	}
}

// killRest kills and reaps whatever a command has left: every process whose parent is gone is this one's child,
// because of the namespace or because it is a subreaper. It returns how many were alive until they were killed.
func (c *child) killRest() (lived int) {
	var status unix.WaitStatus
	for flags := unix.WNOHANG; ; {
		pid, err := unix.Wait4(-1, &status, flags|unix.WALL, nil)
		if err == nil && pid > 0 && status.Signaled() && status.Signal() == unix.SIGKILL {
			lived++
		}
		switch {
		case errors.Is(err, unix.ECHILD):
			return lived
		case err == nil && pid == 0:
			if c.alone {
				c.kill()
			} else {
				c.killStrays()
			}
			flags = 0
		case err == nil && !c.alone:
			flags = unix.WNOHANG // others may have been added
		}
	}
}

// exit ends this process, and with it, through the kernel or here, everything that runs.
func (c *child) exit() {
	if !c.alone {
		c.kill()
	}
	os.Exit(0)
}

func wait4(pid int, status *unix.WaitStatus, flags int, use *unix.Rusage) error {
	for {
		_, err := unix.Wait4(pid, status, flags, use)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
