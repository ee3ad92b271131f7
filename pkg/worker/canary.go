package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/sandbox/probe"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/internal/unit"
	"github.com/rdistcc/rdistcc/pkg/worker/run"
)

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

// honest returns nil if one of the toolchains can compile, otherwise the last error. A toolchain that has changed since the
// tree began to show it is left out: that says nothing about the sandbox, and there will be another tree, with a
// canary of its own.
func (r *runner) honest(shown *display) (err error) {
	for i := range shown.list {
		tc := &shown.list[i]
		if r.s.compilers.Verify(r.s.ctx, tc) != nil {
			continue
		}
		for _, language := range []string{"cpp-output", "c++-cpp-output"} {
			if err = r.honestBy(shown, tc, language); err == nil {
				return nil
			}
		}
	}
	return err
}

// canarySlot is the size of the slot of a canary's job, in bytes, for its text and its object.
const canarySlot = 64 << 10

// honestBy does a job that could be a wrapper's, with the toolchain tc.
func (r *runner) honestBy(shown *display, tc *toolchain.Toolchain, language string) error {
	b := job.Body{Name: "canary.c", Language: language, Outputs: []unit.Output{{Kind: unit.OutputObject, Name: "canary.o"}}}
	text := "int canary(int x) { return x + 1; }\n"
	slot := make([]byte, canarySlot)
	body := b.Append(slot[:0])
	off := job.TextOffset(len(body))
	n := copy(slot[off:], text)
	j := &run.Job{
		Asked:     &job.Job{BodyLen: uint32(len(body)), TextOff: uint32(off), TextLen: uint64(n), Sink: job.Window{Len: canarySlot}},
		Toolchain: tc, Source: run.Source{Slot: slot}, Limit: canaryTime,
		Enter: func() error { return r.place.Open(r.s.ctx, shown.spec) }, // the job before may have cost the tree
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
	if err := r.place.Open(r.s.ctx, shown.spec); err != nil {
		return err
	}
	host, err := probe.NewHost(r.s.area.Path)
	if err != nil {
		return err
	}
	defer host.Close()
	if lacks := host.Lacks(); len(lacks) > 0 { // harmless: a target that does not exist cannot be reached
		r.s.o.Log.Debug("targets that a canary does without", "lacks", lacks)
	}
	exe, err := privatetree.Self()
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
