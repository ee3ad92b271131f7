package run

import (
	"errors"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// textHere is a job of the text form that runs in directories of the host, not confined.
type textHere struct{ text }

func (x *textHere) lay() error { return x.p.src.Write(x.j.body.Name, x.j.text) }

// run runs cc1 and as themselves if it is known how the driver would run them, otherwise the driver.
func (x *textHere) run(out *capture.Capture, until time.Time) (Outcome, error) {
	h := x.p.h
	c := &command{
		env: x.environment(x.p.tmp.Path), dir: x.p.src.Path,
		stdin: int(h.devNull.Fd()), stdout: out.FD(0), stderr: out.FD(1),
		nice: h.Nice(), file: h.File, memory: h.Memory,
	}
	recipe := x.recipe(c.dir)
	if recipe == nil {
		c.argv, c.limit = append([]string{x.j.Toolchain.Exec}, driver.Fill(arguments(x.j.body), x.names())...), left(until)
		return x.j.Process.runHere(c)
	}
	var sum Outcome
	for i := range recipe.Steps() {
		c.argv, c.limit = recipe.Step(i, x.names()), left(until)
		if filepath.Base(c.argv[0]) == c.argv[0] {
			c.argv[0] = h.lookPath(c.argv[0])
		}
		o, err := x.j.Process.runHere(c)
		if err != nil {
			return o, err
		}
		o.after(&sum)
		sum = o
		if !o.Well() {
			break
		}
	}
	return sum, nil
}

// left returns the time until then, but at least a millisecond.
func left(until time.Time) time.Duration { return max(time.Until(until), time.Millisecond) }

func (x *textHere) outputs(out *capture.Capture, res *job.Result, g *gathering) error {
	if res.Exit != 0 {
		return x.p.roomLeft(out, false)
	}
	for i, o := range x.j.body.Outputs {
		name := outputName(o.Kind)
		fd, st, err := x.p.out.Open(name)
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
