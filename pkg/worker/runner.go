package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/arena"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// searchPath is what compilers find their assembler on; package toolchain
// identifies it with the same one.
const searchPath = "/usr/local/bin:/usr/bin:/bin"

// segmentAlign is where segments of a result start, in bytes.
const segmentAlign = 64

// runner runs one task at a time in a directory of its own, which it empties
// after each: src holds the text, out the compiler's outputs, tmp its temporary
// files. Everything in it is this goroutine's alone.
type runner struct {
	s             *Server
	src, out, tmp *jobDir
}

func newRunner(s *Server, i int) (*runner, error) {
	dir := s.runnerDir(i)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make work directory: %w", err)
	}
	r := &runner{s: s}
	for name, d := range map[string]**jobDir{"src": &r.src, "out": &r.out, "tmp": &r.tmp} {
		var err error
		if *d, err = newJobDir(filepath.Join(dir, name)); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

func (r *runner) close() {
	for _, d := range []*jobDir{r.src, r.out, r.tmp} {
		if d != nil {
			d.close()
		}
	}
}

// loop takes tasks until the server closes.
func (r *runner) loop() {
	defer r.close()
	for t := r.s.take(); t != nil; t = r.s.take() {
		start := time.Now()
		queue := start.Sub(t.queued)
		res, n := r.run(t)
		res.Queue, res.Wall = micros(queue), micros(time.Since(start))
		r.s.mu.Lock()
		r.s.running--
		r.s.mu.Unlock()
		t.answer(res, n)
		r.log(t, res, n)
		r.clean()
		t.c.work.Done()
	}
}

func micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}

func (r *runner) clean() {
	for _, dir := range []*jobDir{r.src, r.out, r.tmp} {
		if err := dir.empty(); err != nil {
			r.s.o.Log.Error("clean up after a job", "err", err)
		}
	}
}

// run does a task: the answer, and how many bytes at the start of its slot are
// the content of the answer's segments.
func (r *runner) run(t *task) (*job.Result, int) {
	mem := t.k.buf.Bytes()
	body, err := job.ParseBody(mem[:t.m.BodyLen])
	if err != nil {
		return refused(err), 0
	}
	t.source, t.language = body.Name, body.Language
	if err := checkBody(body, &t.tc); err != nil {
		return refused(err), 0
	}
	env, err := environment(body, r.tmp.path)
	if err != nil {
		return refused(err), 0
	}
	if err := r.s.verify(r.s.ctx, &t.tc); err != nil {
		return refused(err), 0
	}
	text := mem[t.m.TextOff:][:t.m.TextLen]
	if err := r.src.write(body.Name, text); err != nil {
		return failed(err), 0
	}
	out, err := r.newCapture()
	if err != nil {
		return failed(err), 0
	}
	defer out.close()
	c := &command{
		env: env, dir: r.src.path,
		stdin: int(r.s.devNull.Fd()), stdout: out.fd[0], stderr: out.fd[1],
		nice: r.s.settings.Load().Nice, limit: r.limit(t),
	}
	o, err := r.compile(t, body, c)
	if err != nil {
		return failed(err), 0
	}
	res := &job.Result{Exit: uint8(o.exit), Signal: uint8(o.signal), CPU: micros(o.cpu), MaxRSS: o.maxRSS}
	if o.stopped != job.CauseNone {
		res.Status, res.Cause = job.StatusFailed, o.stopped
		return res, 0
	}
	if err := r.roomLeft(out, res); err != nil {
		return failed(err), 0
	}
	n, err := r.gather(t, body, out, res)
	if err != nil {
		f := failed(err)
		f.CPU, f.MaxRSS = res.CPU, res.MaxRSS
		return f, 0
	}
	return res, n
}

