package probe

import (
	"errors"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// needs are the things that a compile does.
var needs = []Attempt{
	{Name: "need-toolchain", Class: Need, Do: func(t *Targets) error { return reads(t.Toolchain) }},
	{Name: "need-job-directory", Class: Need, Do: func(*Targets) error { return works(".") }},
	{Name: "need-temporary-files", Class: Need, Do: func(*Targets) error { return works(tempDir()) }},
	{Name: "need-programs", Class: Need, Do: runProgram},
	{Name: "need-threads", Class: Need, Do: thread, here: true},
	{Name: "need-memory", Class: Need, Do: memory},
	{Name: "need-pipes", Class: Need, Do: pipes},
	{Name: "need-children", Class: Need, Do: killChild},
	{Name: "need-clock", Class: Need, Do: clock},
	{Name: "need-random", Class: Need, Do: func(*Targets) error { _, err := unix.Getrandom(make([]byte, 8), 0); return err }},
	{Name: "need-self", Class: Need, Do: func(*Targets) error { var u unix.Utsname; _ = unix.Getpid(); return unix.Uname(&u) }},
}

// works makes a file as compilers and assemblers do, and removes it.
func works(dir string) error {
	if dir == "" {
		return unix.ENOENT
	}
	name, err := writeOwn(dir, []byte("hello"))
	defer func() { _ = unix.Unlink(name) }()
	if err != nil {
		return err
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	var buf [8]byte
	n, err := unix.Read(fd, buf[:])
	if err == nil && string(buf[:n]) != "hello" {
		err = unix.EIO
	}
	if err == nil {
		_, err = unix.Seek(fd, 0, 0)
	}
	if err == nil {
		err = unix.Ftruncate(fd, 1)
	}
	if err == nil {
		_, err = unix.Mmap(fd, 0, 1, unix.PROT_READ, unix.MAP_PRIVATE)
	}
	var st unix.Stat_t
	if err == nil {
		err = unix.Fstat(fd, &st)
	}
	if err == nil {
		// If a compile has no root of its own, the sandbox does not see whose file's mode this is, and
		// refuses: compilers can do without.
		if err = unix.Chmod(name, 0o644); errors.Is(err, unix.EPERM) {
			err = nil
		}
	}
	if err == nil {
		err = unix.Rename(name, name+".o")
		_ = unix.Unlink(name + ".o")
	}
	return err
}

// runProgram starts a program of the toolchain.
func runProgram(t *Targets) error {
	pid, err := fork(0)
	if err != nil {
		return err
	}
	if pid == 0 {
		leave(int(min(number(execute(t.Program, t.Program, "--version")), 255)))
	}
	switch status, ended := reap(pid); {
	case !ended:
		return unix.ETIMEDOUT
	case status.Signaled():
		return unix.EINTR
	case status.ExitStatus() != 0:
		return unix.Errno(status.ExitStatus())
	}
	return nil
}

// thread makes the runtime start another thread. If that is refused the program ends, and the report with it.
func thread(*Targets) error {
	own := make(chan int)
	go func() {
		runtime.LockOSThread()
		own <- unix.Gettid()
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if <-own == unix.Gettid() {
		return unix.EAGAIN
	}
	return nil
}

func memory(*Targets) error {
	b, err := unix.Mmap(-1, 0, 8<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return unix.Munmap(b)
}

func pipes(*Targets) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	if _, err := unix.Write(p[1], []byte("x")); err != nil {
		return err
	}
	return unix.Dup3(p[0], p[1], unix.O_CLOEXEC)
}

// killChild kills a child, as drivers do when they are interrupted.
func killChild(*Targets) error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	defer unix.Close(p[0])
	pid, err := fork(0)
	if err != nil {
		unix.Close(p[1])
		return err
	}
	if pid == 0 {
		unix.Close(p[1])
		_, _ = unix.Read(p[0], make([]byte, 1)) // until it is told to end
		leave(endsItself)
	}
	killed := unix.Kill(pid, unix.SIGTERM)
	unix.Close(p[1])
	status, ended := reap(pid)
	switch {
	case !ended:
		return unix.EPERM
	case errors.Is(killed, unix.EPERM) && status.Exited() && status.ExitStatus() == endsItself:
		return nil // without a scope for signals only those to the own group work (docs/sandbox.md): compilers do without
	case killed == nil && status.Signaled():
		return nil
	}
	return errors.Join(killed, unix.EPERM)
}

// endsItself is the status of a child that was not killed.
const endsItself = 7

func clock(*Targets) error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return err
	}
	if time.Now().Year() < 2000 {
		return errors.ErrUnsupported
	}
	return nil
}
