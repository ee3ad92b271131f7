package worker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

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

// canaryGrace is how long, after compilers have changed, compiles may run in trees in which no canary has
// passed since, unless the mode is strict. A canary waits for an idle runner, and in these modes what it
// finds would not stop compiles anyway.
const canaryGrace = 10 * time.Second

// prepare makes the place ready for commands. If compiles are confined, a canary must have passed in the
// place since the compilers changed: in strict mode before the next job, otherwise within canaryGrace.
func (r *runner) prepare(ctx context.Context) error {
	shown := r.s.shown.Load()
	spec := shown.spec
	if err := r.place.Open(ctx, spec); err != nil {
		return err
	}
	if !r.s.places.Confined {
		return nil
	}
	r.s.mu.Lock()
	tested := r.s.cage.tested[r.i] == spec
	late := r.s.o.Sandbox == SandboxStrict || time.Since(r.s.cage.shownAt) > canaryGrace
	r.s.mu.Unlock()
	switch {
	case tested:
		return nil
	case len(spec.Files) == 0, !late: // no toolchain, no job
		return r.s.holds(r, r.place.Measures())
	}
	return r.test(ctx, shown)
}

// test runs a canary in the place. An error means that no job may run there.
func (r *runner) test(ctx context.Context, shown *display) error {
	began := time.Now()
	r.s.mu.Lock()
	round := r.s.cage.round
	r.s.mu.Unlock()
	v := r.canary(ctx, shown)
	if err := r.place.Clean(); err != nil {
		r.s.o.Log.Error("clean up after a canary", "err", err)
		v.broken = errors.Join(v.broken, err)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	r.s.mu.Lock()
	r.s.cage.tested[r.i], r.round = shown.spec, round
	r.s.mu.Unlock()
	err := r.s.judged(r, v, time.Since(began))
	r.s.tellSandbox()
	return err
}

// canary does an honest job in the place, then runs a program there that tries every way out. The list of
// offered compilers may change meanwhile; canary uses those in shown.
func (r *runner) canary(ctx context.Context, shown *display) *verdict {
	v := &verdict{}
	if err := r.place.Open(ctx, shown.spec); err != nil {
		v.broken = err
		return v
	}
	if err := r.place.Forget(); err != nil { // it must find no tenant's files
		v.broken = err
		return v
	}
	v.held = r.place.Measures()
	if len(shown.list) == 0 { // no toolchain, no job, no canary
		return v
	}
	if err := r.honest(shown); err != nil {
		v.broken = fmt.Errorf("an honest compile: %w", err)
		return v
	}
	v.broken = r.probe(v, shown)
	return v
}

// honest returns nil if one of the toolchains can compile, otherwise the last error.
func (r *runner) honest(shown *display) (err error) {
	for i := range shown.list {
		for _, language := range []string{"cpp-output", "c++-cpp-output"} {
			if err = r.honestBy(&shown.list[i], language); err == nil {
				err = r.place.Open(r.s.ctx, shown.spec)
			}
			if err == nil {
				return nil
			}
		}
	}
	return err
}

// canarySlot is the size of the slot of a canary's job, in bytes, for its text and its object.
const canarySlot = 64 << 10

// honestBy does a job that could be a wrapper's, with the toolchain tc.
func (r *runner) honestBy(tc *toolchain.Toolchain, language string) error {
	b := job.Body{Name: "canary.c", Language: language, Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "canary.o"}}}
	text := "int canary(int x) { return x + 1; }\n"
	slot := make([]byte, canarySlot)
	body := b.Append(slot[:0])
	off := job.TextOffset(len(body))
	n := copy(slot[off:], text)
	j := &run.Job{
		Asked:     &job.Job{BodyLen: uint32(len(body)), TextOff: uint32(off), TextLen: uint64(n), Sink: job.Window{Len: canarySlot}},
		Toolchain: tc, Source: run.Source{Slot: slot}, Limit: canaryTime,
	}
	defer context.AfterFunc(r.s.ctx, func() { j.Process.Stop(job.CauseCancelled) })()
	res, _ := r.place.Do(j)
	err := canaryError(tc, res, slot)
	if err != nil && j.Excess != sandbox.ExcessNone {
		err = fmt.Errorf("%w (%s)", err, j.Excess)
	}
	return errors.Join(err, r.place.Clean())
}

