package main

import (
	"syscall"
	"time"
)

// killedWithin is how long a killed process group may take to disappear.
const killedWithin = time.Second

// firstWords is more than the first line of a message takes, in bytes.
const firstWords = 4 << 10

// runFirst runs what comes before a remote compile, the preprocessor or the run that
// lists the files, with the slot as its standard output. It reports whether the run went
// well and printed no message. At the first byte on standard error it stops the run, as
// the whole command will run here anyway; words is the start of what was printed.
//
// The run has a process group of its own, so that nothing of it is left when it is
// stopped, and it dies with us.
func (f *flow) runFirst(c command) (clean bool, words []byte) {
	var errs [2]int // its standard error
	if err := syscall.Pipe2(errs[:], syscall.O_CLOEXEC); err != nil {
		return false, nil
	}
	defer syscall.Close(errs[0])
	if !c.alone {
		f.in.watch()
	}
	pidfd := -1 // stays so before Linux 5.4
	pid, err := start(c, f.set.childEnv(), []uintptr{0, uintptr(f.slot.source), uintptr(errs[1])},
		&syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, PidFD: &pidfd})
	syscall.Close(errs[1])
	if err != nil {
		return false, nil
	}
	f.slot.closed = false
	f.in.holds(f.conn, -pid)
	f.in.watch()

	// Its standard error ends with the last process that it started. A process that stays
	// behind must not hold us up: the end of the first one is enough to go on.
	wait := []pollFD{{fd: int32(errs[0]), events: pollIn}, {fd: int32(pidfd), events: pollIn}}
	poll(wait, -1)
	if wait[0].revents == 0 {
		poll(wait[:1], 0) // all that the first process wrote is in the pipe by now
	}
	spoke := wait[0].revents&pollIn != 0
	if spoke {
		words = make([]byte, firstWords)
		n, _ := syscall.Read(errs[0], words)
		words = words[:max(n, 0)]
		_ = syscall.Kill(-pid, syscall.SIGKILL) // not reaped yet: the group is still its own
		wait[0].events = 0                      // wait for nothing but the end
		poll(wait[:1], killedWithin)
	}
	f.slot.closed = wait[0].revents&pollHup != 0
	ws, err := f.in.reap(pid)
	if pidfd >= 0 {
		syscall.Close(pidfd)
	}
	return err == nil && !spoke && ws.Exited() && ws.ExitStatus() == 0 && f.in.caught() == 0, words
}

// maxAnswer bounds what a compiler prints about itself, in bytes.
const maxAnswer = 1 << 20

// ask runs a command that describes itself on standard error, in English, and returns the text.
func (f *flow) ask(c command) string { return f.askIn(c, append(f.set.childEnv(), "LC_ALL=C")) }

// askIn does that with another environment. It returns "" if the command fails.
func (f *flow) askIn(c command, env []string) string {
	var words [2]int
	if syscall.Pipe2(words[:], syscall.O_CLOEXEC) != nil {
		return ""
	}
	null, err := syscall.Open("/dev/null", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		syscall.Close(words[0])
		syscall.Close(words[1])
		return ""
	}
	defer syscall.Close(null)
	f.in.watch()
	pid, err := start(c, env, []uintptr{uintptr(null), uintptr(null), uintptr(words[1])},
		&syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL})
	syscall.Close(words[1])
	if err != nil {
		syscall.Close(words[0])
		return ""
	}
	f.in.holds(f.conn, -pid)
	var text []byte
	buf := make([]byte, 16<<10)
	for len(text) < maxAnswer {
		n, err := syscall.Read(words[0], buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			break
		}
		text = append(text, buf[:n]...)
	}
	syscall.Close(words[0]) // one that would say more must not wait for us
	if ws, err := f.in.reap(pid); err != nil || !ws.Exited() || ws.ExitStatus() != 0 {
		return ""
	}
	return string(text)
}
