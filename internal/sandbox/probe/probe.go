package probe

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arg0 is the name under which a program has to call Main at once.
const Arg0 = "rdistccd-probe"

// Classes of attempts: what an attacker would gain. Need is what a compile must be able to do. An Oracle is
// what only a private root hides: whether a name exists, and its file's mode and size; it is reported, and
// not counted.
const (
	Read      = "read"
	Write     = "write"
	Exec      = "exec"
	Net       = "net"
	Process   = "process"
	Privilege = "privilege"
	Kernel    = "kernel"
	Info      = "info"
	Oracle    = "oracle"
	Need      = "need"
)

// Attempt is one thing to try. Do returns nil if it succeeded; it runs in a process of its own, which ends
// after that.
type Attempt struct {
	Name, Class string
	Do          func(*Targets) error
	here        bool // in Main's own process
}

// Attempts returns all attempts, in order; the needs come first.
func Attempts() []Attempt {
	var all []Attempt
	for _, some := range [][]Attempt{needs, files, programs, network, processes, privileges, kernel} {
		all = append(all, some...)
	}
	return all
}

// patience is how long an attempt may take. One that blocks has failed.
const patience = 3 * time.Second

// needPatience are the times for what a compile needs, one after the other. None of that blocks; but a
// machine may be slow, or stall for some seconds, and a forked process hangs if another thread held a lock
// of Go's runtime at that moment. Neither is the sandbox's fault.
var needPatience = []time.Duration{patience, 2 * patience, 20 * patience}

// Main makes the attempts on the targets that the program's arguments name, and ends the program: with 0,
// whatever their outcome, or 1 if they cannot be made.
func Main() {
	if len(os.Args) == 2 && os.Args[1] == sleepArg {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	debug.SetGCPercent(-1) // a forked child has no other thread that could help to collect
	if dir := os.Getenv("PWD"); dir != "" {
		_ = os.Chdir(dir) // it was started from one where this program was to be found
	}
	targets, err := ParseTargets(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, Arg0+":", err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	all := Attempts()
	for i := range all {
		a := &all[i]
		word, why := "refused", try(a, targets)
		if why == "" {
			word, why = "reachable", "-"
		}
		fmt.Fprintln(out, a.Name, a.Class, word, why)
	}
	fmt.Fprintln(out, "end", len(all))
	if out.Flush() != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// try makes an attempt. It returns "" if it succeeded, else one word: the name of an error, or of the
// signal that killed it.
func try(a *Attempt, t *Targets) (why string) {
	if a.here {
		if err := a.Do(t); err != nil {
			return word(err)
		}
		return ""
	}
	if a.Class != Need {
		return tryOnce(a, t, patience)
	}
	for _, limit := range needPatience {
		if why = tryOnce(a, t, limit); why != word(unix.ETIMEDOUT) {
			break
		}
	}
	return why
}

// tryOnce makes an attempt in a forked process.
func tryOnce(a *Attempt, t *Targets, limit time.Duration) string {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return "pipe:" + word(err)
	}
	defer unix.Close(p[0])
	pid, err := fork(0)
	if err != nil {
		unix.Close(p[1])
		return "fork:" + word(err)
	}
	if pid == 0 {
		report(p[1], a.Do(t))
	}
	unix.Close(p[1])
	answer, err := await(p[0], limit)
	status, ended := reap(pid)
	switch {
	case err != nil:
		return word(err)
	case !ended:
		return "unkillable"
	case len(answer) == 4:
		if no := *(*uint32)(unsafe.Pointer(&answer[0])); no != 0 {
			return word(unix.Errno(no))
		}
		return ""
	case status.Signaled():
		return unix.SignalName(status.Signal())
	}
	return "silent" // a crash of this program itself
}

// fork makes a process that continues here, with this one thread; flags are clone's.
func fork(flags uintptr) (pid int, err error) {
	r, _, no := unix.RawSyscall6(unix.SYS_CLONE, flags|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if no != 0 {
		return 0, no
	}
	return int(r), nil
}

// report tells the parent the outcome of the attempt, and ends the process.
func report(fd int, err error) {
	no := number(err)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&no)), 4)
	leave(0)
}

// leave ends a forked process.
func leave(status int) {
	for {
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT_GROUP, uintptr(status), 0, 0)
	}
}

// await reads what the child writes until its end of the pipe is closed.
func await(fd int, limit time.Duration) ([]byte, error) {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for until := time.Now().Add(limit); ; {
		left := time.Until(until)
		if left <= 0 {
			return nil, unix.ETIMEDOUT
		}
		n, err := unix.Poll(poll, int(left/time.Millisecond)+1)
		if errors.Is(err, unix.EINTR) || err == nil && n == 0 {
			continue
		}
		if err != nil {
			return nil, err
		}
		var buf [8]byte
		k, err := unix.Read(fd, buf[:])
		if errors.Is(err, unix.EINTR) {
			continue
		}
		return buf[:max(k, 0)], err
	}
}

// reap waits for a child, and kills it if it does not end by itself.
func reap(pid int) (status unix.WaitStatus, ended bool) {
	const step = 5 * time.Millisecond
	for waited := time.Duration(0); waited < 2*patience; waited += step {
		got, err := unix.Wait4(pid, &status, unix.WNOHANG, nil)
		if got == pid || errors.Is(err, unix.ECHILD) {
			return status, true
		}
		if waited >= patience {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		pause(step)
	}
	return status, false
}

func pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&ts, nil)
}

// number returns an error's number; 0 for none.
func number(err error) uint32 {
	var no unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &no) && no != 0:
		return uint32(no)
	}
	return uint32(unix.EIO)
}

// word returns an error as one word.
func word(err error) string {
	no := unix.Errno(number(err))
	if name := unix.ErrnoName(no); name != "" {
		return name
	}
	return fmt.Sprintf("E%d", uint32(no))
}
