package run

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/driver"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/cluster"
)

// away runs the command of a job on the host's cluster.
type away struct {
	p    *Place
	j    *Job
	cmd  *cluster.Command
	made []*cluster.Output // in the order of the command's outputs
}

// bounded sets the bounds of the command.
func (a *away) bounded(c *cluster.Command) *cluster.Command {
	c.Compiler, c.Limit = a.j.Toolchain, a.j.Limit
	c.MaxFile, c.MaxPrinted = a.p.h.File, a.p.h.Output
	return c
}

func (a *away) run(out *capture.Capture, until time.Time) (Outcome, error) {
	o, err := a.p.h.runAway(&a.j.Process, a.cmd, left(until))
	if err != nil {
		var stop *stopError
		if errors.As(err, &stop) {
			return Outcome{Stopped: stop.cause}, nil
		}
		return Outcome{}, err
	}
	for i, b := range o.Printed {
		if err := writeAll(out.FD(i), b); err != nil {
			return Outcome{}, err
		}
	}
	if no := void(o); no != nil {
		return Outcome{}, &cluster.Failed{Refusal: no}
	}
	a.made = o.Outputs
	return Outcome{Outcome: privatetree.Outcome{Exit: o.Exit, CPU: o.Ran}}, nil
}

// crashed is the least exit status of a clang that has crashed, and leaves files about that.
const crashed = 70

// void returns why the outcome of a command that has ended is not what became of the job; nil: it is.
func void(o *cluster.Outcome) *job.Refusal {
	said := o.Printed[1]
	switch {
	case o.Exit == 0:
		return nil
	case containsAny(said, killedWords), containsAny(said, memoryWords):
		return job.Refuse(job.CauseMemory, "the compiler had not enough memory on the cluster")
	case containsAny(said, []string{"No space left on device"}):
		return job.Refuse(job.CauseDisk, "a worker of the cluster has no room left")
	case o.Exit >= crashed, containsAny(said, []string{"Preprocessed source stored into"}):
		return job.Refuse(job.CauseUndeclared, "the compiler crashed on the cluster, and left files there")
	}
	return nil
}

// runAway runs a command on the cluster until the job has to stop. That is a *stopError.
func (h *Host) runAway(proc *Process, cmd *cluster.Command, limit time.Duration) (*cluster.Outcome, error) {
	ctx, cancel := context.WithTimeout(h.Context, limit+awayGrace)
	defer cancel()
	stop, forget := proc.stops()
	defer forget()
	ended := make(chan struct{})
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-stop:
			cancel()
		case <-ended:
		}
	}()
	o, err := h.Cluster.Run(ctx, cmd)
	close(ended)
	<-watching
	if serr := proc.Check(); serr != nil {
		return nil, serr
	}
	return o, err
}

// awayGrace is how much longer than its time limit a job may take in all: the limit is the action's too, whose wait for a worker does
// not count.
const awayGrace = time.Second

// notAway returns the answer to a job that has no result because of err, an error of the cluster.
func (p *Place) notAway(j *Job, err error) *job.Result {
	var failed *cluster.Failed
	if errors.As(err, &failed) {
		return Failed(err)
	}
	j.trouble(err)
	return Refused(err)
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		b = b[max(n, 0):]
	}
	return nil
}

// output adds output i to a result, if the command has made it.
func (a *away) output(i int, res *job.Result, g *gathering) {
	if o := a.made[i]; o != nil {
		g.addBytes(o.Content, job.File{Index: uint8(i), Exec: o.Exec}, res)
	}
}

// sourcesAway is a job of the sources form on the cluster: what sourcesInTree shows and runs, by content.
type sourcesAway struct {
	sourcesInTree
	away away
}

func (s *sourcesAway) check() error {
	b := s.j.body
	if len(s.j.Files.Images) > 0 {
		return job.Refuse(job.CauseTree, "a precompiled header, which the cluster would have to make, and whose files have times")
	}
	if err := s.sourcesInTree.check(); err != nil {
		return err
	}
	if b.Front > 0 {
		return job.Refuse(job.CausePolicy, "the cluster runs the driver, which has an order of its own for what native means")
	}
	return nil
}

