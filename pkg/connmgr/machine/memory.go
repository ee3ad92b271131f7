package machine

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
)

// Memory is how much memory this machine has.
type Memory struct {
	Total, Free uint64 // bytes; Free is available without swapping. If Total is 0, neither is known
	// Stalled is the percentage of the last ten seconds in which all processes waited for memory (the kernel's
	// PSI), or 0 if the kernel does not tell.
	Stalled float64
}

// How much memory a new local process is counted with until its use shows, and how much is left to others.
const (
	PreprocessMemory = 64 << 20  // bytes, for a process that lists inputs or preprocesses
	CompileMemory    = 256 << 20 // bytes, for a compile or a link
	leastFree        = 128 << 20 // bytes left to others at least
	freePart         = 20        // one part in freePart of all memory, if that is more
	mostStalled      = 10        // percent; from it on, no process is admitted if memory is scarce
	// settle is how long a process takes to allocate its memory.
	settle     = 2 * time.Second
	lookMemory = 100 * time.Millisecond
)

// Guard decides whether there is memory for one more process on this machine: a make with far too many jobs
// must not make it swap. It is safe for concurrent use.
type Guard struct {
	Read func() Memory // returns the present state; set once, ReadMemory except in tests
	mu   sync.Mutex
	at   time.Time
	last Memory
	// begun are the processes that started so recently that their memory does not show yet, oldest first.
	begun []begun
}

type begun struct {
	at time.Time
	n  uint64
}

// Admits reports whether there is room for a process of n bytes. If so, it counts them as used.
func (g *Guard) Admits(now time.Time, n uint64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if now.Sub(g.at) >= lookMemory {
		g.at, g.last = now, g.Read()
	}
	for len(g.begun) > 0 && now.Sub(g.begun[0].at) >= settle {
		g.begun = g.begun[1:]
	}
	if m := g.last; m.Total > 0 {
		need := max(leastFree, m.Total/freePart) + n
		for _, b := range g.begun {
			need += b.n
		}
		if m.Free < need || m.Stalled >= mostStalled && cgroup.Scarce(m.Free, m.Total) {
			return false
		}
	}
	g.begun = append(g.begun, begun{now, n})
	return true
}

// around returns the control groups that this process is in.
var around = sync.OnceValue(func() *cgroup.Groups { return cgroup.Find("/proc") })

// ReadMemory returns what the kernel tells, within the limits of this process's control groups. Fields that
// the kernel does not tell are 0.
func ReadMemory() (m Memory) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return m
	}
	m.Total, m.Free = kibibytes(info, "MemTotal:"), kibibytes(info, "MemAvailable:")
	if most, g := around().Memory(), around(); most > 0 { // a container has less than the machine
		free, _ := g.MemoryFree()
		m.Total, m.Free = min(m.Total, uint64(most)), min(m.Free, free)
	}
	if m.Free == 0 { // the kernel does not tell, or nothing is free
		m.Total = 0
	}
	pressure, err := os.ReadFile("/proc/pressure/memory")
	if err != nil {
		return m
	}
	for line := range bytes.Lines(pressure) {
		if rest, ok := bytes.CutPrefix(line, []byte("full avg10=")); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				m.Stalled, _ = strconv.ParseFloat(string(f[0]), 64)
			}
		}
	}
	return m
}

// kibibytes returns the value of the line name in /proc/meminfo in bytes, or 0 without such a line.
func kibibytes(info []byte, name string) uint64 {
	for line := range bytes.Lines(info) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			if f := bytes.Fields(rest); len(f) > 0 {
				n, _ := strconv.ParseUint(string(f[0]), 10, 64)
				return n << 10
			}
		}
	}
	return 0
}
