package main

import (
	"strings"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/reason"
	"github.com/rdistcc/rdistcc/pkg/compile"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/connmgr/typed"
)

// preprocess fills the slot in the text form: the body, followed by the text straight from
// the preprocessor. A reason says that the command must run here; whatever the
// preprocessor printed is dropped then, as the command prints it again.
func (f *flow) preprocess() (text *ipc.Submit, why string) {
	began := time.Now()
	s := f.slot
	args, lang := f.plan.Remote(int(s.Major), s.cwd)
	body := (&job.Body{
		Argv0: f.cc.argv[0], Args: args, Language: lang, Name: typed.Base(f.plan.Source), Cwd: s.cwd,
		Env: remoteEnv(f.set.env), Outputs: f.plan.TextOutputs(),
	}).Append(nil)
	textOff := uint64(job.TextOffset(len(body)))
	if textOff >= s.SourceMax || len(body) > job.MaxBodyLen {
		return nil, reason.TooBig
	}
	if err := pwriteAll(s.source, body, 0); err != nil {
		return nil, reason.TooBig
	}
	if _, err := syscall.Seek(s.source, int64(textOff), 0); err != nil {
		return nil, reason.TooBig
	}
	var clean bool
	if f.plan.Raw {
		clean = copyFile(s.source, f.plan.Source)
	} else {
		clean, _ = f.runFirst(f.preprocessor())
	}
	end, err := syscall.Seek(s.source, 0, 1)
	switch {
	case err != nil || uint64(end) >= s.SourceMax:
		return nil, reason.TooBig // its message is misleading: it ran into the end of the slot
	case !clean:
		return nil, reason.Diagnostics
	case !s.closed:
		return nil, reasonPreprocessor // a process that it started may still write
	}
	text = &ipc.Submit{BodyLen: uint32(len(body)), TextOff: uint32(textOff), TextLen: uint64(end) - textOff}
	if why := scan(&f.plan, s.source, s.cwd, text); why != "" {
		return nil, why
	}
	f.rec.sourceBytes = text.TextLen
	f.rec.preprocess = time.Since(began)
	text.PreprocessUS = micros(f.rec.preprocess)
	return text, ""
}

// preprocessor returns the command for the local half: cc1 itself where the manager
// knows its arguments, else the driver.
func (f *flow) preprocessor() command {
	if d := f.slot.Direct; len(d) > 0 {
		return command{file: d[0], argv: d, alone: true}
	}
	argv := append([]string{f.cc.argv[0]}, f.plan.Preprocess(int(f.slot.Major))...)
	return command{file: f.cc.file, argv: argv}
}

// remoteEnv returns the part of our environment that the compiler on the host gets: what
// chooses the language of its messages and the date it uses.
func remoteEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if name, _, ok := strings.Cut(kv, "="); ok && compile.GoesWithText(name) {
			out = append(out, kv)
		}
	}
	return out
}

// scan examines the text in the slot and returns a reason if it contains what cannot travel.
func scan(plan *compile.Plan, fd int, cwd string, text *ipc.Submit) string {
	if text.TextLen == 0 {
		return ""
	}
	if text.TextLen <= smallText {
		buf := make([]byte, text.TextLen)
		n, err := syscall.Pread(fd, buf, int64(text.TextOff))
		if err != nil || n < len(buf) {
			return reasonMemory
		}
		return plan.ScanText(buf, cwd)
	}
	size := int(uint64(text.TextOff) + text.TextLen)
	mem, err := syscall.Mmap(fd, 0, size, syscall.PROT_READ, syscall.MAP_SHARED|syscall.MAP_POPULATE)
	if err != nil {
		return reasonMemory
	}
	defer func() { _ = syscall.Munmap(mem) }() // our own whole mapping: cannot fail
	return plan.ScanText(mem[text.TextOff:], cwd)
}

// smallText is the size up to which text is read rather than mapped, as that is cheaper.
const smallText = 64 << 10
