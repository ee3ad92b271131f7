// Package machine represents the build host itself to the connection manager: how many processes may run on
// it at a time (Turns), whether memory is left for one more (Guard), how busy it is (LoadAverage), and which
// build a process belongs to (Builds).
//
// The package knows nothing of hosts, jobs or the manager. All of it is safe for concurrent use, and may be
// called with or without the manager's lock: its types have locks of their own, under which they call nothing
// of the manager but Turns.Room and Guard.Read.
package machine

import "golang.org/x/sys/unix"

// LoadAverage returns the machine's load average over one minute, or 0 if the kernel does not tell.
func LoadAverage() float64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return float64(info.Loads[0]) / (1 << 16)
}
