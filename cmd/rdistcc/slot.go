package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/driver"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// slot is leased memory: what goes out is written into source, what comes back
// is read from sink.
type slot struct {
	ipc.Leased
	source, sink int
	cwd          string
	// closed: no process of ours can write to the source any more, so that
	// another job may have it.
	closed bool
}

// lease asks the manager for a slot and a host. Not nil is its answer, or ours
// when there is no manager, that the command runs here.
func (f *flow) lease() *ipc.GoLocal {
	began := time.Now()
	conn, err := f.set.connect(true)
	if err != nil {
		return noManager(err)
	}
	f.conn = conn
	cwd := workingDir(f.set)
	words, names, ok := f.plan.Shared(compile.KeepsMacrosFrom)
	if len(words) > ipc.MaxWords || !ok {
		words = nil
	}
	err = conn.Send((&ipc.Lease{
		Version: ipc.Version, Hosts: f.set.hosts, Mode: f.set.mode,
		Compiler: absolute(f.cmd.file, cwd), Source: f.rec.source, Output: f.rec.output, Cwd: cwd,
		IOTimeoutMS: f.set.ioTimeoutMS, BackoffMS: f.set.backoffMS, Preprocess: words,
	}).Append(nil))
	if err != nil {
		return f.lostManager(err)
	}
	kind, fields, err := conn.Recv()
	if err != nil {
		return f.lostManager(err)
	}
	f.rec.lease = time.Since(began)
	switch kind {
	case ipc.KindGoLocal:
		return f.goLocal(fields)
	case ipc.KindLeased:
		s := &slot{closed: true, cwd: cwd}
		if err := s.Parse(fields); err != nil {
			return f.lostManager(err)
		}
		fds, err := conn.TakeFDs(2)
		if err != nil {
			return f.lostManager(err)
		}
		s.source, s.sink = fds[0], fds[1]
		if s.Major < compile.KeepsMacrosFrom {
			s.Direct = nil // we asked for words of a younger compiler
		}
		if len(s.Direct) > 0 {
			s.Direct = driver.Fill(s.Direct, names)
		}
		f.slot = s
		return nil
	}
	return f.lostManager(ipc.ErrMalformed)
}

// preprocess fills the slot: the body, and behind it the text, straight from the
// preprocessor. A reason says that the command must run here; whatever the
// preprocessor printed is dropped then, as the command here prints it again.
func (f *flow) preprocess() (text *ipc.Submit, reason string) {
	began := time.Now()
	s := f.slot
	args, lang := f.plan.Remote(int(s.Major), s.cwd)
	body := (&job.Body{
		Argv0: f.cmd.argv[0], Args: args, Language: lang, Name: base(f.plan.Source), Cwd: s.cwd,
		Env: remoteEnv(f.set.env), Outputs: f.plan.Outputs,
	}).Append(nil)
	textOff := (uint64(len(body)) + job.BodyAlign - 1) / job.BodyAlign * job.BodyAlign
	if textOff >= s.SourceMax || len(body) > job.MaxBodyLen {
		return nil, reasonTooBig
	}
	if err := pwriteAll(s.source, body); err != nil {
		return nil, reasonTooBig
	}
	if _, err := syscall.Seek(s.source, int64(textOff), 0); err != nil {
		return nil, reasonTooBig
	}
	var clean bool
	if f.plan.Raw {
		clean = copyFile(s.source, f.plan.Source)
	} else {
		clean = f.runPreprocessor(f.preprocessor())
	}
	end, err := syscall.Seek(s.source, 0, 1)
	switch {
	case err != nil || uint64(end) >= s.SourceMax:
		return nil, reasonTooBig // its message is nonsense: it met the end of the slot
	case !clean:
		return nil, reasonDiagnostics
	case !s.closed:
		return nil, reasonPreprocessor // something it started may still write
	}
	text = &ipc.Submit{BodyLen: uint32(len(body)), TextOff: uint32(textOff), TextLen: uint64(end) - textOff}
	if reason := scan(&f.plan, s.source, text); reason != "" {
		return nil, reason
	}
	f.rec.sourceBytes = text.TextLen
	f.rec.preprocess = time.Since(began)
	text.PreprocessUS = micros(f.rec.preprocess)
	return text, ""
}

// preprocessor is the command for the local half: cc1 itself where the manager
// knows its words, else the driver.
func (f *flow) preprocessor() command {
	if d := f.slot.Direct; len(d) > 0 {
		return command{file: d[0], argv: d, alone: true}
	}
	argv := append([]string{f.cmd.argv[0]}, f.plan.Preprocess(int(f.slot.Major))...)
	return command{file: f.cmd.file, argv: argv}
}

// remoteEnv is what of our environment the compiler over there gets: what chooses
// the language of its messages and the date it believes in.
func remoteEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG=") || strings.HasPrefix(kv, "LANGUAGE=") ||
			strings.HasPrefix(kv, "SOURCE_DATE_EPOCH=") {
			out = append(out, kv)
		}
	}
	return out
}

