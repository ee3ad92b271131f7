package worker

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/policy"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/workdir"
)

// searchPath is what compilers find their assembler on; package toolchain
// identifies it with the same one.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// segmentAlign is where segments of a result start, in bytes.
const segmentAlign = 64

// runner runs one task at a time: of the text form in a directory of its own,
// where src holds the text, out the compiler's outputs, tmp its temporary files; of
// the sources form in its stand. It empties what it used after each. Everything in
// it is this goroutine's alone.
type runner struct {
	s             *Server
	i             int
	dir           string
	src, out, tmp *workdir.Dir // nil where compiles are confined
	stand         stand
	round         int            // of confinement, when that was
	pipes         *capture.Pipes // for words of confined commands
	used          bool           // the stand, by the job of now
	undone        bool           // a program failed without its driver, which would remove the main output
	scratch       scratch
}

func newRunner(s *Server, i int) (*runner, error) {
	r := &runner{s: s, i: i, dir: s.runnerDir(i), pipes: capture.NewPipes(s.o.Output)}
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	r.stand.total = &s.kept
	r.stand.confine, r.stand.cgroup = s.o.Sandbox != SandboxOff, s.o.Cgroup
	if s.ownUsers {
		r.stand.user = s.users.First + i
	}
	return r, nil
}

