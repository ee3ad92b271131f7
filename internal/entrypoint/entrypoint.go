// Package entrypoint is where programs begin that spend most of their time waiting. The Go runtime is made
// for programs that compute, so these ask the runtime and the kernel for less, before any Go code runs:
//
//   - A timer slack of a millisecond (prctl(2)). The runtime's monitor sleeps for 20 us at a time after each wait. In a job that takes
//     the connection manager 0.8 ms of CPU, and the daemon 0.9 ms, that was another 0.2 and 0.3 ms. Other waits for a time end
//     a millisecond late at most; arriving data wakes at once.
//   - GOMAXPROCS=1, for the wrapper only: the runtime starts one thread beside the first, not three or four. It takes the number from
//     the environment alone, so it is put there, unless the user has set it. Together with the slack that halves the CPU time of
//     starting and waiting.
//
// The Makefile links programs this way. One that is linked without it works the same, and takes a little
// longer. Programs that these start for others get neither: Environment and Given see to that.
package entrypoint

import (
	"runtime"
	"syscall"
)

// slack is the timer slack of this process, in nanoseconds.
const slack = 1_000_000

// What was found and done before any Go code ran.
var (
	slackBefore int64 // original timer slack in nanoseconds; 0: the process began elsewhere, or has none
	inserted    int64 // 1: the environment begins with words added by short
)

// Environment returns this process's environment as it was originally given.
func Environment() []string {
	env := syscall.Environ()
	if inserted != 0 && len(env) > 0 { // the second word is dropped as a repetition
		env = env[1:]
	}
	return env
}

// Given makes programs that the calling goroutine starts get the original timer slack of this process. The
// function that it returns ends that; until then the goroutine keeps its thread.
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
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, uintptr(ns), 0) // a longer slack does no harm
}
