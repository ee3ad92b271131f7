// Package machine is the build host itself, as the connection manager deals with it: how
// many processes may run here at a time (Turns), what memory is left for them (Guard), what
// else the machine does (LoadAverage), and which build a process belongs to (Builds).
//
// Nothing in it knows of hosts, jobs or the manager. Everything is safe for concurrent use
// and has a lock of its own, under which nothing of the manager's is called but Turns.Room
// and Guard.Read: all of it may be called with the manager's lock held or without.
package machine

import "golang.org/x/sys/unix"

// LoadAverage is the machine's, of one minute; 0 where the kernel does not say.
func LoadAverage() float64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return float64(info.Loads[0]) / (1 << 16)
}
