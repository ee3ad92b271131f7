package main

import (
	"runtime"
	"syscall"
)

// The Go runtime is made for programs that live long. This one waits for most of the few milliseconds that it
// runs, so entry asks the runtime and the kernel for less, which halves the processor time that starting
// and waiting take:
//
//   - GOMAXPROCS=1: the runtime starts one thread beside the first, not three or four. It takes the number from the
//     environment alone, so entry puts it there, unless the user has said how many.
//   - A timer slack of a millisecond (prctl(2)): the runtime's monitor, which sleeps for 20 us
//     at a time at first, wakes up a few times, not fifty.
//
// A program that is linked without entry does the same, a little later. Programs that this one starts get neither:
// environment and startProgram see to that.

// slack is the timer slack of this process, in nanoseconds.
const slack = 1_000_000

// What entry has found and done, before any Go code ran.
var (
	slackBefore int64 // timer slack in nanoseconds, as it was; 0: entry did not run, or the process has none
	inserted    int64 // 1: the first words of the environment are entry's
)

// environment is that of this process as it was given to it.
func environment() []string {
	env := syscall.Environ()
	if inserted != 0 && len(env) > 0 { // the second word is dropped as a repetition
		env = env[1:]
	}
	return env
}

// startProgram starts a program as a child.
func startProgram(file string, argv []string, attr *syscall.ProcAttr) (pid int, err error) {
	defer givenSlack()()
	return syscall.ForkExec(file, argv, attr)
}

// become executes a program in place of this process. It returns only an error.
func become(file string, argv, env []string) error {
	defer givenSlack()()
	return syscall.Exec(file, argv, env)
}

// givenSlack has what this thread starts get the timer slack that this process was given.
// The function that it returns ends that.
func givenSlack() (end func()) {
	if slackBefore <= 0 {
		return func() {}
	}
	runtime.LockOSThread()
	setSlack(slackBefore)
	return func() {
		setSlack(slack)
		runtime.UnlockOSThread()
	}
}

func setSlack(ns int64) {
	const prSetTimerSlack = 29
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, uintptr(ns), 0) // one that is longer does no harm
}
