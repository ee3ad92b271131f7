package worker

import (
	"bytes"
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/policy"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// runSources does a task of the sources form: the client's command over the
// client's files, under the client's names, in the runner's tree.
func (r *runner) runSources(t *task, in *inputs) (*job.Result, int) {
	if !r.s.trees {
		return refused(errNoTrees), 0
	}
	b := in.body
	plan, err := policy.Sources(b, compilerOf(&t.tc), in.text)
	if err != nil {
		return refused(err), 0
	}
	env, err := sourcesEnvironment(b)
	if err != nil {
		return refused(err), 0
	}
	if err := r.s.verify(r.s.ctx, &t.tc); err != nil {
		return refused(err), 0
	}
	if res := r.enter(t, len(in.lists) > 0); res != nil {
		return res, 0
	}
	// How many files and directories there are the client says, so what is done about those takes of its time.
	until := time.Now().Add(r.limit(t))
	defer time.AfterFunc(time.Until(until), func() { t.proc.stop(job.CauseTimeout) }).Stop()
	if err := r.stand.lay(t.c.keeps, r.s.forgets.Load(), in, t.proc.check); err != nil {
		if res := r.stopped(err); res != nil {
			return res, 0
		}
		if errors.Is(err, errSpoiled) {
			return failed(err), 0
		}
		if res := unlaid(err); res != nil {
			return res, 0
		}
		return r.unable(t, err), 0
	}
	t.drop() // it is files now
	out, err := r.newCapture()
	if err != nil {
		return r.unable(t, err), 0
	}
	defer out.Close()
	c := r.command(env, b.Cwd, out, r.limit(t))
	o, err := r.compileIn(t, b, plan, c, out, until)
	return r.conclude(t, b, out, o, err, func(b *job.Body, out *capture.Capture, res *job.Result, g *gathering) error {
		return r.treeOutputs(b, out, res, g, t.proc.check)
	})
}

// errNoTrees answers a job of the sources form where there can be no trees.
var errNoTrees = refuse(job.CauseTree, "the host cannot show private trees")

// compileIn runs the command in the tree: by its driver, or where it is known what
// that would start, by running cc1 and as themselves.
func (r *runner) compileIn(t *task, b *job.Body, plan *compile.Plan, c *privatetree.Command, out *capture.Capture, until time.Time) (outcome, error) {
	recipe, names := r.wholeRecipe(t, b, plan)
	if recipe == nil && b.Front > 0 {
		return outcome{}, refuse(job.CausePolicy, "the driver is needed, which has an order of its own for what native means")
	}
	var direct outcome
	if recipe != nil {
		r.setSteps(c, recipe, names)
		o, err := r.runSteps(&t.proc, &t.tc, c, treeTemp, out, until)
		if err != nil || o.stopped != job.CauseNone {
			return o, err
		}
		// The driver would remove it. To look at it makes it known.
		if f, err := r.stand.tree.Open(treeTemp); err == nil {
			unix.Close(f.FD)
		}
		// Killed from outside it says nothing, and would be killed again.
		if o.signal == 0 && o.exit <= 1 || o.signal == int(unix.SIGKILL) {
			r.undone = o.exit != 0
			return o, nil
		}
		// The driver has its own words for a compiler that crashed.
		if err := out.Rewind(); err != nil {
			return o, err
		}
		r.stand.tree.Remove(seenFrom(b.Cwd, b.Outputs[0].Name)) // as may have made it
		direct = o
	}
	c.Path, c.Argv, c.Then = t.tc.Exec, append([]string{calledAs(t.tc.Exec, b.Argv0)}, b.Args...), nil
	o, err := t.proc.runIn(r.stand.tree, c, max(time.Until(until), time.Millisecond))
	o.cpu += direct.cpu
	o.maxRSS = max(o.maxRSS, direct.maxRSS)
	return o, err
}

// treeTemp is where the assembly lies between cc1 and as; the driver would call it so,
// but for the last six letters.
const treeTemp = "/tmp/ccRdistc.s"

// wholeRecipe returns what the driver would run, or nil: then the driver runs.
func (r *runner) wholeRecipe(t *task, b *job.Body, plan *compile.Plan) (*driver.Recipe, driver.Names) {
	words, names, ok := plan.SharedWhole()
	if !ok {
		return nil, names
	}
	names.Temp = treeTemp
	recipe := r.ask(&t.tc, words, "/", b.Front > 0)
	if recipe != nil && b.Front > 0 {
		recipe = recipe.Front(b.Args[:b.Front])
	}
	return recipe, names
}

// calledAs is the name that a compiler is given as its own: the client's in its
// messages, and where it lies here, as it looks for its parts from there.
func calledAs(exec, argv0 string) string {
	return filepath.Join(filepath.Dir(exec), filepath.Base(argv0))
}

// lay makes in a new tree what the compile finds on the client. An error of check ends it.
func lay(tr *privatetree.Tree, in *inputs, check func() error) error {
	if err := layAround(tr, in, check); err != nil {
		return err
	}
	for i := in.listed(); i < len(in.text); i++ {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// layAround makes all but the files of lists.
func layAround(tr *privatetree.Tree, in *inputs, check func() error) error {
	b := in.body
	for i := range b.Links {
		if err := check(); err != nil {
			return err
		}
		if err := tr.Symlink(b.Links[i].Target, b.Links[i].Name); err != nil {
			return err
		}
	}
	// gcc wants one of its own directories for headers to be there, even if it
	// finds nothing in it.
	for _, d := range []string{b.Cwd, "/usr/include"} {
		if err := tr.Mkdirs(d); err != nil {
			return err
		}
	}
	for _, d := range b.Dirs {
		if err := check(); err != nil {
			return err
		}
		if err := tr.Mkdirs(seenFrom(b.Cwd, d)); err != nil {
			return err
		}
	}
	last := b.Cwd
	for i := range b.Outputs {
		name := seenFrom(b.Cwd, b.Outputs[i].Name)
		if dir := name[:max(1, strings.LastIndexByte(name, '/'))]; dir != last {
			if err := tr.Mkdirs(dir); err != nil {
				return err
			}
			last = dir
		}
	}
	for i := range in.listed() {
		if err := layFile(tr, in, i, check); err != nil {
			return err
		}
	}
	return nil
}

// layFile makes one file.
func layFile(tr *privatetree.Tree, in *inputs, i int, check func() error) error {
	if err := check(); err != nil {
		return err
	}
	b := in.body
	f := &b.Files[i]
	name := seenFrom(b.Cwd, f.Name)
	if f.Same != 0 {
		return tr.Hardlink(seenFrom(b.Cwd, b.Files[f.Same-1].Name), name)
	}
	text, err := in.file(i)
	if err != nil {
		return err
	}
	return tr.Write(name, text, f.MTime, f.Exec)
}

// seenFrom is a name that stands alone. It is not made shorter: "a/.." is not
// nothing where a is a link.
func seenFrom(cwd, name string) string {
	if name[0] == '/' {
		return name
	}
	return cwd + "/" + name
}

// unlaid makes the answer of a job whose files could not be made; nil if that is the
// host's own trouble.
func unlaid(err error) *job.Result {
	switch {
	case errors.Is(err, privatetree.ErrTaken), errors.Is(err, unix.ENAMETOOLONG), errors.Is(err, unix.ELOOP):
		err = refuse(job.CauseTree, "%v", err) // no fault of the client's
	case errors.Is(err, fs.ErrExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.EISDIR), errors.Is(err, fs.ErrInvalid), errors.Is(err, unix.EINVAL):
		err = refuse(job.CauseMalformed, "%v", err) // it was not so on the client
	case errors.Is(err, unix.ENOSPC):
		err = refuse(job.CauseTooBig, "%v", err)
	default:
		return nil
	}
	return refused(err)
}

// strange says that an output's name stands for what is no file of the job's: a directory,
// a link, a device, one of the toolchain's. Whoever declared it knew, so it is no fault of this host.
func strange(err error) bool {
	for _, e := range []error{privatetree.ErrTaken, fs.ErrInvalid, unix.ELOOP, unix.ENOTDIR, unix.ENXIO, unix.ENAMETOOLONG} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// treeOutputs opens the files that the compiler made, whatever its status: a .d
// file is there after a failed compile as well. A file that nobody foresaw makes
// the job void: the client would lack it. An error of check ends the search.
func (r *runner) treeOutputs(b *job.Body, out *capture.Capture, res *job.Result, g *gathering, check func() error) error {
	tr := r.stand.tree
	if res.Exit != 0 {
		if words, err := out.Written(1); err != nil || bytes.Contains(words, []byte("No space left on device")) {
			r.s.o.Metrics.denial(deniedDisk)
			return errors.Join(err, refuse(job.CauseTooBig, "the compile needs more than the %d bytes that a job may write", r.s.treeRoom()))
		}
	}
	for i := range b.Outputs {
		f, err := tr.Open(seenFrom(b.Cwd, b.Outputs[i].Name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if strange(err) {
			return refuse(job.CauseUndeclared, "%v", err)
		}
		if err != nil {
			return err
		}
		if i == 0 && r.undone {
			unix.Close(f.FD)
			continue
		}
		g.addFile(f.FD, uint64(f.Size), b.Outputs[i].Name, job.File{Index: uint8(i), Exec: f.Exec}, res)
	}
	more, err := tr.Unexpected(check)
	if err != nil {
		return err
	}
	if len(more) > 0 {
		what := more[0]
		if len(more) > 1 {
			what += " and " + strconv.Itoa(len(more)-1) + " more"
		}
		return refuse(job.CauseUndeclared, "%s", what)
	}
	return nil
}
