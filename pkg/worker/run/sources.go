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
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/files"
	"github.com/rdistcc/rdistcc/pkg/worker/policy"
)

// sourcesInTree is a job of the sources form: the build host's command on the build host's files, under their
// names there, in the place's tree.
type sourcesInTree struct {
	p    *Place
	j    *Job
	plan *compile.Plan
	env  []string
	made [][]string // environments of the commands that make the job's precompiled headers
}

func (s *sourcesInTree) check() (err error) {
	if s.plan, err = policy.Sources(s.j.body, s.p.compilerOf(s.j.Toolchain), s.j.Files.Text); err != nil {
		return err
	}
	for _, x := range s.j.Files.Images {
		if err := policy.Image(x.Body, s.p.compilerOf(s.j.Toolchain), x.Text); err != nil {
			return err
		}
		env, err := treeEnvironment(x.Body, false)
		if err != nil {
			return err
		}
		s.made = append(s.made, env)
	}
	s.env, err = treeEnvironment(s.j.body, s.plan.Driver.Tidy)
	return err
}

// treeEnvironment returns the environment of a command in a tree.
func treeEnvironment(b *job.Body, tidy bool) ([]string, error) {
	variables := policy.SourcesVariables
	if tidy {
		variables = policy.TidyVariables
	}
	vars, err := variables(b.Env)
	return append([]string{"PATH=" + SearchPath, "TMPDIR=/tmp"}, vars...), err
}

func (s *sourcesInTree) lay() error {
	made, err := s.images()
	defer func() {
		for i := range made {
			made[i].Free()
		}
	}()
	if err != nil {
		return err
	}
	err = s.p.lay(s.j, s.j.Files, made)
	if err == nil || errors.Is(err, files.ErrSpoiled) {
		return err
	}
	return blamed(err)
}

// run runs the command: cc1 and as themselves if it is known how the driver would run them, otherwise the
// driver.
func (s *sourcesInTree) run(out *capture.Capture, until time.Time) (Outcome, error) {
	p, b := s.p, s.j.body
	c := p.command(s.env, b.Cwd, out, s.j.Limit)
	recipe, names := s.recipe()
	if recipe == nil && b.Front > 0 {
		return Outcome{}, job.Refuse(job.CausePolicy, "the driver is needed, which has an order of its own for what native means")
	}
	var direct Outcome
	if recipe != nil {
		p.setSteps(s.j.Toolchain, c, recipe, names)
		o, err := p.runSteps(&s.j.Process, s.j.Toolchain, c, treeTemp, out, until)
		if err != nil || o.Stopped != job.CauseNone {
			return o, err
		}
		// The driver would remove the temporary file. Opening it makes it an expected one.
		if f, err := p.tree.Open(treeTemp); err == nil {
			unix.Close(f.FD)
		}
		// A program that was killed from outside has no message to add, and would be killed again.
		if o.Signal == 0 && o.Exit <= 1 || o.Signal == int(unix.SIGKILL) {
			p.undone = o.Exit != 0
			return o, nil
		}
		// After a crash the driver runs too, for its own message about a compiler that crashed.
		if err := out.Rewind(); err != nil {
			return o, err
		}
		if main := s.plan.Main(); main != "" {
			p.tree.Remove(seenFrom(b.Cwd, main)) // as may have made it
		}
		direct = o
	}
	exec := s.j.Toolchain.Exec
	c.Path, c.Argv, c.Then = exec, append([]string{calledAs(exec, b.Argv0)}, b.Args...), nil
	o, err := s.j.Process.runIn(p.tree, c, left(until))
	o.after(&direct)
	return o, err
}

// treeTemp is the assembly file between cc1 and as. The driver would use the same name, except that it picks
// the last six letters at random.
const treeTemp = "/tmp/ccRdistc.s"

// recipe returns what the driver would run, and the names of the files; nil means that the driver has to run.
func (s *sourcesInTree) recipe() (*driver.Recipe, driver.Names) {
	words, names, ok := s.plan.SharedWhole()
	if !ok || len(s.j.body.Images) > 0 {
		return nil, names
	}
	names.Temp = treeTemp
	b := s.j.body
	recipe := s.p.ask(s.j.Toolchain, words, "/", b.Front > 0)
	if recipe != nil && b.Front > 0 {
		recipe = recipe.Front(b.Args[:b.Front], b.Args[b.Front:])
	}
	return recipe, names
}

// calledAs returns argv[0] for a compiler. The base name is the client's, which appears in messages; the
// directory is the one here, from which the compiler looks for its programs.
func calledAs(exec, argv0 string) string {
	return filepath.Join(filepath.Dir(exec), filepath.Base(argv0))
}

// strange reports whether an output could not be opened because its name is that of something other than a
// file of the job: a directory, a link, a device, a file of the toolchain; or because the compiler, which a client may have
// sent, has shut the file or its directory. The client declared that name, so this host is not at fault.
func strange(err error) bool {
	for _, e := range []error{privatetree.ErrTaken, fs.ErrInvalid, unix.ELOOP, unix.ENOTDIR, unix.ENXIO, unix.ENAMETOOLONG, unix.EACCES} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// outputs adds the files that the compiler made to the result, whatever its exit status: a failed compile
// leaves a .d file too. A file that the job did not declare makes the job void, because the build host would
// lack it. The search for such files ends when the job has to stop.
func (s *sourcesInTree) outputs(out *capture.Capture, res *job.Result, g *gathering) error {
	p, b := s.p, s.j.body
	tr := p.tree
	if res.Exit != 0 {
		if err := p.roomLeft(out, true); err != nil {
			return err
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
		if i == 0 && p.undone && !s.plan.Syntax {
			unix.Close(f.FD)
			continue
		}
		g.addFile(f.FD, uint64(f.Size), b.Outputs[i].Name, job.File{Index: uint8(i), Exec: f.Exec}, res)
	}
	more, err := tr.Unexpected(s.j.Process.Check)
	if strange(err) {
		return job.Refuse(job.CauseUndeclared, "%v", err)
	}
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