func (s *sourcesAway) lay() error {
	j, b, in := s.j, s.j.body, s.j.Files
	c := s.away.bounded(&cluster.Command{Name: b.Argv0, Args: b.Args, Env: s.env, Dir: b.Cwd, Links: b.Links, Dirs: b.Dirs})
	for i := range b.Outputs {
		c.Outputs = append(c.Outputs, b.Outputs[i].Name)
	}
	c.Files = make([]cluster.File, len(b.Files))
	for i := range b.Files {
		if err := j.Process.Check(); err != nil {
			return err
		}
		f := &b.Files[i]
		c.Files[i] = cluster.File{Name: f.Name, Exec: f.Exec, Same: f.Same}
		if f.Same != 0 {
			continue
		}
		c.Files[i].Content, c.Files[i].Sum = in.Text[i], in.Sum256(i) // what is spoiled in memory, the server does not take
	}
	s.away.cmd = c
	return nil
}

func (s *sourcesAway) run(out *capture.Capture, until time.Time) (Outcome, error) {
	return s.away.run(out, until)
}

func (s *sourcesAway) outputs(_ *capture.Capture, res *job.Result, g *gathering) error {
	for i := range s.j.body.Outputs {
		s.away.output(i, res, g)
	}
	return nil
}

// textAway is a job of the text form on the cluster.
type textAway struct {
	text
	away away
}

func (x *textAway) lay() error {
	b := x.j.body
	names := driver.Names{Source: b.Name, Temp: textTemp + "/cc.s", Output: awayOutput + outputName(b.Outputs[0].Kind)}
	c := x.away.bounded(&cluster.Command{
		Name: x.j.Toolchain.Exec, Args: driver.Fill(arguments(b), names), Env: x.environment("/tmp"), Dir: textSource, Dirs: []string{textSource + "/" + awayOutput},
		Files: []cluster.File{{Name: textSource + "/" + b.Name, Content: x.j.text, Sum: sha256.Sum256(x.j.text)}},
	})
	for _, o := range b.Outputs {
		c.Outputs = append(c.Outputs, awayOutput+outputName(o.Kind))
	}
	x.away.cmd = c
	return nil
}

// awayOutput is the directory of outputs of the text form below that of the source: an action's outputs are better in its working directory.
const awayOutput = "out/"

func (x *textAway) run(out *capture.Capture, until time.Time) (Outcome, error) {
	return x.away.run(out, until)
}

func (x *textAway) outputs(_ *capture.Capture, res *job.Result, g *gathering) error {
	if res.Exit != 0 {
		return nil
	}
	for i := range x.j.body.Outputs {
		x.away.output(i, res, g)
	}
	return nil
}

// takesAway reports whether a job's compiler takes a word for a flag. What could not be asked because of trouble is not remembered.
func (h *Host) takesAway(j *Job, word string) bool {
	tc := j.Toolchain
	id := string(tc.ID[:]) + strconv.FormatUint(h.unasked.Load(), 10)
	return h.flags.TakesBy(id, tc.Exec, tc.Family, word, func(args []string) (string, error) {
		text, err := h.askAway(j, args)
		if err != nil {
			h.unasked.Add(1)
		}
		return text, err
	})
}

// askAway runs a driver on the cluster, and returns what it prints. A driver that does not understand has an answer too: none.
func (h *Host) askAway(j *Job, args []string) (string, error) {
	c := &cluster.Command{
		Compiler: j.Toolchain, Name: j.Toolchain.Exec, Args: args, Env: []string{"LC_ALL=C", "PATH=" + SearchPath, "TMPDIR=/tmp"}, Dir: textSource,
		Limit: askTime, MaxFile: h.File, MaxPrinted: h.Output,
	}
	o, err := h.runAway(&j.Process, c, askTime)
	if err != nil || o.Exit != 0 {
		return "", err
	}
	return string(o.Printed[0]) + string(o.Printed[1]), nil
}