// settle gives the runner what it needs, once it is known how compiles are confined.
func (r *runner) settle() error {
	r.stand.confine = r.s.confined
	if r.s.cage.bare {
		r.stand.bare = r.dir
	}
	if r.s.confined {
		return nil
	}
	for name, d := range map[string]**workdir.Dir{"src": &r.src, "out": &r.out, "tmp": &r.tmp} {
		var err error
		if *d, err = workdir.NewDir(filepath.Join(r.dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) close() {
	for _, d := range []*workdir.Dir{r.src, r.out, r.tmp} {
		if d != nil {
			d.Close()
		}
	}
	r.pipes.Close()
	if err := r.stand.close(); err != nil {
		r.s.o.Log.Error("end private tree", "err", err)
	}
}

// loop takes tasks until the server closes.
func (r *runner) loop() {
	defer r.close()
	if r.s.trees { // now, and not while a first job waits
		if err := r.prepare(r.s.ctx); err != nil && r.s.ctx.Err() == nil {
			r.s.o.Log.Error("private tree", "err", err)
		}
	}
	for {
		switch what, t := r.s.take(r); what {
		case turnEnd:
			return
		case turnTask:
			r.do(t)
		case turnCanary:
			r.proveNow()
		case turnForget:
			r.forget()
		}
	}
}

// do takes a task to its end.
func (r *runner) do(t *task) {
	defer t.c.work.Done()
	defer r.clean()
	defer r.s.rescue(t.c.log, t.c.qp.Abort) // a client that has no answer may not wait for one
	res, n := r.runSafely(t)
	res.Queue, res.Wall = micros(t.started.Sub(t.queued)), micros(time.Since(t.started))
	r.s.ran(t, res)
	t.answer(res, n)
	r.log(t, res, n)
}

// ran learns from a job that has left its core.
func (s *Server) ran(t *task, res *job.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.lend.Ended(&t.lent, t.no != nil, now)
	s.lend.Learn(&t.lent, now.Sub(t.started), res.MaxRSS)
	if res.Status == job.StatusRan && res.Exit == 0 && res.Signal == 0 {
		s.timedLocked(t.m.Toolchain, t.size(), time.Duration(res.CPU)*time.Microsecond)
	}
}

func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

// forget drops what the stand's tree keeps.
func (r *runner) forget() {
	if err := r.stand.forget(); err != nil {
		r.s.o.Log.Error("drop kept files", "err", err)
		if err := r.stand.close(); err != nil {
			r.s.o.Log.Error("end private tree", "err", err)
		}
	}
}

func (r *runner) clean() {
	if r.used {
		r.used = false
		if err := r.stand.clean(); err != nil {
			r.s.o.Log.Error("clean up after a job", "err", err)
		}
		return
	}
	for _, dir := range []*workdir.Dir{r.src, r.out, r.tmp} {
		if dir == nil {
			continue
		}
		if err := dir.Empty(); err != nil {
			r.s.o.Log.Error("clean up after a job", "err", err)
		}
	}
}

// run does a task: the answer, and how many bytes at the start of its slot are
// the content of the answer's segments.
func (r *runner) run(t *task) (*job.Result, int) {
	if t.in != nil { // it was looked at when it came
		if res := t.sumUp(t.in.own, t.in.sum); res != nil {
			return res, 0
		}
		return r.runSources(t, t.in)
	}
	if res := t.open(&r.scratch); res != nil {
		return res, 0
	}
	body, err := t.readBody()
	if err != nil {
		return refused(err), 0
	}
	text := t.content()[t.m.TextOff:][:t.m.TextLen]
	if body.HasFiles() {
		in, err := ownInputs(body, text)
		if err != nil {
			return refused(err), 0
		}
		return r.runSources(t, in)
	}
	if err := r.checkTextJob(t, body, text); err != nil {
		return refused(err), 0
	}
	if r.s.confined {
		return r.runTextConfined(t, body, text)
	}
	return r.runText(t, body, text)
}

// readBody reads a task's body, and what is told of the task.
func (t *task) readBody() (*job.Body, error) {
	body, err := job.ParseBody(t.content()[:t.m.BodyLen])
	if err != nil {
		return nil, err
	}
	if (len(body.Blobs)+len(body.Lists) > 0) != t.m.Store {
		return nil, refuse(job.CauseMalformed, "the job says that it has contents to be kept or lists: %v; its body has %d and %d", t.m.Store, len(body.Blobs), len(body.Lists))
	}
	t.source, t.language, t.files = body.Name, body.Language, len(body.Files)
	t.shown.Store(&t.source)
	return body, nil
}

// checkTextJob decides whether a job of the text form may run, confined or not.
func (r *runner) checkTextJob(t *task, body *job.Body, text []byte) error {
	if err := policy.Text(body, compilerOf(&t.tc), text); err != nil {
		return err
	}
	return r.s.verify(r.s.ctx, &t.tc)
}

// runText does a task of the text form without a sandbox, in the runner's own directories.
func (r *runner) runText(t *task, body *job.Body, text []byte) (*job.Result, int) {
	env, err := textEnvironment(body, r.tmp.Path)
	if err != nil {
		return refused(err), 0
	}
	if err := r.src.Write(body.Name, text); err != nil {
		return r.unable(t, err), 0
	}
	t.dropSource() // it is a file now
	out, err := r.newCapture()
	if err != nil {
		return r.unable(t, err), 0
	}
	defer out.Close()
	c := &command{
		env: env, dir: r.src.Path,
		stdin: int(r.s.devNull.Fd()), stdout: out.FD(0), stderr: out.FD(1),
		nice: r.s.settings.Load().Nice, file: r.s.o.File, memory: r.s.o.Memory, limit: r.limit(t),
	}
	o, err := r.compile(t, body, c)
	return r.conclude(t, body, out, o, err, r.textOutputs)
}

// newCapture makes what takes a command's words. A confined command's go to pipes, so that a
// flood has no say in how the compile ends.
func (r *runner) newCapture() (*capture.Capture, error) {
	if r.s.confined {
		return r.pipes.Capture()
	}
	return capture.InMemory(r.s.ctx, r.s.outputs, r.s.o.Output)
}

// conclude makes the answer of a compile that has ended, or could not start. outputs
// opens the files that it made.
func (r *runner) conclude(t *task, b *job.Body, out *capture.Capture, o outcome, err error, outputs outputsFunc) (*job.Result, int) {
	if err != nil {
		return r.unable(t, err), 0
	}
	t.excess = o.excess
	res := &job.Result{Exit: uint8(o.exit), Signal: uint8(o.signal), CPU: micros(o.cpu), MaxRSS: o.maxRSS}
	if o.stopped != job.CauseNone {
		s := r.stopped(&stopError{o.stopped})
		s.CPU, s.MaxRSS = res.CPU, res.MaxRSS
		return s, 0
	}
	limits := r.s.limits(r.limit(t))
	if no := r.s.exceeded(o.excess, &limits); no != nil {
		r.s.o.Metrics.denial(denial(o.excess))
		f := failed(no)
		f.CPU, f.MaxRSS = res.CPU, res.MaxRSS
		return f, 0
	}
	if out.Cut() {
		r.s.o.Metrics.denial(deniedOutput)
	}
	n := 0
	if err = r.outOfMemory(t, out, res); err == nil {
		n, err = r.gather(t, b, out, res, outputs)
	}
	if err != nil {
		f := r.stopped(err)
		if f == nil {
			r.s.noted(t, err)
			f = failed(err)
		}
		f.CPU, f.MaxRSS = res.CPU, res.MaxRSS
		return f, 0
	}
	return res, n
}

// stopped makes the answer of a job that had to stop; nil if err says something else.
func (r *runner) stopped(err error) *job.Result {
	var stop *stopError
	if !errors.As(err, &stop) {
		return nil
	}
	if stop.cause == job.CauseTimeout {
		r.s.o.Metrics.denial(deniedTime)
	}
	return &job.Result{Status: job.StatusFailed, Cause: stop.cause}
}

// unable makes the answer of a job that could not be started, and looks at what that
// says about the host.
func (r *runner) unable(t *task, err error) *job.Result {
	r.s.noted(t, err)
	if unstartable(err) {
		return refused(refuse(job.CauseToolchain, "%v", err))
	}
	return failed(err)
}

// failed makes the answer of a job that this host could not do.
func failed(err error) *job.Result {
	r := &job.Result{Status: job.StatusFailed, Cause: job.CauseInternal, Detail: err.Error()}
	var why *job.Refusal
	switch {
	case errors.As(err, &why):
		r.Cause = why.Cause
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
		r.Cause = job.CauseDisk
	case errors.Is(err, unix.ENOMEM):
		r.Status, r.Cause = job.StatusRefused, job.CauseMemory
	case scarce(err):
		r.Status, r.Cause = job.StatusRefused, job.CauseFull
	}
	return r
}

// outputName is the name in the out directory.
func outputName(k job.OutputKind) string {
	switch k {
	case job.OutputAssembly:
		return "o.s"
	case job.OutputStackUsage:
		return "o.su"
	default:
		return "o.o"
	}
}

func (r *runner) limit(t *task) time.Duration {
	limit := r.s.settings.Load().JobTimeout
	if t.m.Timeout != 0 {
		limit = min(limit, time.Duration(t.m.Timeout)*time.Millisecond)
	}
	return limit
}
