package run

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/entrypoint"
	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/privatetree"
	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// command is one compiler run.
type command struct {
	argv   []string // argv[0] is the program's path
	env    []string
	dir    string
	stdin  int // descriptors
	stdout int
	stderr int
	nice   int
	file   int64         // largest file that it may write, in bytes; the kernel ends it with SIGXFSZ past that
	memory int64         // bytes that each process may map; 0 = no limit
	limit  time.Duration // of wall time
}

// Outcome is how a command ended. For a command that ran without a tree, MaxRSS is at least the daemon's own:
// it is inherited through exec.
type Outcome struct {
	privatetree.Outcome
	Stopped job.Cause // why it was killed or not started; CauseNone if neither
}

// Well reports whether the command ended by itself and succeeded.
func (o *Outcome) Well() bool {
	return o.Exit == 0 && o.Signal == 0 && o.Stopped == job.CauseNone && o.Excess == sandbox.ExcessNone
}

// after adds the CPU time of an earlier command of the same job, and takes the larger MaxRSS.
func (o *Outcome) after(before *Outcome) {
	o.CPU += before.CPU
	o.MaxRSS = max(o.MaxRSS, before.MaxRSS)
}

// Process is what runs for a job: a process group, which ends with its leader, or a command in a tree. All
// methods may be called at any time.
type Process struct {
	mu      sync.Mutex
	pid     int              // 0: not started, or reaped
	run     *privatetree.Run // nil: not started in a tree, or ended
	stopped job.Cause        // why it was killed, or must not start
	told    chan struct{}    // closed by Stop; nil: nothing waits for it
}

// Stop kills the process with its group, or all processes of its tree, by SIGKILL. A process that has not
// started yet does not start. If Stop is called several times, the first cause counts.
func (p *Process) Stop(why job.Cause) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped == job.CauseNone {
		p.stopped = why
	}
	if p.told != nil {
		close(p.told)
		p.told = nil
	}
	p.killLocked()
}

// stops returns a channel that is closed once the job has to stop, for one caller at a time, which then calls forget.
func (p *Process) stops() (stop <-chan struct{}, forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := make(chan struct{})
	if p.stopped != job.CauseNone {
		close(told)
		return told, func() {}
	}
	p.told = told
	return told, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.told = nil
	}
}

// stopError says that the daemon stopped working on a job because the job had to stop.
type stopError struct{ cause job.Cause }

func (e *stopError) Error() string { return "stopped: " + e.cause.String() }

// Check returns an error once the job has to stop. The daemon calls it during its own work before and after the
// job's programs run.
func (p *Process) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped != job.CauseNone {
		return &stopError{p.stopped}
	}
	return nil
}

func (p *Process) killLocked() {
	if p.run != nil {
		p.run.Kill()
	}
	if p.pid != 0 {
		_ = unix.Kill(-p.pid, unix.SIGKILL) // ESRCH: all of them have ended
	}
}

// runHere starts c and waits until it has ended and its whole group is killed. An
// error means that nothing ran.
//
// It waits in the netpoller on a pidfd, which takes no additional thread or goroutine.
func (p *Process) runHere(c *command) (Outcome, error) {
	p.mu.Lock()
	if p.stopped != job.CauseNone {
		p.mu.Unlock()
		return Outcome{Stopped: p.stopped}, nil
	}
	pidfd := -1
	slack := entrypoint.Given()
	pid, _, err := syscall.StartProcess(c.argv[0], c.argv, &syscall.ProcAttr{
		Dir:   c.dir,
		Env:   c.env,
		Files: []uintptr{uintptr(c.stdin), uintptr(c.stdout), uintptr(c.stderr)},
		Sys:   &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	})
	slack()
	if err != nil {
		p.mu.Unlock()
		return Outcome{}, &startError{fmt.Errorf("start %s: %w", c.argv[0], err)}
	}
	p.pid = pid
	p.mu.Unlock()
	// The driver takes longer to start its first child than these two calls take, and
	// children inherit both.
	if c.nice != 0 {
		_ = unix.Setpriority(unix.PRIO_PGRP, pid, c.nice)
	}
	_ = unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: uint64(c.file), Max: uint64(c.file)}, nil)
	if c.memory > 0 {
		limitMemory(pid, uint64(c.memory))
	}

	if err := p.wait(pidfd, c.limit); err != nil {
		p.Stop(job.CauseInternal)
	}
	return p.reap(pid)
}

// limitMemory bounds how many bytes a process and its children may map. On a busy machine a
// driver may have started its first child before we get here; later children
// inherit the limit.
func limitMemory(pid int, max uint64) {
	_ = unix.Prlimit(pid, unix.RLIMIT_AS, &unix.Rlimit{Cur: max, Max: max}, nil) // ESRCH: it has ended
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return
	}
	for _, f := range strings.Fields(string(list)) {
		if child, err := strconv.Atoi(f); err == nil {
			limitMemory(child, max)
		}
	}
}

// wait waits until the leader is a zombie. It kills the group at the limit, and closes pidfd.
func (p *Process) wait(pidfd int, limit time.Duration) error {
	if pidfd < 0 {
		return errors.New("no pidfd: needs Linux 5.4")
	}
	if err := unix.SetNonblock(pidfd, true); err != nil {
		unix.Close(pidfd)
		return err
	}
	f := os.NewFile(uintptr(pidfd), "pidfd")
	defer f.Close()
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if err := f.SetReadDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	ended := func(fd uintptr) bool {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PIDFD, int(fd), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		// While there is no zombie, the kernel leaves the structure zero.
		return err != nil && !errors.Is(err, unix.EINTR) || info.Signo != 0
	}
	err = rc.Read(ended)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.Stop(job.CauseTimeout)
		if err := f.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
		err = rc.Read(ended)
	}
	return err
}

// reap kills the rest of the group, then collects the leader's status. The order matters: only as long as the
// leader is a zombie is its number sure to be that of this group.
func (p *Process) reap(pid int) (Outcome, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.killLocked()
	p.pid = 0
	var status unix.WaitStatus
	var use unix.Rusage
	for {
		_, err := unix.Wait4(pid, &status, 0, &use)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return Outcome{}, fmt.Errorf("wait for compiler: %w", err)
		}
	}
	o := Outcome{
		Outcome: privatetree.Outcome{CPU: time.Duration(use.Utime.Nano() + use.Stime.Nano()), MaxRSS: uint64(use.Maxrss) << 10},
		Stopped: p.stopped,
	}
	if status.Signaled() {
		o.Signal = int(status.Signal())
	} else {
		o.Exit = status.ExitStatus()
	}
	return o, nil
}

// runIn starts c in a tree and waits until it and everything that it started has ended. An error means that
// nothing ran.
func (p *Process) runIn(tr *privatetree.Tree, c *privatetree.Command, limit time.Duration) (Outcome, error) {
	p.mu.Lock()
	if p.stopped != job.CauseNone {
		p.mu.Unlock()
		return Outcome{Stopped: p.stopped}, nil
	}
	run, err := tr.Start(c)
	if err != nil {
		p.mu.Unlock()
		return Outcome{}, err
	}
	p.run = run
	p.mu.Unlock()
	timer := time.AfterFunc(limit, func() { p.Stop(job.CauseTimeout) })
	o, err := run.Wait()
	timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.run = nil
	if err != nil && !errors.Is(err, privatetree.ErrGone) {
		err = &startError{err}
	}
	return Outcome{o, p.stopped}, err
}
