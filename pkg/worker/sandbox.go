package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
	"github.com/rdistcc/rdistcc/pkg/worker/users"
)

// SandboxMode says how compiles are confined.
type SandboxMode uint8

// Modes.
const (
	SandboxOff    SandboxMode = iota // not at all: a compile can do whatever this process's user can
	SandboxAuto                      // by everything that the system offers
	SandboxStrict                    // at least sandbox.Confined; otherwise New fails, or jobs are refused
)

func (m SandboxMode) String() string { return [...]string{"off", "auto", "strict"}[m] }

// Bounds of a compile if Options sets none.
const (
	defaultProcesses = 64
	defaultFile      = 1 << 30 // bytes: an assembly is several times its object
	defaultOutput    = 1 << 20 // bytes
)

// confinement is what is known about how compiles are confined.
type confinement struct {
	// guarded by Server.mu
	held     []sandbox.Set       // by runner: the measures of its tree; 0: no tree yet
	breach   string              // what a canary could reach, or what did not work; "": nothing
	doubt    sandbox.Set         // measures that a breach has put in doubt
	lost     *job.Refusal        // strict: why no work is taken
	tested   []*privatetree.Spec // by runner: what its tree showed when a canary last ran there
	shownAt  time.Time           // when the compilers that trees show last changed
	testing  int                 // idle runners that run a canary
	begun    bool                // runners exist, so that it is known how they can be confined
	told     bool                // tellSandbox has logged
	round    int                 // number of the round in which every runner has to pass a canary; see runner.round
	passed   int                 // runners that have passed in this round, during a breach
	again    time.Time           // when the next round begins
	wanted   bool                // the next idle runner is to run a canary
	schedule schedule
}

// measuresLocked returns the measures that confine every compile, as far as canaries have shown.
func (s *Server) measuresLocked() sandbox.Set {
	all, any := sandbox.Set(sandbox.All), false
	for _, m := range s.cage.held {
		if m != 0 {
			all, any = all&m, true
		}
	}
	if !any {
		return 0
	}
	return all &^ s.cage.doubt
}

// setSandbox finds out how compiles can be confined, by opening the first runner's place.
func (s *Server) setSandbox(ctx context.Context, first *runner) error {
	if s.o.Sandbox == SandboxOff {
		if os.Geteuid() == 0 {
			s.o.Log.Warn("compiles run as root; name another user with --user")
		}
		return s.tryTrees(ctx, first.place)
	}
	s.places.Confined = true
	if s.o.Users != 0 {
		var err error
		s.users, err = users.Claim(s.o.Users, s.o.Jobs, s.o.Log)
		if s.ownUsers = err == nil; s.ownUsers {
			first.place.User = s.users.First
		} else {
			s.o.Log.Info("compiles have no users of their own", "err", err)
		}
	}
	var why error // why trees are required but not possible
	if s.o.Tree != TreeOff {
		if why = s.tryTrees(ctx, first.place); why != nil {
			return why // required
		}
	}
	if !s.places.Trees {
		s.places.Bare, first.place.Bare = true, true
		if dir := users.ClosedTo(filepath.Dir(s.area.Path)); s.ownUsers && dir != "" {
			s.o.Log.Warn("compiles have no users of their own: they could not get to the work directory; set daemon.work-dir to one that they can", "closed", dir)
			s.users.Release()
			s.ownUsers, first.place.User = false, 0
		}
		if s.ownUsers { // the users have to enter their own directories, but must not list the work area
			if err := os.Chmod(s.area.Path, 0o711); err != nil {
				return err
			}
		}
		if err := first.place.Open(ctx, s.shown.Load().spec); err != nil {
			err = fmt.Errorf("confine compiles: %w", err)
			if run.Scarce(err) {
				return err
			}
			return s.cannotConfine(err)
		}
	}
	if os.Geteuid() == 0 && !s.ownUsers {
		s.o.Log.Warn("compiles run as root; name another user with --user")
	}
	held := first.place.Measures()
	switch level := held.Level(); {
	case level >= sandbox.Confined:
	case s.o.Sandbox == SandboxStrict:
		return fmt.Errorf("sandbox is \"strict\": compiles would be %s here: %s", level, remedies(held))
	case level == sandbox.Off:
		return s.cannotConfine(fmt.Errorf("confine compiles: %s", remedies(held)))
	}
	return nil
}

