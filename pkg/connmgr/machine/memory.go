package machine

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/cgroup"
)

// Memory is what this machine has left.
type Memory struct {
	Total, Free uint64 // bytes; Free can be had without swapping. Total 0: nobody knows
	// Stalled is the part of the last ten seconds, in percent, in which all processes
	// waited for memory (the kernel's PSI); 0 where the kernel does not say.
	Stalled float64
}

// What local processes take until it shows, and what is left to others.
const (
	PreprocessMemory = 64 << 20  // of one that lists or preprocesses
	CompileMemory    = 256 << 20 // of a compile or link
	leastFree        = 128 << 20
	freePart         = 20 // of all memory, this part is left as well
	mostStalled      = 10 // percent
	// settle is how long a process needs to take what it takes.
	settle     = 2 * time.Second
	lookMemory = 100 * time.Millisecond
)

// Guard says whether there is memory for one more process here: a make with
// far too many jobs must not bring the machine to swap. It is safe for concurrent use.
type Guard struct {
	Read func() Memory // set once: what there is, ReadMemory in earnest
	mu   sync.Mutex
	at   time.Time
	last Memory
	// begun are the processes that have begun so lately that their memory does not
	// show, oldest first.
	begun []begun
}

type begun struct {
	at time.Time
	n  uint64
}

// Admits says whether there is room for n bytes, and takes it that they are used then.
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
		if m.Free < need || m.Stalled >= mostStalled {
			return false
		}
	}
	g.begun = append(g.begun, begun{now, n})
	return true
}

// around are the control groups around this process.
var around = sync.OnceValue(func() *cgroup.Groups { return cgroup.Find("/proc") })

// ReadMemory asks the kernel.
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
	if m.Free == 0 { // a kernel that does not say, or one where it makes no difference
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

// kibibytes is a line of /proc/meminfo, in bytes.
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