// canaryError returns what is wrong with the answer to a canary's job, or nil. The answer's content is at the
// start of slot.
func canaryError(tc *toolchain.Toolchain, res *job.Result, slot []byte) error {
	switch {
	case res.Status != job.StatusRan:
		return fmt.Errorf("%s: %s: %s", tc.Exec, res.Cause, res.Detail)
	case res.Exit != 0 || res.Signal != 0:
		words := slot[res.Stderr.Off:][:res.Stderr.Len]
		first, _, _ := strings.Cut(string(words), "\n")
		return fmt.Errorf("%s ended with status %d, signal %d %s", tc.Exec, res.Exit, res.Signal, first)
	case len(res.Files) == 0 || res.Files[0].Len == 0:
		return fmt.Errorf("%s made an empty object", tc.Exec)
	}
	return nil
}

// probe runs the probe in the place, in the same way as compiles, with this daemon's own resources as
// targets. It adds what it finds to v and returns what should work but does not.
func (r *runner) probe(v *verdict, shown *display) error {
	host, err := probe.NewHost(r.s.area.Path)
	if err != nil {
		return err
	}
	defer host.Close()
	if lacks := host.Lacks(); len(lacks) > 0 { // harmless: a target that does not exist cannot be reached
		r.s.o.Log.Debug("targets that a canary does without", "lacks", lacks)
	}
	exe, err := self()
	if err != nil {
		return err
	}
	defer unix.Close(exe)
	t := host.Targets()
	tc := &shown.list[0]
	t.Toolchain, t.Program = tc.Exec, tc.Exec
	x := &run.Program{ExecFD: exe, Argv: append([]string{probe.Arg0}, t.Args()...), Limit: canaryTime}
	if dirs := libraryDirs(ownLibraries()); dirs != "" {
		x.Env = []string{"LD_LIBRARY_PATH=" + dirs}
	}
	var p run.Process
	defer context.AfterFunc(r.s.ctx, func() { p.Stop(job.CauseCancelled) })()
	o, words, said, err := r.place.Try(&p, x)
	if err != nil {
		return fmt.Errorf("the probe: %w", err)
	}
	report, err := probe.Parse(words)
	if err != nil {
		first, _, _ := strings.Cut(string(said), "\n")
		return fmt.Errorf("%w (status %d, signal %d, excess %s) %s", err, o.Exit, o.Signal, o.Excess, first)
	}
	for _, name := range report.Reachable() {
		if ownThing(name, v.held) {
			continue
		}
		v.reachable = append(v.reachable, name)
		line, _ := report.Result(name)
		v.doubt |= doubts[line.Class]
	}
	if touched := host.Touched(); len(touched) > 0 {
		v.reachable = append(v.reachable, touched...)
		v.doubt |= doubts[probe.Write]
	}
	if len(v.reachable) > 0 {
		v.doubt |= sandbox.Seccomp
	}
	return report.Works()
}

// ownThing reports whether what an attempt reaches is the job's own anyway: a job that can make a program
// load code that it has written runs code of its own already. Only a mount prevents that.
func ownThing(name string, held sandbox.Set) bool {
	return name == "load-own-file" && !held.Has(sandbox.Tree)
}

// doubts maps a class of targets to the measures that cannot be in force if one of them was reachable.
var doubts = map[string]sandbox.Set{
	probe.Read: sandbox.Tree | sandbox.Landlock, probe.Write: sandbox.Tree | sandbox.Landlock, probe.Exec: sandbox.Landlock,
	probe.Net: sandbox.Network, probe.Process: sandbox.Processes, probe.Privilege: sandbox.NoNewPrivs,
}

// self returns a descriptor of a copy of this program that can be executed where no files can be. The caller
// closes it.
func self() (int, error) {
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		return -1, err
	}
	defer exe.Close()
	const execute = 0x10 // MFD_EXEC, which kernels before 6.3 do not know
	fd, err := unix.MemfdCreate(probe.Arg0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|execute)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(probe.Arg0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return -1, fmt.Errorf("copy this program: %w", err)
	}
	for n := 1; n > 0 && err == nil; { // copied by the kernel: reading it would make 30 MB of garbage
		if n, err = unix.Sendfile(fd, int(exe.Fd()), nil, 1<<30); errors.Is(err, unix.EINTR) {
			n, err = 1, nil
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE|unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("copy this program: %w", err)
	}
	return fd, nil
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

// canaryNow runs a canary on an idle runner. take has counted it in confinement.testing.
func (r *runner) canaryNow() {
	defer func() {
		r.s.mu.Lock()
		defer r.s.mu.Unlock()
		r.s.cage.testing--
		r.s.wake.Broadcast() // another runner may begin its own
	}()
	defer r.s.rescue(r.s.o.Log, func() {
		if err := r.place.Abandon(); err != nil {
			r.s.o.Log.Error("end private tree", "err", err)
		}
	})
	if err := r.test(r.s.ctx, r.s.shown.Load()); err != nil && r.s.ctx.Err() == nil {
		r.s.o.Log.Debug("canary", "runner", r.i, "err", err)
	}
}
