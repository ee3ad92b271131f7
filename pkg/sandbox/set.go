package sandbox

import "strings"

// Set are measures that confine a compile. Its numbers travel in the job protocol
// (job.Welcome.Sandbox) and must not change.
type Set uint16

// Measures.
const (
	Tree       Set = 1 << iota // a root of its own: nothing of the host has a name there
	Processes                  // a pid namespace: no other process is seen, none outlives the compile
	Network                    // a network namespace: no interface
	IPC                        // an IPC namespace
	User                       // a user of its own, for each compile at a time
	Landlock                   // the kernel's Landlock: files and programs by list
	Seccomp                    // system calls by list
	NoNewPrivs                 // no set-user-id program has an effect; no capability can be had
	Bounds                     // rlimits, and a watch over memory, processes and disk
	Cgroup                     // a control group, version 2, with memory and pids limits
)

// names of the measures, in the order of their bits. They are values of a label of metrics.
var names = [...]string{"tree", "processes", "network", "ipc", "user", "landlock", "seccomp", "no-new-privs", "limits", "cgroup"}

// All are all measures.
const All = 1<<len(names) - 1

// Has reports whether all of m are in s.
func (s Set) Has(m Set) bool { return s&m == m }

// Names are the measures' names, in a fixed order.
func (s Set) Names() []string {
	var n []string
	for i, name := range names {
		if s&(1<<i) != 0 {
			n = append(n, name)
		}
	}
	return n
}

// String is the names with commas, or "none".
func (s Set) String() string {
	if s&All == 0 {
		return "none"
	}
	return strings.Join(s.Names(), ",")
}

// Level is what a set amounts to.
type Level uint8

// Levels, the weakest first.
const (
	Off      Level = iota // a compile can do whatever the daemon's user can
	Partial               // something holds, and something does not
	Confined              // what strict asks for: a hostile compile finds nothing of the host's, by one measure for each way out
	Full                  // Confined, and in namespaces of its own
)

func (l Level) String() string {
	return [...]string{"off", "partial", "confined", "full"}[l]
}

// Level says what the set amounts to.
func (s Set) Level() Level {
	switch files := s.Has(Tree) || s.Has(Landlock); {
	case s&All == 0:
		return Off
	case !files || !s.Has(Seccomp|NoNewPrivs|Bounds):
		return Partial
	case s.Has(Tree | Processes | Network | IPC):
		return Full
	}
	return Confined
}

// Missing names, for a set below Confined, what it lacks; a line for a person.
func (s Set) Missing() []string {
	var m []string
	if !s.Has(Tree) && !s.Has(Landlock) {
		m = append(m, "tree or landlock")
	}
	for _, x := range []Set{Seccomp, NoNewPrivs, Bounds} {
		if !s.Has(x) {
			m = append(m, x.String())
		}
	}
	return m
}
