package worker

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/policy"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// compile runs the compiler on the text: by its driver, or where it is known
// what that would start, by running cc1 and as themselves.
func (r *runner) compile(t *task, b *job.Body, c *command) (outcome, error) {
	names := driver.Names{Source: b.Name, Output: "../out/" + outputName(b.Outputs[0].Kind), Temp: "../tmp/cc.s"}
	recipe := r.recipe(&t.tc, b, c.dir)
	if recipe == nil {
		c.argv = append([]string{t.tc.Exec}, driver.Fill(arguments(b), names)...)
		return t.proc.runHere(c)
	}
	var sum outcome
	began := time.Now()
	for i := range recipe.Steps() {
		c.argv = recipe.Step(i, names)
		if filepath.Base(c.argv[0]) == c.argv[0] {
			c.argv[0] = r.s.lookPath(c.argv[0])
		}
		step := *c
		step.limit = max(c.limit-time.Since(began), time.Millisecond)
		o, err := t.proc.runHere(&step)
		if err != nil {
			return o, err
		}
		o.cpu += sum.cpu
		o.maxRSS = max(o.maxRSS, sum.maxRSS)
		sum = o
		if o.exit != 0 || o.signal != 0 || o.stopped != job.CauseNone {
			break
		}
	}
	return sum, nil
}

// recipe returns what the driver would run, or nil: then the driver runs. Side
// files get their names from the driver.
func (r *runner) recipe(tc *toolchain.Toolchain, b *job.Body, dir string) *driver.Recipe {
	if tc.Family != "gcc" || len(b.Outputs) != 1 {
		return nil
	}
	return r.ask(tc, arguments(b), dir, false)
}

// arguments makes the driver's words behind its name, with placeholders for the
// names; the output is named last.
func arguments(b *job.Body) []string {
	mode := "-c"
	if b.Outputs[0].Kind == job.OutputAssembly {
		mode = "-S"
	}
	argv := make([]string, 0, len(b.Args)+6)
	argv = append(argv, b.Args...)
	return append(argv, "-x", b.Language, mode, driver.Source, "-o", driver.Output)
}

// compilerOf is what the policy is told of a compiler.
func compilerOf(tc *toolchain.Toolchain) policy.Compiler {
	return policy.Compiler{Family: tc.Family, Major: tc.Major, Exec: tc.Exec, Path: tc.Path}
}

// textEnvironment makes the environment of a compile of text from nothing but what the policy
// lets a client choose.
func textEnvironment(b *job.Body, tmp string) ([]string, error) {
	client, err := policy.TextVariables(b.Env)
	return append([]string{"PATH=" + searchPath, "TMPDIR=" + tmp}, client...), err
}

// sourcesEnvironment makes that of a compile in a tree.
func sourcesEnvironment(b *job.Body) ([]string, error) {
	client, err := policy.SourcesVariables(b.Env)
	return append([]string{"PATH=" + searchPath, "TMPDIR=/tmp"}, client...), err
}

// lookPath finds a program on searchPath, once; what is not there keeps its name,
// and cannot be started.
func (s *Server) lookPath(name string) string {
	if path, ok := s.programs.Load(name); ok {
		return path.(string)
	}
	for _, dir := range filepath.SplitList(searchPath) {
		path := filepath.Join(dir, name)
		if unix.Access(path, unix.X_OK) == nil {
			s.programs.Store(name, path)
			return path
		}
	}
	return name
}

// textOutputs opens the files that a compile of the text form made.
func (r *runner) textOutputs(b *job.Body, out *capture.Capture, res *job.Result, g *gathering) error {
	if res.Exit != 0 {
		return r.roomLeft(out)
	}
	for i := range b.Outputs {
		name := outputName(b.Outputs[i].Kind)
		fd, st, err := r.out.Open(name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return err
		}
		g.addFile(fd, uint64(st.Size), name, job.File{Index: uint8(i), Exec: st.Mode&0o100 != 0}, res)
	}
	return nil
}

// roomLeft tells a compiler that had no room for its files from one that said no:
// that is this host's fault, and another one may have room. A file system with
// more room than the jobs together may take was not full.
func (r *runner) roomLeft(out *capture.Capture) error {
	words, err := out.Written(1)
	if err != nil || !bytes.Contains(words, []byte("No space left on device")) {
		return err
	}
	place := r.s.area.Path
	if r.out != nil {
		place = r.out.Path
	} else if !r.s.cage.bare {
		r.s.o.Metrics.denial(deniedDisk)
		return refuse(job.CauseTooBig, "the compile needs more than the %d bytes that a job may write", r.s.treeRoom())
	}
	var st unix.Statfs_t
	if err := unix.Statfs(place, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= uint64(r.s.o.Jobs)*uint64(r.s.o.File) {
		return nil
	}
	return fmt.Errorf("compile in %s: %w", place, unix.ENOSPC)
}
