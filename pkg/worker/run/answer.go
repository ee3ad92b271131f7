package run

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
)

// Refused returns the answer to a job that did not run because of err. The cause is that of the
// *job.Refusal in err, otherwise "malformed" or "internal".
func Refused(err error) *job.Result {
	r := &job.Result{Status: job.StatusRefused, Cause: job.CauseInternal, Detail: err.Error()}
	var why *job.Refusal
	if errors.As(err, &why) {
		r.Cause = why.Cause
	} else if errors.Is(err, job.ErrMalformed) {
		r.Cause = job.CauseMalformed
	}
	return r
}

// Failed returns the answer to a job that this host could not complete because of err. Being out of memory,
// processes or descriptors makes it a refusal, because that passes.
func Failed(err error) *job.Result {
	r := &job.Result{Status: job.StatusFailed, Cause: job.CauseInternal, Detail: err.Error()}
	var why *job.Refusal
	switch {
	case errors.As(err, &why):
		r.Cause = why.Cause
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT), errors.Is(err, unix.EIO), errors.Is(err, unix.EROFS):
		r.Cause = job.CauseDisk
	case errors.Is(err, unix.ENOMEM):
		r.Status, r.Cause = job.StatusRefused, job.CauseMemory
	case Scarce(err):
		r.Status, r.Cause = job.StatusRefused, job.CauseFull
	}
	return r
}

// Scarce reports whether err says that the system is out of processes, descriptors or memory. That passes.
func Scarce(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// Unstartable reports whether err says that a program cannot be executed, whatever is asked of it.
func Unstartable(err error) bool {
	var start *startError
	return errors.As(err, &start) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EPERM))
}

// startError wraps the reason why a program was not started.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// stopped returns the answer to a job that had to stop, or nil if err is anything but a *stopError.
func (p *Place) stopped(err error) *job.Result {
	var stop *stopError
	if !errors.As(err, &stop) {
		return nil
	}
	if stop.cause == job.CauseTimeout {
		p.h.Denied(deniedTime)
	}
	return &job.Result{Status: job.StatusFailed, Cause: stop.cause}
}

// unable returns the answer to a job that could not be started, and reports err to Job.Trouble.
func (p *Place) unable(j *Job, err error) *job.Result {
	j.trouble(err)
	if Unstartable(err) {
		return Refused(job.Refuse(job.CauseToolchain, "%v", err))
	}
	return Failed(err)
}

// outOfMemory returns a refusal if the compile failed for lack of memory: that is this host's fault, and
// another host may have more. It returns nil if the compiler rejected the source. If a driver reports that
// one of its programs was killed, it turns the driver's exit status in res into that signal.
func (p *Place) outOfMemory(j *Job, out *capture.Capture, res *job.Result) error {
	if res.Exit == 0 && res.Signal == 0 {
		return nil
	}
	words, err := out.Written(1)
	if err != nil {
		return err
	}
	if res.Signal == uint8(unix.SIGKILL) || containsAny(words, killedWords) {
		if p.h.OOMKills() > j.OOMKills {
			return job.Refuse(job.CauseMemory, "the host ran out of memory, and its kernel killed the compiler")
		}
		res.Exit, res.Signal = 0, uint8(unix.SIGKILL)
		return nil
	}
	if res.Signal == 0 && containsAny(words, memoryWords) {
		return job.Refuse(job.CauseMemory, "the compiler had no memory")
	}
	return nil
}

// Messages of drivers about a killed program, and of programs that got no memory.
var (
	killedWords = []string{"Killed signal terminated program", "unable to execute command: Killed"}
	memoryWords = []string{"out of memory allocating", "virtual memory exhausted", "memory exhausted", "LLVM ERROR: out of memory", "std::bad_alloc"}
)

func containsAny(b []byte, words []string) bool {
	for _, w := range words {
		if bytes.Contains(b, []byte(w)) {
			return true
		}
	}
	return false
}

// roomLeft returns an error if the compile failed because there was no room for its files: that is this host's
// fault, and another host may have room. It returns nil if the compiler rejected the source. A file system that
// has more room than all jobs together may take was not full.
func (p *Place) roomLeft(out *capture.Capture, inTree bool) error {
	if words, err := out.Written(1); err != nil || !containsAny(words, []string{"No space left on device"}) {
		return err
	}
	dir := p.h.WorkDir
	switch {
	case !inTree:
		dir = p.out.Path
	case !p.h.Bare:
		p.h.Denied(deniedDisk)
		return job.Refuse(job.CauseTooBig, "the compile needs more than the %d bytes that a job may write", p.h.TreeRoom())
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if st.Bavail*uint64(st.Bsize) >= uint64(p.h.Places)*uint64(p.h.File) {
		return nil
	}
	return fmt.Errorf("compile in %s: %w", dir, unix.ENOSPC)
}

// Names of the denials that are not a sandbox.Excess.
const (
	deniedTime   = "time"
	deniedOutput = "output"
	deniedDisk   = "disk"
)

// Denials returns all words that Host.Denied may be called with, sorted.
func Denials() []string {
	list := []string{deniedTime, deniedOutput, deniedDisk}
	for x := sandbox.ExcessMemory; x <= sandbox.ExcessNames; x++ {
		list = append(list, denial(x))
	}
	slices.Sort(list)
	return list
}

// denial returns the word for an excess.
func denial(x sandbox.Excess) string {
	if x == sandbox.ExcessDenied {
		return "seccomp"
	}
	return x.String()
}

// Micros returns d in microseconds, clamped to the 32 bits that a result has for it.
func Micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
