package sandbox

import "time"

// Limits bound a command. Zero is no bound.
type Limits struct {
	File      int64         // bytes of each file that it writes
	Memory    int64         // bytes that each of its processes may map; past it they get no more
	JobMemory int64         // bytes that all its processes together hold in memory
	Processes int           // that live at a time
	CPU       time.Duration // of all its processes together
}

// Excess is what a command did beyond its bounds, and was ended for. Its numbers
// are those of the tree's protocol only.
type Excess uint8

// Excesses.
const (
	ExcessNone      Excess = iota
	ExcessMemory           // Limits.JobMemory, or the control group's
	ExcessProcesses        // Limits.Processes
	ExcessFile             // Limits.File, or the room that a job has on the disk
	ExcessCPU              // Limits.CPU
	ExcessDenied           // a system call that no compiler makes
)

var excesses = [...]string{"none", "memory", "processes", "file", "cpu", "denied"}

// String is a word, a value of labels of metrics.
func (e Excess) String() string {
	if int(e) < len(excesses) {
		return excesses[e]
	}
	return "unknown"
}