// cannotConfine gives up confining compiles because of err: an error in strict mode, otherwise logged.
func (s *Server) cannotConfine(err error) error {
	if s.o.Sandbox == SandboxStrict {
		return fmt.Errorf("sandbox is \"strict\": %w; \"sandbox: auto\" would run compiles unconfined", err)
	}
	s.places.Confined, s.places.Bare = false, false
	s.o.Log.Error("COMPILES ARE NOT CONFINED: whoever may send jobs can do here whatever this process's user can", "err", err)
	return nil
}

// missing lists the measures that a host may lack, and how to get each.
var missing = []struct {
	m      sandbox.Set
	remedy string
}{
	{sandbox.Tree, "private trees: permit user namespaces, or start as root (the line about private trees says what is in the way)"},
	{sandbox.User, "an own user for each compile: start as root, without --user"},
	{sandbox.Landlock, "landlock: a kernel of 5.13 or later with landlock among lsm=, and a container profile that permits landlock_create_ruleset"},
	{sandbox.Seccomp, "seccomp: a kernel with CONFIG_SECCOMP_FILTER, and a container profile that permits seccomp"},
	{sandbox.NoNewPrivs, "no-new-privs: a container profile that permits prctl"},
	{sandbox.Bounds, "limits: a container profile that permits prlimit64"},
	{sandbox.Cgroup, "cgroup: control groups of version 2 that are delegated (systemd: Delegate=cpu memory pids)"},
}

// remedies returns a text that says what a set of measures lacks for sandbox.Confined, and how to get it.
func remedies(held sandbox.Set) string {
	lacks := strings.Join(held.Missing(), ", ")
	var how []string
	for _, x := range missing {
		if !held.Has(x.m) && strings.Contains(lacks, x.m.String()) {
			how = append(how, x.remedy)
		}
	}
	return "lacks " + lacks + " (" + strings.Join(how, "; ") + ")"
}

// settledLocked reports whether the start is over: compilers are identified, and every runner has run a
// canary, if there is a compiler for it.
func (s *Server) settledLocked() bool {
	if s.Identifying() || !s.cage.begun {
		return false
	}
	if !s.places.Confined || len(s.Toolchains()) == 0 {
		return true
	}
	return !slices.ContainsFunc(s.cage.tested, func(p *privatetree.Spec) bool { return p == nil })
}

// tellSandbox logs at the end of the start, once, how compiles are confined.
func (s *Server) tellSandbox() {
	s.mu.Lock()
	tell := s.settledLocked() && s.places.Confined && !s.cage.told
	s.cage.told = s.cage.told || tell
	held, doubt := s.measuresLocked(), s.cage.doubt
	s.mu.Unlock()
	if !tell {
		return
	}
	s.o.Log.Info("compiles are confined", "level", held.Level().String(), "measures", held.String())
	for _, x := range missing {
		switch {
		case held.Has(x.m):
		case doubt&x.m != 0: // the system has it
			s.o.Log.Info("not among the measures", "lacks", x.m.String()+": in doubt until every place has passed a canary again, which begins within a minute")
		default:
			s.o.Log.Info("not among the measures", "lacks", x.remedy)
		}
	}
}

// jobMemory returns the default of Options.JobMemory: three quarters of machineMemory.
func (s *Server) jobMemory() int64 { return s.machineMemory() / 4 * 3 }

// machineMemory returns the memory of the machine, or what the control groups around this process allow if
// that is less, in bytes; 0 if not known.
func (s *Server) machineMemory() (n int64) {
	if b, err := os.ReadFile(s.o.Proc + "/meminfo"); err == nil {
		n = int64(number(b, "MemTotal:") << 10)
	}
	if most := s.groups.Memory(); most > 0 && (n == 0 || most < n) {
		n = most
	}
	return n
}

// SandboxStatus says how compiles are confined, as far as is known.
type SandboxStatus struct {
	Mode     SandboxMode
	Measures sandbox.Set // that confine every compile
	Breach   string      // what a canary could reach, or what did not work; "": nothing
}

// MarshalJSON writes mode, level and measures as words.
func (s SandboxStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Mode     string   `json:"mode"`
		Level    string   `json:"level"`
		Measures []string `json:"measures"`
		Breach   string   `json:"breach,omitempty"`
	}{s.Mode.String(), s.Measures.Level().String(), s.Measures.Names(), s.Breach})
}

func (s *Server) sandboxLocked() SandboxStatus {
	return SandboxStatus{Mode: s.o.Sandbox, Measures: s.measuresLocked(), Breach: s.cage.breach}
}
