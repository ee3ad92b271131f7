package spin

import "golang.org/x/sys/unix"

// letOthersRun lets another process have this thread's processor, if one waits for it. It may be the very one
// that is to send what is waited for: two processes that spin for each other on one processor would each use
// up their time before the other one can answer.
func letOthersRun() {
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // never fails
}
