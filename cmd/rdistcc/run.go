package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// command is something to execute: a file, and its argument words from argv[0].
type command struct {
	file  string
	argv  []string
	alone bool // a program that starts no other
}

// shellFor is what a shell makes of a file that the kernel does not know how to
// run (ENOEXEC): a script without a first line.
func (c command) shellFor() command {
	return command{file: "/bin/sh", argv: append([]string{"sh", c.file}, c.argv[1:]...)}
}

// replace executes c in place of this process. It returns only an exit code.
func (s *settings) replace(c command) int {
	env := s.childEnv()
	err := syscall.Exec(c.file, c.argv, env)
	if err == syscall.ENOEXEC {
		sh := c.shellFor()
		err = syscall.Exec(sh.file, sh.argv, env)
	}
	return s.cannotRun(c, err)
}

// cannotRun says so and returns the shell's exit code for it.
func (s *settings) cannotRun(c command, err error) int {
	s.say(0, c.argv[0], ": ", err.Error())
	if err == syscall.ENOENT {
		return exitNotFound // also a script whose interpreter is missing, as in a shell
	}
	return exitNotExecutable
}

// start runs c as a child with the given standard descriptors.
func start(c command, env []string, files []uintptr, sys *syscall.SysProcAttr) (pid int, err error) {
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: sys}
	pid, err = syscall.ForkExec(c.file, c.argv, attr)
	if err == syscall.ENOEXEC {
		sh := c.shellFor()
		pid, err = syscall.ForkExec(sh.file, sh.argv, attr)
	}
	return pid, err
}

// exitCode is a shell's view of how a process ended.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// interrupts is what happens when somebody wants this process to end: the
// connection is shut, so that the manager cancels and a Recv returns, and the
// child, if there is one, gets the signal too. The flow notices, cleans up and
// exits.
//
// Nothing is caught before watch: until there is a child, to die at once is all
// that is to be done.
type interrupts struct {
	mu    sync.Mutex
	sig   syscall.Signal // the first one, guarded by mu
	conn  *ipc.Conn      // guarded by mu
	child int            // guarded by mu; below zero: a process group, to be killed
	temps []string       // guarded by mu; files to remove in any case
	on    bool           // owned by the flow
}

// watched are the signals that end a build. One that is ignored stays ignored.
var watched = [...]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// watch begins to catch signals. It costs 0.15 ms (a thread, and a round trip to
// it a signal), so it comes as late as it may: before a child starts that can
// have children of its own; a lone one dies with us anyhow (Pdeathsig).
func (in *interrupts) watch() {
	if in.on {
		return
	}
	in.on = true
	ch := make(chan os.Signal, len(watched)) // one of each kind; a repeated one adds nothing
	for _, s := range watched {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	go func() {
		for s := range ch {
			in.deliver(s.(syscall.Signal))
		}
	}()
}

func (in *interrupts) deliver(s syscall.Signal) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.sig != 0 && in.child == 0 {
		in.removeLocked()
		os.Exit(128 + int(s)) // asked twice: the clean-up hangs
	}
	if in.sig == 0 {
		in.sig = s
	}
	if in.conn != nil {
		in.conn.Interrupt()
	}
	switch {
	case in.child > 0:
		_ = syscall.Kill(in.child, s) // not reaped yet: it is still our child
	case in.child < 0:
		_ = syscall.Kill(in.child, syscall.SIGKILL)
	}
}

// temp notes a file that is not to outlive the command.
func (in *interrupts) temp(name string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.temps = append(in.temps, name)
}

// remove removes the files that are not to outlive the command.
func (in *interrupts) remove() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.removeLocked()
}

func (in *interrupts) removeLocked() {
	for _, name := range in.temps {
		_ = syscall.Unlink(name) // there is nobody to tell
	}
	in.temps = nil
}

// caught is the signal that wants us to end, or 0.
func (in *interrupts) caught() syscall.Signal {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.sig
}

// holds tells which connection and which child a signal concerns. One that has
// come already is passed on to the new child.
func (in *interrupts) holds(conn *ipc.Conn, child int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conn, in.child = conn, child
	switch {
	case in.sig == 0:
	case child > 0:
		_ = syscall.Kill(child, in.sig)
	case child < 0:
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
}

// reap waits for the child pid and forgets it in the same moment, so that no
// signal goes to another process that has got its number.
func (in *interrupts) reap(pid int) (syscall.WaitStatus, error) {
	const pPid, wExited, wNoWait = 1, 4, 0x1000000
	var info [128]byte // siginfo_t
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0)
		if errno == 0 {
			break
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.child = 0
	var ws syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if err != syscall.EINTR {
			return ws, err
		}
	}
}

// runHere runs c as the user typed it, with our own descriptors, and waits.
func (f *flow) runHere(c command) int {
	began := time.Now()
	// SIGTERM if we are killed outright: a compiler must not outlive its build.
	sys := &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	f.in.watch()
	pid, err := start(c, f.set.childEnv(), []uintptr{0, 1, 2}, sys)
	switch err {
	case nil:
	case syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		// No process or descriptor more for us: the compiler gets ours.
		return f.set.replace(c)
	default:
		return f.set.cannotRun(c, err)
	}
	f.in.holds(nil, pid)
	ws, err := f.in.reap(pid)
	if err != nil {
		f.set.say(0, c.argv[0], ": ", err.Error())
		return ipc.ExitGeneral
	}
	f.rec.local = time.Since(began)
	return exitCode(ws)
}
