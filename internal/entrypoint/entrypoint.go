// Package entrypoint is where programs begin that wait for most of the time that they run. The Go runtime is made for
// programs that compute, so these ask the runtime and the kernel for less, before any Go code runs:
//
//   - A timer slack of a millisecond (prctl(2)). The runtime's monitor sleeps for 20 us at a time after each wait for
//     something: of a job that takes the connection manager 0.8 ms of a processor, and the daemon 0.9 ms, that was
//     another 0.2 and 0.3 ms. What else waits for a time oversleeps by a millisecond at most; what arrives wakes at once.
//   - GOMAXPROCS=1, for the wrapper alone: the runtime starts one thread beside the first, not three or four. It
//     takes the number from the environment alone, so that it is put there, unless the user has said how many. With
//     the slack that halves the processor time that starting and waiting take.
//
// The Makefile links programs so. One that is linked without does the same, and takes a little longer. Programs that
// these start for others get neither: Environment and Given see to that.
package entrypoint

import (
	"runtime"
	"syscall"
)

// slack is the timer slack of this process, in nanoseconds.
const slack = 1_000_000

// What was found and done, before any Go code ran.
var (
	slackBefore int64 // timer slack in nanoseconds, as it was; 0: the process began elsewhere, or has none
	inserted    int64 // 1: the first words of the environment are short's
)

// Environment is that of this process as it was given to it.
func Environment() []string {
	env := syscall.Environ()
	if inserted != 0 && len(env) > 0 { // the second word is dropped as a repetition
		env = env[1:]
	}
	return env
}

// Given has what the calling goroutine starts get the timer slack that this process was given.
// The function that it returns ends that; until then the goroutine keeps its thread.
func Given() (end func()) {
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
