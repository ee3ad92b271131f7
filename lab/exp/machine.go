package exp

import (
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Header is the first line of raw results: what was run, where, and when.
type Header struct {
	Experiment string    `json:"experiment"` // its ID
	Name       string    `json:"name"`
	Size       Size      `json:"size"`
	Rounds     int       `json:"rounds"`
	Seed       uint64    `json:"seed"`
	Time       time.Time `json:"time"`
	Cores      int       `json:"cores"`
	Processor  string    `json:"processor"`
	Kernel     string    `json:"kernel"`
	Go         string    `json:"go"`
	Arch       string    `json:"arch"`
	Root       bool      `json:"root"`
	Load       string    `json:"load"` // averages over 1, 5 and 15 minutes before the first round
	CPU        string    `json:"cpu"`  // how CPU time is measured; empty: it is not
}

// facts returns the header of a run that begins now.
func facts(e *Experiment, o *Options) Header {
	h := Header{Experiment: e.ID, Name: e.Name, Size: o.Size, Rounds: o.Rounds, Seed: o.Seed, Time: time.Now().UTC().Truncate(time.Second),
		Cores: runtime.GOMAXPROCS(0), Processor: processor(), Go: runtime.Version(), Arch: runtime.GOARCH, Root: os.Geteuid() == 0}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		if f := strings.Fields(string(b)); len(f) > 2 {
			h.Load = strings.Join(f[:3], " ")
		}
	}
	return h
}

// processor returns the processor's name, or its architecture where the kernel does not tell.
func processor() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
