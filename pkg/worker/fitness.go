package worker

import (
	"bytes"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/capture"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// restTime is how long a host that had no process or descriptor left takes no work.
const restTime = time.Second

// checkFitLocked looks whether the host can work at all, and revokes or grants the
// credits when that changes.
func (s *Server) checkFitLocked(now time.Time) {
	h := s.host.Load()
	disk, memory := uint64(s.o.DiskFloor), uint64(lend.MemoryFloor)
	if s.lend.Closed() != nil { // a little more, so that it does not come and go
		disk, memory = disk+disk/4, memory+memory/4
	}
	var no *job.Refusal
	switch {
	case s.cage.lost != nil:
		no = s.cage.lost
	case now.Before(s.rest):
		no = s.lend.Closed()
	case h.diskErr != nil:
		no = refuse(job.CauseDisk, "work directory: %v", h.diskErr)
	case h.diskFree < disk:
		no = refuse(job.CauseDisk, "%d bytes free in %s, fewer than limits.disk-floor", h.diskFree, s.o.WorkBase)
	case h.memoryFree > 0 && h.memoryFree < memory:
		no = refuse(job.CauseMemory, "%d bytes of memory free", h.memoryFree)
	}
	s.setFitLocked(no)
}

func (s *Server) setFitLocked(no *job.Refusal) {
	was := s.lend.Closed()
	s.lend.Close(no)
	switch {
	case was == nil && no != nil:
		s.o.Log.Warn("no work taken", "cause", no.Cause.String(), "detail", no.Detail)
	case was != nil && no == nil:
		s.o.Log.Info("work taken again")
	default:
		return
	}
	s.rebalanceLocked()
	s.publishLocked()
}

// noted looks at why a job could not be done, for what it says about the host.
func (s *Server) noted(t *task, err error) {
	disk := failed(err).Cause == job.CauseDisk
	if disk {
		s.readHostLoad() // which may take a while: without the lock
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case scarce(err):
		s.rest = time.Now().Add(restTime)
		s.setFitLocked(refuse(job.CauseFull, "%v", err))
	case disk:
		s.tellMemoryLocked()
		s.checkFitLocked(time.Now())
	case unstartable(err):
		s.withdrawLocked(t.tc.ID)
	}
}

// scarce: the system is out of processes, descriptors or memory. That passes.
func scarce(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// unstartable: this program cannot be executed, whatever is asked of it.
func unstartable(err error) bool {
	var start *startError
	return errors.As(err, &start) && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ETXTBSY) || errors.Is(err, unix.EACCES) ||
		errors.Is(err, unix.ENOEXEC) || errors.Is(err, unix.EPERM))
}

// startError is a program that was not started.
type startError struct{ error }

func (e *startError) Unwrap() error { return e.error }

// outOfMemory tells a compiler that had no memory, or was killed, from one that said
// no: that is this host's fault, and another one may have more. A driver reports a
// killed part of itself as a failure of its own.
func (r *runner) outOfMemory(t *task, out *capture.Capture, res *job.Result) error {
	if res.Exit == 0 && res.Signal == 0 {
		return nil
	}
	words, err := out.Written(1)
	if err != nil {
		return err
	}
	if res.Signal == uint8(unix.SIGKILL) || containsAny(words, killedWords) {
		if r.s.readOOMKills() > t.oomKills {
			return refuse(job.CauseMemory, "the host ran out of memory, and its kernel killed the compiler")
		}
		res.Exit, res.Signal = 0, uint8(unix.SIGKILL)
		return nil
	}
	if res.Signal == 0 && containsAny(words, memoryWords) {
		return refuse(job.CauseMemory, "the compiler had no memory")
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
