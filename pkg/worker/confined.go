package worker

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/toolchain"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// Where a job of the text form lies in its stand. The names that the compiler is
// given are those that it would be given without a sandbox: none of these reaches an object.
const (
	textSource = "/job/src"
	textOutput = "/job/out"
	textTemp   = "/job/tmp"
)

// textJob is a compile of the text form, confined.
type textJob struct {
	tc   *toolchain.Toolchain
	body *job.Body
	text []byte
	env  []string
	out  *capture.Capture
	wall time.Duration
}

// runTextConfined does a task of the text form in the runner's stand.
func (r *runner) runTextConfined(t *task, body *job.Body, text []byte) (*job.Result, int) {
	if res := r.enter(t, false); res != nil {
		return res, 0
	}
	env, err := textEnvironment(body, r.temporary())
	if err != nil {
		return refused(err), 0
	}
	out, err := r.newCapture()
	if err != nil {
		return r.unable(t, err), 0
	}
	defer out.Close()
	x := &textJob{tc: &t.tc, body: body, text: text, env: env, out: out, wall: r.limit(t)}
	o, err := r.compileConfined(&t.proc, x, t.dropSource)
	return r.conclude(t, body, out, o, err, r.textOutputsConfined)
}

// enter makes the stand ready for a task, or gives the task's answer. Without lists the task
// finds nothing there of any that was before.
func (r *runner) enter(t *task, lists bool) *job.Result {
	err := r.prepare(r.s.ctx)
	if err == nil && !lists {
		err = r.stand.forget()
	}
	if err == nil {
		r.used, r.undone = true, false
		return nil
	}
	if scarce(err) {
		return r.unable(t, err)
	}
	r.s.o.Log.Error("private tree", "err", err)
	var no *job.Refusal
	switch {
	case errors.As(err, &no):
	case r.s.confined:
		no = refuse(job.CauseSandbox, "%v", err)
	default:
		no = refuse(job.CauseTree, "%v", err)
	}
	return refused(no)
}

// compileConfined lays a text into the stand and compiles it there. laid is called
// when the text is not needed any more.
func (r *runner) compileConfined(p *process, x *textJob, laid func()) (outcome, error) {
	tr, until := r.stand.tree, time.Now().Add(x.wall)
	for _, d := range []string{textSource, textOutput, textTemp} {
		if err := tr.Mkdirs(d); err != nil {
			return outcome{}, err
		}
	}
	if err := tr.Write(textSource+"/"+x.body.Name, x.text, time.Now().UnixNano(), false); err != nil {
		return outcome{}, err
	}
	laid()
	names := driver.Names{Source: x.body.Name, Output: "../out/" + outputName(x.body.Outputs[0].Kind), Temp: "../tmp/cc.s"}
	c := r.command(x.env, tr.Path(textSource), x.out, x.wall)
	if recipe := r.recipe(x.tc, x.body, tr.Path(textSource)); recipe != nil {
		r.setSteps(c, recipe, names)
		return r.runSteps(p, x.tc, c, textTemp+"/cc.s", x.out, until)
	}
	c.Argv = append([]string{x.tc.Exec}, driver.Fill(arguments(x.body), names)...)
	return p.runIn(tr, c, max(time.Until(until), time.Millisecond))
}

// command is one in the stand, without its words.
func (r *runner) command(env []string, dir string, out *capture.Capture, wall time.Duration) *privatetree.Command {
	c := &privatetree.Command{
		Env: env, Dir: dir, Stdin: int(r.s.devNull.Fd()), Stdout: out.FD(0), Stderr: out.FD(1),
		Nice: r.s.settings.Load().Nice,
	}
	c.Limits.File, c.Limits.Memory = r.s.o.File, r.s.o.Memory
	if r.s.confined {
		c.Limits = r.s.limits(wall)
	}
	return c
}

// temporary is where commands in the stand have their temporary files.
func (r *runner) temporary() string { return r.stand.tree.Path("/tmp") }

// askTime bounds a question to a driver, which takes 1 ms.
const askTime = 2 * time.Second

// ask gives the recipe of a client's words. They have passed the policy, and -### executes nothing; still
// it is a client's words that a driver reads, so where compiles are confined this is too.
func (r *runner) ask(tc *toolchain.Toolchain, words []string, dir string, need bool) *driver.Recipe {
	env := []string{"PATH=" + searchPath, "LC_ALL=C"}
	id := string(tc.ID[:])
	switch {
	case r.s.confined:
		return r.s.recipes.GetBy(id, tc.Exec, words, env, need, func(args []string) (string, error) { return r.askConfined(tc.Exec, args, env, dir) })
	case need:
		return r.s.recipes.Need(r.s.ctx, id, tc.Exec, words, env, dir)
	}
	return r.s.recipes.Get(r.s.ctx, id, tc.Exec, words, env, dir)
}

func (r *runner) askConfined(path string, args, env []string, dir string) (string, error) {
	pipes := capture.NewPipes(r.s.o.Output)
	defer pipes.Close()
	out, err := pipes.Joined()
	if err != nil {
		return "", err
	}
	c := r.command(append(env, "TMPDIR="+r.temporary()), dir, out, askTime)
	c.Argv = append([]string{path}, args...)
	var p process
	o, err := p.runIn(r.stand.tree, c, askTime)
	if err != nil {
		return "", err
	}
	if o.exit != 0 || o.signal != 0 || o.stopped != job.CauseNone {
		return "", fmt.Errorf("%s -###: exit %d, signal %d", path, o.exit, o.signal)
	}
	words, err := out.Written(0)
	return string(words), err
}

// textOutputsConfined opens the files that a confined compile of the text form made.
func (r *runner) textOutputsConfined(b *job.Body, out *capture.Capture, res *job.Result, g *gathering) error {
	if res.Exit != 0 {
		return r.roomLeft(out)
	}
	for i := range b.Outputs {
		name := outputName(b.Outputs[i].Kind)
		f, err := r.stand.tree.Open(textOutput + "/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if errors.Is(err, fs.ErrInvalid) {
			return refuse(job.CauseInternal, "%s is not the compiler's own regular file", name)
		}
		if err != nil {
			return err
		}
		if !own(f.FD) {
			unix.Close(f.FD)
			return refuse(job.CauseInternal, "%s is not the compiler's own regular file", name)
		}
		g.addFile(f.FD, uint64(f.Size), name, job.File{Index: uint8(i), Exec: f.Exec}, res)
	}
	return nil
}

// own says that a file has no other name: in a bare tree that could be one of the host's.
func own(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink == 1
}
