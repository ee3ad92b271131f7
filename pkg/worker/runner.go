package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
		if res.Status == job.StatusRan && res.Exit == 0 && res.Signal == 0 {
			r.s.timedLocked(t.m.Toolchain, t.m.TextLen, time.Duration(res.CPU)*time.Microsecond)
		}
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
	mem := t.content()
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
	t.dropSource() // it is a file now
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
// where the text is not needed any more; or, when they are too big for that or for
// the sink, into memory of their own, for the client to fetch.
func (r *runner) gather(t *task, b *job.Body, out *capture, res *job.Result) (int, error) {
	var g gathering
	defer g.close()
	for i, seg := range []*job.Segment{&res.Stdout, &res.Stderr} {
		data, err := out.written(i)
		if err != nil {
			return 0, err
		}
		g.add(uint64(len(data)), seg, func(to []byte) error { copy(to, data); return nil })
	}
	if res.Exit == 0 && res.Signal == 0 { // else what it may have left is not an output
		for i := range b.Outputs {
			if err := g.addFile(r.out, outputName(b.Outputs[i].Kind), uint8(i), res); err != nil {
				return 0, err
			}
		}
	}
	mem := t.k.buf.Bytes()[:t.k.mr.Len()]
	room := min(uint64(len(mem)), t.m.Sink.Len)
	if g.n <= room {
		return int(g.n), g.fill(mem)
	}
	if g.n > t.m.Fetch || g.n > uint64(r.s.o.Result) || !t.c.peerReads {
		return 0, refuse(job.CauseTooBig, "result is larger than the buffer of %d bytes", room)
	}
	big, err := r.s.large.tryGet(int64(g.n))
	if err != nil {
		return 0, err
	}
	if err := g.fill(big.mem); err != nil {
		big.free()
		return 0, err
	}
	t.result = big
	return 0, nil
}

// gathering is a result under construction: its parts in their places, and how
// each is to be filled.
type gathering struct {
	n     uint64 // bytes
	parts []part
	files []int // descriptors
}

type part struct {
	off, end uint64
	fill     func(to []byte) error
}

func (g *gathering) close() {
	for _, fd := range g.files {
		unix.Close(fd)
	}
}

// add places a segment of n bytes.
func (g *gathering) add(n uint64, seg *job.Segment, fill func(to []byte) error) {
	if n == 0 {
		return
	}
	off := (g.n + segmentAlign - 1) &^ (segmentAlign - 1)
	seg.Off, seg.Len = off, n
	g.n = off + n
	g.parts = append(g.parts, part{off, g.n, fill})
}

// fill writes all segments into mem; what lies between them is zero, as old
// content is nobody's business.
func (g *gathering) fill(mem []byte) error {
	var at uint64
	for _, p := range g.parts {
		clear(mem[at:p.off])
		if err := p.fill(mem[p.off:p.end]); err != nil {
			return err
		}
		at = p.end
	}
	return nil
}

// addFile places a file's content, if the compiler made it. Only a regular file of
// ours counts: no link, no device.
func (g *gathering) addFile(d *jobDir, path string, index uint8, res *job.Result) error {
	fd, err := unix.Openat(d.fd, path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	g.files = append(g.files, fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid() || st.Nlink != 1 {
		return refuse(job.CauseInternal, "%s is not the compiler's own regular file", path)
	}
	res.Files = append(res.Files, job.File{Index: index, Exec: st.Mode&0o100 != 0})
	g.add(uint64(st.Size), &res.Files[len(res.Files)-1].Segment, func(to []byte) error { return readAll(fd, to, path) })
	return nil
}

// readAll fills to from a file that is that long.
func readAll(fd int, to []byte, path string) error {
	for len(to) > 0 {
		n, err := unix.Read(fd, to)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return &os.PathError{Op: "read", Path: path, Err: errors.Join(io.ErrUnexpectedEOF, err)}
		}
		to = to[n:]
	}
	return nil
}