// scan looks at the text where it lies: is there what cannot travel?
func scan(plan *compile.Plan, fd int, text *ipc.Submit) string {
	if text.TextLen == 0 {
		return ""
	}
	if text.TextLen <= smallText {
		buf := make([]byte, text.TextLen)
		n, err := syscall.Pread(fd, buf, int64(text.TextOff))
		if err != nil || n < len(buf) {
			return reasonMemory
		}
		return plan.ScanText(buf)
	}
	size := int(uint64(text.TextOff) + text.TextLen)
	mem, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return reasonMemory
	}
	defer func() { _ = syscall.Munmap(mem) }() // ours and whole: cannot fail
	return plan.ScanText(mem[text.TextOff:])
}

// smallText is read rather than mapped: up to there that is cheaper.
const smallText = 64 << 10

// submit has a host compile the slot's content.
func (f *flow) submit(text *ipc.Submit) (*result, *ipc.GoLocal) {
	began := time.Now()
	if err := f.conn.Send(text.Append(nil)); err != nil {
		return nil, f.lostManager(err)
	}
	kind, fields, err := f.conn.Recv()
	if err != nil {
		return nil, f.lostManager(err)
	}
	f.rec.submit = time.Since(began)
	switch kind {
	case ipc.KindGoLocal:
		return nil, f.goLocal(fields)
	case ipc.KindResult:
		r := &result{}
		if err := r.Parse(fields); err != nil {
			return nil, f.lostManager(err)
		}
		f.rec.result = r.Result
		if r.Signal != 0 {
			// Said before the command runs here: it may end there the same way.
			return nil, &ipc.GoLocal{Reason: reasonKilled, Trouble: true, Code: ipc.ExitConnect, Host: r.Host,
				Detail: "the compiler on " + r.Host + " was killed by signal " + itoa(int(r.Signal))}
		}
		return r, nil
	}
	return nil, f.lostManager(ipc.ErrMalformed)
}

// result is the answer of a host.
type result struct{ ipc.Result }

// says reports whether there is more to tell than a silent success.
func (r *result) says() bool { return r.Exit != 0 || r.Stdout.Len != 0 || r.Stderr.Len != 0 }

// place puts the files where the compiler would have put them.
func (f *flow) place(r *result) error {
	began := time.Now()
	for _, out := range r.Files {
		if int(out.Index) >= len(f.plan.Outputs) {
			return ipc.ErrMalformed
		}
		err := compile.Place(f.plan.Outputs[out.Index], f.plan.Driver.Family, f.slot.sink, int64(out.Off), int64(out.Len))
		if err != nil {
			return err
		}
	}
	f.rec.place = time.Since(began)
	return nil
}

// remote ends a job that a host did: with what its compiler printed, if
// RDISTCC_SKIP_LOCAL_RETRY lets it stand.
func (f *flow) remote(r *result) int {
	f.rec.remote, f.rec.host = true, r.Host
	copyOut(1, f.slot.sink, r.Stdout)
	copyOut(2, f.slot.sink, r.Stderr)
	return int(r.Exit)
}

// copyOut prints a part of the sink. Nobody to read it is no reason to fail: the
// compiler would not notice either.
func copyOut(fd, sink int, s ipc.Segment) {
	buf := make([]byte, min(s.Len, 64<<10))
	for s.Len > 0 {
		n, err := syscall.Pread(sink, buf[:min(s.Len, uint64(len(buf)))], int64(s.Off))
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		write(fd, string(buf[:n]))
		s.Off, s.Len = s.Off+uint64(n), s.Len-uint64(n)
	}
}

// copyFile appends the file name to what fd holds, at its offset.
func copyFile(fd int, name string) bool {
	src, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(src)
	buf := make([]byte, 256<<10)
	for {
		n, err := syscall.Read(src, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return err == nil
		}
		for b := buf[:n]; len(b) > 0; {
			w, err := syscall.Write(fd, b)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return false // the slot is full: the offset shows it
			}
			b = b[w:]
		}
	}
}

func pwriteAll(fd int, b []byte) error {
	for off := 0; off < len(b); {
		n, err := syscall.Pwrite(fd, b[off:], int64(off))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

func micros(d time.Duration) uint32 { return uint32(min(d/time.Microsecond, 1<<32-1)) }

// workingDir is the directory as the compilers name it: PWD where that is the
// same one, else what the kernel says.
func workingDir(s *settings) string {
	if pwd := s.getenv("PWD"); strings.HasPrefix(pwd, "/") {
		var a, b syscall.Stat_t
		if stat(pwd, &a) == nil && stat(".", &b) == nil && a.Dev == b.Dev && a.Ino == b.Ino {
			return pwd
		}
	}
	dir, err := syscall.Getwd()
	if err != nil {
		return ""
	}
	return dir
}
