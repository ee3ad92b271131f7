package sandbox

import "time"

// Limits bounds a command. Zero means no bound.
type Limits struct {
	File      int64         // bytes of each file that it writes
	Memory    int64         // bytes that each of its processes may map; beyond that they get no more
	JobMemory int64         // bytes in memory of all its processes together
	Processes int           // alive at a time
	CPU       time.Duration // of all its processes together
}

// Excess says which bound a command was ended for exceeding. Its numbers are used only in the tree's protocol.
type Excess uint8

// Excesses.
const (
	ExcessNone      Excess = iota
	ExcessMemory           // Limits.JobMemory, or the control group's
	ExcessProcesses        // Limits.Processes
	ExcessFile             // Limits.File, or the room that a job has on the disk
	ExcessCPU              // Limits.CPU
	ExcessDenied           // a system call that no compiler makes
	ExcessNames            // a call that names files in a way to which there is no answer (Names)
)

var excesses = [...]string{"none", "memory", "processes", "file", "cpu", "denied", "names"}

// String returns a word, used as a label value of metrics.
func (e Excess) String() string {
	if int(e) < len(excesses) {
		return excesses[e]
	}
	return "unknown"
}
