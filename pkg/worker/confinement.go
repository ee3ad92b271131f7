package worker

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// measuresLocked returns the measures that confine every compile, as far as canaries have shown.
func (s *Server) measuresLocked() sandbox.Set {
	if s.o.Cluster != nil {
		return sandbox.Cluster
	}
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

// holds records what confines commands in a runner's tree, without a canary. The error means that no job may
// run.
func (s *Server) holds(r *runner, held sandbox.Set) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holdsLocked(r, held)
}

func (s *Server) holdsLocked(r *runner, held sandbox.Set) error {
	c, before := &s.cage, s.measuresLocked()
	c.held[r.i] = held
	if now := s.measuresLocked(); before != 0 && now.Level() < before.Level() {
		s.o.Log.Error("COMPILES ARE CONFINED LESS THAN BEFORE", "level", now.Level().String(), "before", before.Level().String(), "measures", now.String())
	}
	if s.o.Sandbox == SandboxStrict && held.Level() < sandbox.Confined {
		c.breach, c.passed, c.again = remedies(held), 0, time.Now().Add(canaryAgain)
		s.loseLocked(job.Refuse(job.CauseSandbox, "compiles would be %s here: %s", held.Level(), c.breach))
	}
	return s.lostLocked()
}

// lostLocked returns why no job may run, or nil if jobs may run.
func (s *Server) lostLocked() error {
	if s.cage.lost != nil {
		return s.cage.lost
	}
	return nil
}

// loseLocked makes the host take no work because confinement has failed.
func (s *Server) loseLocked(why *job.Refusal) {
	s.cage.lost = why
	s.setFitLocked(why)
}

// judged acts on what a canary found. The error means that no job may run.
func (s *Server) judged(r *runner, v *verdict, took time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.cage
	if v.held.Level() < sandbox.Confined && v.broken == nil {
		// The host does not claim to be confined, so reaching more than in a sandbox is no breach.
		if len(v.reachable) > 0 {
			s.o.Log.Warn("compiles are confined in part only", "level", v.held.Level().String(), "reachable", v.reachable)
		}
		s.o.Metrics.canary(canaryPassed)
		return s.holdsLocked(r, v.held)
	}
	if len(v.reachable) == 0 && v.broken == nil {
		s.o.Metrics.canary(canaryPassed)
		s.o.Log.Debug("canary passed", "runner", r.i, "measures", v.held.String(), "took", took)
		s.passedLocked(r)
		return s.holdsLocked(r, v.held)
	}
	s.o.Metrics.canary(canaryFailed)
	s.o.Log.Error("the sandbox leaks or fails", "runner", r.i, "measures", v.held.String(), "found", v.String())
	c.breach, c.passed, c.again = v.String(), 0, time.Now().Add(canaryAgain)
	c.doubt |= v.doubt
	if v.broken != nil {
		c.doubt |= sandbox.Seccomp // the probe has shown nothing
	}
	if v.held != 0 {
		c.held[r.i] = v.held
	}
	if s.o.Sandbox == SandboxStrict {
		s.loseLocked(job.Refuse(job.CauseSandbox, "the canary failed: %s", c.breach))
	}
	return s.lostLocked()
}

// passedLocked counts a runner that has passed a canary after a breach. When all runners have, the breach is
// over.
func (s *Server) passedLocked(r *runner) {
	c := &s.cage
	if c.breach == "" || r.round != c.round {
		return
	}
	if c.passed++; c.passed < s.o.Jobs {
		return
	}
	s.o.Log.Info("the sandbox holds again: every runner has passed a canary", "found before", c.breach)
	c.breach, c.doubt, c.lost, c.passed = "", 0, nil, 0
	s.checkFitLocked(time.Now())
}

// canariesLocked decides whether canaries are due; it is part of a tick.
func (s *Server) canariesLocked(now time.Time) {
	c := &s.cage
	if !s.places.Confined {
		return
	}
	if c.breach != "" && now.After(c.again) {
		c.round++
		c.passed, c.again = 0, now.Add(canaryAgain)
		s.wake.Broadcast()
	}
	if c.schedule.due(now, rand.Float64) {
		c.wanted = true
		s.wake.Broadcast()
	}
}

// canaryForLocked reports whether an idle runner should run a canary.
func (s *Server) canaryForLocked(r *runner) bool {
	c := &s.cage
	switch {
	case !s.places.Confined || len(s.Toolchains()) == 0:
		return false
	case s.cage.tested[r.i] != s.shown.Load().spec:
		// Not while compilers are still being identified, which would make it void, and not on all runners at
		// a time, because a job may come.
		if s.Identifying() && s.o.Sandbox != SandboxStrict || s.cage.testing >= max(1, s.o.Jobs/2) {
			return false
		}
		return true
	case c.breach != "" && r.round != c.round:
		return true
	case c.wanted:
		c.wanted = false
		return true
	}
	return false
}

// schedule says when canaries are due: at random times, equally likely at every moment.
type schedule struct {
	mean time.Duration
	next time.Time // zero: not set yet
}

// due reports whether a canary is due, and if so, sets the time of the next. The first call only sets that
// time. chance returns numbers that are uniform in [0, 1).
func (s *schedule) due(now time.Time, chance func() float64) bool {
	was := s.next
	if !was.IsZero() && now.Before(was) {
		return false
	}
	s.next = now.Add(time.Duration(min(-math.Log(1-chance()), 10) * float64(s.mean)))
	return !was.IsZero()
}

// verdict is what a canary found.
type verdict struct {
	held      sandbox.Set // measures in force during the canary
	reachable []string    // what it could reach but should not
	doubt     sandbox.Set // measures that should have prevented that
	broken    error       // what should work and does not
}

func (v *verdict) String() string {
	var what []string
	if len(v.reachable) > 0 {
		what = append(what, "reachable: "+strings.Join(v.reachable, ", "))
	}
	if v.broken != nil {
		what = append(what, v.broken.Error())
	}
	return strings.Join(what, "; ")
}

const (
	// canaryMean is the average time between two canaries of a server. When the next one runs cannot be
	// predicted.
	canaryMean = 10 * time.Minute
	// canaryAgain is how long after a failed canary every runner has to pass another one.
	canaryAgain = time.Minute
	// canaryTime bounds a canary's compile, and its probe. Reaching it counts as a failed sandbox, so only
	// what hangs should reach it; a busy machine has taken half a minute.
	canaryTime = 3 * time.Minute
)

// missing lists the measures that a host may lack, and how to get each.
var missing = []struct {
	m      sandbox.Set
	remedy string
}{
	{sandbox.Tree, "private trees (the line about them says what is in the way)"},
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