// failed makes the answer of a job that this host could not do.
func failed(err error) *job.Result {
	r := &job.Result{Status: job.StatusFailed, Cause: job.CauseInternal, Detail: err.Error()}
	var why *refusal
	switch {
	case errors.As(err, &why):
		r.Cause = why.cause
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
		r.Cause = job.CauseDisk
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

// capture holds a compiler's standard output and error: memfds of a fixed size,
// each opened anew, so that its offset tells how much was written and writing
// past the end fails. No pipe, no goroutine to empty it, and a flood is bounded.
type capture struct {
	buf [2]*arena.Buffer
	fd  [2]int
}

func (r *runner) newCapture() (*capture, error) {
	c := &capture{fd: [2]int{-1, -1}}
	for i := range c.buf {
		var err error
		if c.buf[i], err = r.s.outputs.Get(r.s.ctx, 0); err != nil {
			c.close()
			return nil, err
		}
		if c.fd[i], err = c.buf[i].OpenWriter(); err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *capture) close() {
	for i := range c.buf {
		if c.fd[i] >= 0 {
			unix.Close(c.fd[i])
		}
		if c.buf[i] != nil {
			c.buf[i].Put()
		}
	}
}

// written is what went to output i.
func (c *capture) written(i int) ([]byte, error) {
	n, err := unix.Seek(c.fd[i], 0, io.SeekCurrent)
	if err != nil {
		return nil, err
	}
	return c.buf[i].Bytes()[:min(n, outSize)], nil
}

// roomLeft tells a compiler that had no room for its files from one that said no:
// that is this host's fault, and another one may have room. A file system with
// more room than the jobs together may take was not full.
func (r *runner) roomLeft(out *capture, res *job.Result) error {
	if res.Exit == 0 {
		return nil
	}
	words, err := out.written(1)
	if err != nil || !bytes.Contains(words, []byte("No space left on device")) {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(r.out.fd, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= uint64(r.s.o.Jobs)*maxFile {
		return nil
	}
	return fmt.Errorf("compile in %s: %w", r.out.path, unix.ENOSPC)
}

// gather puts the outputs, the standard ones first, to the start of the slot,
// where the text is not needed any more.
func (r *runner) gather(t *task, b *job.Body, out *capture, res *job.Result) (int, error) {
	g := gathering{mem: t.k.buf.Bytes(), room: t.m.Sink.Len}
	g.mem = g.mem[:t.k.mr.Len()]
	for i, seg := range []*job.Segment{&res.Stdout, &res.Stderr} {
		data, err := out.written(i)
		if err != nil {
			return 0, err
		}
		to, err := g.reserve(uint64(len(data)), seg)
		if err != nil {
			return 0, err
		}
		copy(to, data)
	}
	if res.Exit != 0 || res.Signal != 0 {
		return g.n, nil // what it may have left is not an output
	}
	for i := range b.Outputs {
		f := job.File{Index: uint8(i)}
		ok, err := g.file(r.out, outputName(b.Outputs[i].Kind), &f)
		if err != nil {
			return 0, err
		}
		if ok {
			res.Files = append(res.Files, f)
		}
	}
	return g.n, nil
}

// gathering is a result under construction.
type gathering struct {
	mem  []byte
	room uint64 // bytes that the peer's sink holds
	n    int    // bytes used
}

// reserve places a segment of n bytes.
func (g *gathering) reserve(n uint64, seg *job.Segment) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	start := (g.n + segmentAlign - 1) &^ (segmentAlign - 1)
	if room := min(uint64(len(g.mem)), g.room); uint64(start) > room || n > room-uint64(start) {
		return nil, refuse(job.CauseTooBig, "result is larger than the buffer of %s bytes", strconv.FormatUint(room, 10))
	}
	clear(g.mem[g.n:start]) // old content is nobody's business
	g.n = start + int(n)
	seg.Off, seg.Len = uint64(start), n
	return g.mem[start:g.n], nil
}

// file places a file's content; false when the compiler did not make it. Only a
// regular file of ours counts: no link, no device.
func (g *gathering) file(d *jobDir, path string, f *job.File) (bool, error) {
	fd, err := unix.Openat(d.fd, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return false, refuse(job.CauseInternal, "%s is not the compiler's own regular file", path)
	}
	to, err := g.reserve(uint64(st.Size), &f.Segment)
	if err != nil {
		return false, err
	}
	f.Exec = st.Mode&0o100 != 0
	for len(to) > 0 {
		n, err := unix.Read(fd, to)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return false, &os.PathError{Op: "read", Path: path, Err: errors.Join(io.ErrUnexpectedEOF, err)}
		}
		to = to[n:]
	}
	return true, nil
}
