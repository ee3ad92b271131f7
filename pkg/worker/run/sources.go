package run

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/policy"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
)

// sourcesInTree is a job of the sources form: the client's command over the client's files, under the client's
// names, in the place's tree.
type sourcesInTree struct {
	p    *Place
	j    *Job
	plan *compile.Plan
	env  []string
}

func (s *sourcesInTree) check() (err error) {
	if s.plan, err = policy.Sources(s.j.body, compilerOf(s.j.Toolchain), s.j.Files.Text); err != nil {
		return err
	}
	vars, err := policy.SourcesVariables(s.j.body.Env)
	s.env = append([]string{"PATH=" + SearchPath, "TMPDIR=/tmp"}, vars...)
	return err
}

func (s *sourcesInTree) lay() error {
	err := s.p.lay(s.j.Tenant, s.j.Files, s.j.Process.Check)
	if err == nil || errors.Is(err, files.ErrSpoiled) {
		return err
	}
	return blamed(err)
}

// run runs the command: by its driver, or where it is known what
// that would start, by running cc1 and as themselves.
func (s *sourcesInTree) run(out *capture.Capture, until time.Time) (Outcome, error) {
	p, b := s.p, s.j.body
	c := p.command(s.env, b.Cwd, out, s.j.Limit)
	recipe, names := s.recipe()
	if recipe == nil && b.Front > 0 {
		return Outcome{}, job.Refuse(job.CausePolicy, "the driver is needed, which has an order of its own for what native means")
	}
	var direct Outcome
	if recipe != nil {
		p.setSteps(c, recipe, names)
		o, err := p.runSteps(&s.j.Process, s.j.Toolchain, c, treeTemp, out, until)
		if err != nil || o.Stopped != job.CauseNone {
			return o, err
		}
		// The driver would remove it. To look at it makes it known.
		if f, err := p.tree.Open(treeTemp); err == nil {
			unix.Close(f.FD)
		}
		// Killed from outside it says nothing, and would be killed again.
		if o.Signal == 0 && o.Exit <= 1 || o.Signal == int(unix.SIGKILL) {
			p.undone = o.Exit != 0
			return o, nil
		}
		// The driver has its own words for a compiler that crashed.
		if err := out.Rewind(); err != nil {
			return o, err
		}
		p.tree.Remove(seenFrom(b.Cwd, b.Outputs[0].Name)) // as may have made it
		direct = o
	}
	exec := s.j.Toolchain.Exec
	c.Path, c.Argv, c.Then = exec, append([]string{calledAs(exec, b.Argv0)}, b.Args...), nil
	o, err := s.j.Process.runIn(p.tree, c, left(until))
	o.after(&direct)
	return o, err
}

// treeTemp is where the assembly lies between cc1 and as; the driver would call it so,
// but for the last six letters.
const treeTemp = "/tmp/ccRdistc.s"

// recipe returns what the driver would run, or nil: then the driver runs.
func (s *sourcesInTree) recipe() (*driver.Recipe, driver.Names) {
	words, names, ok := s.plan.SharedWhole()
	if !ok {
		return nil, names
	}
	names.Temp = treeTemp
	b := s.j.body
	recipe := s.p.ask(s.j.Toolchain, words, "/", b.Front > 0)
	if recipe != nil && b.Front > 0 {
		recipe = recipe.Front(b.Args[:b.Front])
	}
	return recipe, names
}

// calledAs returns the name that a compiler is given as its own: the client's in its
// messages, and where it lies here, as it looks for its parts from there.
func calledAs(exec, argv0 string) string {
	return filepath.Join(filepath.Dir(exec), filepath.Base(argv0))
}

// strange reports whether an output's name stands for what is no file of the job's: a directory,
// a link, a device, one of the toolchain's. Whoever declared it knew, so it is no fault of this host.
func strange(err error) bool {
	for _, e := range []error{privatetree.ErrTaken, fs.ErrInvalid, unix.ELOOP, unix.ENOTDIR, unix.ENXIO, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// outputs opens the files that the compiler made, whatever its status: a .d
// file is there after a failed compile as well. A file that nobody foresaw makes
// the job void: the client would lack it. The job's end ends the search.
func (s *sourcesInTree) outputs(out *capture.Capture, res *job.Result, g *gathering) error {
	p, b := s.p, s.j.body
	tr := p.tree
	if res.Exit != 0 {
		if words, err := out.Written(1); err != nil || containsAny(words, []string{"No space left on device"}) {
			p.h.Denied(deniedDisk)
			return errors.Join(err, job.Refuse(job.CauseTooBig, "the compile needs more than the %d bytes that a job may write", p.h.TreeRoom()))
		}
	}
	for i := range b.Outputs {
		f, err := tr.Open(seenFrom(b.Cwd, b.Outputs[i].Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if strange(err) {
			return job.Refuse(job.CauseUndeclared, "%v", err)
		}
		if err != nil {
			return err
		}
		if i == 0 && p.undone {
			unix.Close(f.FD)
			continue
		}
		g.addFile(f.FD, uint64(f.Size), b.Outputs[i].Name, job.File{Index: uint8(i), Exec: f.Exec}, res)
	}
	more, err := tr.Unexpected(s.j.Process.Check)
	if err != nil {
		return err
	}
	if len(more) > 0 {
		what := more[0]
		if len(more) > 1 {
			what += " and " + strconv.Itoa(len(more)-1) + " more"
		}
		return job.Refuse(job.CauseUndeclared, "%s", what)
	}
	return nil
}
