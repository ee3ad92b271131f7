package sandbox

import "strings"

// Set is a set of measures that confine a compile. Its numbers travel in the job protocol
// (job.Welcome.Sandbox) and must not change.
type Set uint16

// Measures.
const (
	Tree       Set = 1 << iota // a root of its own: nothing of the host is visible there
	Processes                  // a pid namespace: no other process is visible, none outlives the compile
	Network                    // a network namespace without an interface
	IPC                        // an IPC namespace
	User                       // a user of its own, for one compile at a time
	Landlock                   // the kernel's Landlock: files and programs by list
	Seccomp                    // system calls by list
	NoNewPrivs                 // set-user-id programs have no effect; no capability can be gained
	Bounds                     // rlimits, and a watch over memory, processes and disk
	Cgroup                     // a control group, version 2, with memory and pids limits
	Names                      // calls that name files are answered by another process: the names are those of the compile's own
	Cluster                    // no program of a compile runs on the host: a cluster does that, and confines it or not
)

// names has the measures' names, in the order of their bits. They are label values of a metric.
var names = [...]string{"tree", "processes", "network", "ipc", "user", "landlock", "seccomp", "no-new-privs", "limits", "cgroup", "names", "cluster"}

// All is the set of all measures.
const All = 1<<len(names) - 1

// Has reports whether all of m are in s.
func (s Set) Has(m Set) bool { return s&m == m }

// Names returns the measures' names, in a fixed order.
func (s Set) Names() []string {
	var n []string
	for i, name := range names {
		if s&(1<<i) != 0 {
			n = append(n, name)
		}
	}
	return n
}

// String returns the names separated by commas, or "none".
func (s Set) String() string {
	if s&All == 0 {
		return "none"
	}
	return strings.Join(s.Names(), ",")
}

// Level rates a set.
type Level uint8

// Levels, the weakest first.
const (
	Off      Level = iota // a compile can do whatever the daemon's user can
	Partial               // some measures hold, others do not
	Confined              // what strict requires: a hostile compile finds nothing of the host's, with one measure against each way out
	Full                  // Confined, and in namespaces of its own
)

func (l Level) String() string {
	return [...]string{"off", "partial", "confined", "full"}[l]
}

// Level returns the level of the set.
func (s Set) Level() Level {
	switch files := s.Has(Tree) || s.Has(Landlock); {
	case s&All == 0:
		return Off
	case s.Has(Cluster) && !s.Has(Seccomp):
		return Confined
	case !files || !s.Has(Seccomp|NoNewPrivs|Bounds):
		return Partial
	case s.Has(Tree | Processes | Network | IPC):
		return Full
	}
	return Confined
}

// Missing returns what a set below Confined lacks; one line each, for a person.
func (s Set) Missing() []string {
	if s.Level() >= Confined {
		return nil
	}
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
