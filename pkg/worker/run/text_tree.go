package run

import (
	"errors"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// Directories of a job of the text form in a tree. The compiler is given the same names as without a sandbox
// (text.names).
const (
	textSource = "/job/src"
	textOutput = "/job/out"
	textTemp   = "/job/tmp"
)

// textInTree is a job of the text form that runs confined in the place's tree.
type textInTree struct{ text }

func (x *textInTree) lay() error {
	for _, d := range []string{textSource, textOutput, textTemp} {
		if err := x.p.tree.Mkdirs(d); err != nil {
			return err
		}
	}
	return x.p.tree.Write(textSource+"/"+x.j.body.Name, x.j.text, time.Now().UnixNano(), false)
}

func (x *textInTree) run(out *capture.Capture, until time.Time) (Outcome, error) {
	p, dir := x.p, x.p.tree.Path(textSource)
	c := p.command(x.environment(p.temporary()), dir, out, x.j.Limit)
	if recipe := x.recipe(dir); recipe != nil {
		p.setSteps(x.j.Toolchain, c, recipe, x.names())
		return p.runSteps(&x.j.Process, x.j.Toolchain, c, textTemp+"/cc.s", out, until)
	}
	c.Argv = append([]string{x.j.Toolchain.Exec}, driver.Fill(arguments(x.j.body), x.names())...)
	return x.j.Process.runIn(p.tree, c, left(until))
}

func (x *textInTree) outputs(out *capture.Capture, res *job.Result, g *gathering) error {
	if res.Exit != 0 {
		return x.p.roomLeft(out, true)
	}
	for i, o := range x.j.body.Outputs {
		name := outputName(o.Kind)
		f, err := x.p.tree.Open(textOutput + "/" + name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if strange(err) {
			return job.Refuse(job.CauseUndeclared, "%s is not the compiler's own regular file", name)
		}
		if err != nil {
			return err
		}
		if !own(f.FD) {
			unix.Close(f.FD)
			return job.Refuse(job.CauseUndeclared, "%s is not the compiler's own regular file", name)
		}
		g.addFile(f.FD, uint64(f.Size), name, job.File{Index: uint8(i), Exec: f.Exec}, res)
	}
	return nil
}

// own reports whether a file has no other name. In a bare tree, another name could be that of a file of the
// host.
func own(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && st.Nlink == 1
}
