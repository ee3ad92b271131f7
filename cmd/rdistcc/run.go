package main

import (
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/entrypoint"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// command is something to execute: a file, and its argument words from argv[0].
type command struct {
	file  string
	argv  []string
	alone bool // it starts no other program

	more string // a word behind those of argv, if it runs beside this process
}

// started returns c as it is started beside this process.
func (c command) started() command {
	if c.more != "" {
		c.argv = append(c.argv[:len(c.argv):len(c.argv)], c.more)
	}
	return c
}

// shellFor returns the command by which a shell runs a file that the kernel does not know
// how to run (ENOEXEC): a script without a #! line.
func (c command) shellFor() command {
	return command{file: "/bin/sh", argv: append([]string{"sh", c.file}, c.argv[1:]...)}
}

// replace executes c in place of this process. It returns only on failure, with an exit code.
func (s *settings) replace(c command) int {
	env := s.childEnv()
	err := become(c.file, c.argv, env)
	if err == syscall.ENOEXEC {
		sh := c.shellFor()
		err = become(sh.file, sh.argv, env)
	}
	return s.cannotRun(c, err)
}

// startProgram starts a program as a child.
func startProgram(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	defer entrypoint.Given()()
	return syscall.ForkExec(file, argv, attr)
}

// become executes a program in place of this process. It returns only on failure.
func become(file string, argv, env []string) error {
	defer entrypoint.Given()()
	return syscall.Exec(file, argv, env)
}

// cannotRun prints that c cannot be run and returns the shell's exit code for that.
func (s *settings) cannotRun(c command, err error) int {
	s.say(0, c.argv[0], ": ", err.Error())
	if err == syscall.ENOENT {
		return typed.ExitNotFound // also a script whose interpreter is missing, as in a shell
	}
	return typed.ExitNotExecutable
}

// start runs c as a child with the given standard descriptors.
func start(c command, env []string, files []uintptr, sys *syscall.SysProcAttr) (pid int, err error) {
	attr := &syscall.ProcAttr{Env: env, Files: files, Sys: sys}
	c = c.started()
	pid, err = startProgram(c.file, c.argv, attr)
	if err == syscall.ENOEXEC {
		sh := c.shellFor()
		pid, err = startProgram(sh.file, sh.argv, attr)
	}
	return pid, err
}

// exitCode returns the exit code with which a shell reports how a process ended.
func exitCode(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}

// runHere runs c as the user typed it, and waits. If the manager wants to know what comes of it, f tells that.
func (f *flow) runHere(c command) int {
	if f.tells(c) {
		if e := listenTo(1, 2); e != nil {
			return f.runTelling(c, e)
		}
	}
	return f.runWith(c, [...]int{0, 1, 2}, func() {})
}

// runWith runs c with standard descriptors, and waits. begun is called once it has started.
func (f *flow) runWith(c command, fds [3]int, begun func()) int {
	began := time.Now()
	// SIGTERM if we are killed outright: a compiler must not outlive its build.
	sys := &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	f.in.watch()
	env, files := f.offersPartitions(f.set.childEnv(), []uintptr{uintptr(fds[0]), uintptr(fds[1]), uintptr(fds[2])})
	pid, err := start(c, env, files, sys)
	for _, fd := range files[3:] {
		syscall.Close(int(fd))
	}
	begun()
	switch err {
	case nil:
	case syscall.EAGAIN, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM:
		// No process or descriptor can be had any more: the compiler takes over ours.
		return f.set.replace(c)
	default:
		return f.set.cannotRun(c, err)
	}
	f.in.holds(nil, pid)
	ws, err := f.in.reap(pid)
	if err != nil {
		f.set.say(0, c.argv[0], ": ", err.Error())
		return reason.ExitGeneral
	}
	f.rec.local, f.rec.cpu = time.Since(began), f.in.cpu
	return exitCode(ws)
}
