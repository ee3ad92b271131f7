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

// Refused returns the answer of a job that did not run.
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

// Failed returns the answer of a job that this host could not do.
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

// startError is a program that was not started.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// stopped returns the answer of a job that had to stop; nil if err says something else.
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

// unable returns the answer of a job that could not be started, and tells what that says about the host.
func (p *Place) unable(j *Job, err error) *job.Result {
	j.trouble(err)
	if Unstartable(err) {
		return Refused(job.Refuse(job.CauseToolchain, "%v", err))
	}
	return Failed(err)
}

// outOfMemory tells a compiler that had no memory, or was killed, from one that said
// no: that is this host's fault, and another one may have more. A driver reports a
// killed part of itself as a failure of its own.
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

// What drivers say of a part that was killed, and programs that got no memory.
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

// roomLeft tells a compiler that had no room for its files from one that said no:
// that is this host's fault, and another one may have room. A file system with
// more room than the jobs together may take was not full.
func (p *Place) roomLeft(out *capture.Capture, inTree bool) error {
	if words, err := out.Written(1); err != nil || !containsAny(words, []string{"No space left on device"}) {
		return err
	}
	dir := p.h.WorkDir
	switch {
	case !inTree:
		dir = p.out.Path
	case !p.Bare:
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

// Words of denials that are not a sandbox.Excess.
const (
	deniedTime   = "time"
	deniedOutput = "output"
	deniedDisk   = "disk"
)

// Denials returns all words that Host.Denied is told, sorted.
func Denials() []string {
	list := []string{deniedTime, deniedOutput, deniedDisk}
	for x := sandbox.ExcessMemory; x <= sandbox.ExcessDenied; x++ {
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

// Micros returns d in microseconds, within what a result can say.
func Micros(d time.Duration) uint32 {
	return uint32(min(max(d.Microseconds(), 0), 1<<32-1))
}
