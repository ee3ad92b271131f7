package privatetree

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/inflight"
	"github.com/rdistcc/rdistcc/internal/sandbox"
	"github.com/rdistcc/rdistcc/internal/wire"
)

// blockKeep is how much of the block stays in memory between commands, in bytes; most argument lists are far
// smaller.
const blockKeep = 256 << 10

// What the tree's process itself takes of a control group's bounds, roughly.
const (
	groupMemory = 64 << 20 // bytes
	groupTasks  = 32
)

// Run is a command that was started.
type Run struct {
	t   *Tree
	seq uint64
	cmd string // for errors

	between string // the FIFO between two of its programs; "": none
}

// Start runs a command in the tree. No other one may be running. The descriptors have been passed on when
// it returns. It returns ErrGone when the tree no longer exists; Wait reports whether the command could be
// executed.
func (t *Tree) Start(c *Command) (*Run, error) {
	if len(c.Argv) == 0 {
		return nil, fmt.Errorf("start a command: %w", unix.EINVAL)
	}
	if t.busy {
		return nil, fmt.Errorf("start %s: another command was not waited for", c.Argv[0])
	}
	if !t.HasProc() {
		if err := t.layProc(c.Dir); err != nil {
			return nil, fmt.Errorf("start %s: %w", c.Argv[0], err)
		}
	}
	b := wire.AppendString(t.buf[:0], c.Dir)
	b = wire.AppendStrings(b, c.Env)
	op := opStart
	if len(c.Then) > 0 && c.ExecFD == 0 && t.makeFIFO(c.Between) {
		op = opStartPair
		b = wire.AppendString(b, c.Between)
	}
	file := cmp.Or(c.Path, c.Argv[0])
	b = wire.AppendString(b, file)
	b = wire.AppendStrings(b, c.Argv)
	for _, p := range c.Then {
		if len(p.Argv) == 0 {
			return nil, fmt.Errorf("start a command: %w", unix.EINVAL)
		}
		b = wire.AppendString(b, cmp.Or(p.Path, p.Argv[0]))
		b = wire.AppendStrings(b, p.Argv)
	}
	if cap(b) <= blockKeep {
		t.buf = b
	}
	if err := writeBlock(t.block, b); err != nil {
		return nil, fmt.Errorf("start %s: %w", file, err)
	}
	t.big = t.big || len(b) > blockKeep
	t.seq++
	req := request{op: op, nice: int32(c.Nice), seq: t.seq, block: uint64(len(b)), limits: c.Limits}
	if t.measures.Has(sandbox.Cgroup) {
		if err := t.group.Limit(c.Limits, groupMemory, groupTasks); err != nil {
			return nil, fmt.Errorf("start %s: %w", file, err)
		}
		t.group.OutOfMemory() // forget what was before this command
		t.group.OutOfTasks()
	}
	if t.sure {
		if err := t.stamp(); err != nil {
			return nil, fmt.Errorf("start %s: %w", file, err)
		}
	}
	t.sure, t.surveyed = false, false
	if t.began == (unix.Timespec{}) {
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &t.began); err != nil {
			return nil, fmt.Errorf("start %s: %w", file, err)
		}
	}
	fds := append(make([]int, 0, 4), c.Stdin, c.Stdout, c.Stderr)
	if c.ExecFD != 0 {
		fds = append(fds, c.ExecFD)
	}
	if err := t.send(&req, unix.UnixRights(fds...)); err != nil {
		return nil, fmt.Errorf("start %s: %w", file, err)
	}
	t.busy = true
	r := &Run{t: t, seq: t.seq, cmd: file}
	if op == opStartPair {
		r.between = c.Between
	}
	return r, nil
}

// Kill kills the command and all its descendants. It may be called by any goroutine at any time, more than once, and
// after the run has ended.
func (r *Run) Kill() {
	_ = r.t.send(&request{op: opKill, seq: r.seq}, nil) // without a tree there is no command
}

// Wait returns when no process of the command is alive any more; processes that outlived it are killed. It
// is called once. An error means that the command, or one of its programs, could not be started, with the
// system's reason in the chain, or that the tree has ended with it (ErrGone).
func (r *Run) Wait() (Outcome, error) {
	var in reply
	for {
		n, _, err := r.t.receive(r.t.in[:], nil)
		if err == nil {
			err = in.decode(r.t.in[:n])
		}
		if errors.Is(err, ErrGone) && r.t.measures.Has(sandbox.Cgroup) && r.t.group.OutOfMemory() {
			// Files in memory belong to no process: if a command wrote too many, the kernel kills the
			// largest process, which is this tree's.
			r.t.gone = true
			return Outcome{Signal: int(unix.SIGKILL), Excess: sandbox.ExcessMemory}, nil
		}
		if err != nil {
			return Outcome{}, fmt.Errorf("run %s: %w", r.cmd, err)
		}
		if in.seq == r.seq {
			break
		}
	}
	r.t.busy = false
	if r.t.big {
		r.t.big = false
		_ = unix.Ftruncate(r.t.block, blockKeep)
	}
	if r.between != "" {
		r.t.unlink(r.between, unix.S_IFIFO)
	}
	if in.errno != 0 {
		return Outcome{}, fmt.Errorf("start %s: %w", r.cmd, syscall.Errno(in.errno))
	}
	if in.excess == sandbox.ExcessNone && (in.exit != 0 || in.signal != 0) && r.t.measures.Has(sandbox.Cgroup) {
		switch {
		case r.t.group.OutOfMemory():
			in.excess = sandbox.ExcessMemory
		case r.t.group.OutOfTasks():
			in.excess = sandbox.ExcessProcesses
		}
	}
	return Outcome{
		Exit: int(in.exit), Signal: int(in.signal), Killed: in.killed,
		CPU: time.Duration(in.cpu), MaxRSS: in.maxRSS, Excess: in.excess, Apart: in.apart,
	}, nil
}

// send passes a request and, encoded in oob, its descriptors to the tree's process.
func (t *Tree) send(req *request, oob []byte) error {
	return goneError(inflight.Send(func() error {
		var err error
		werr := t.sock.Write(func(fd uintptr) bool {
			for {
				_, err = unix.SendmsgN(int(fd), req.encode(), oob, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
				if !errors.Is(err, unix.EINTR) {
					return !errors.Is(err, unix.EAGAIN)
				}
			}
		})
		return errors.Join(werr, err)
	}))
}

// receive waits for a packet from the tree's process.
func (t *Tree) receive(buf, oob []byte) (n int, files []int, err error) {
	rerr := t.sock.Read(func(fd uintptr) bool {
		for {
			n, files, err = receive(int(fd), buf, oob, unix.MSG_DONTWAIT)
			if !errors.Is(err, unix.EINTR) {
				return !errors.Is(err, unix.EAGAIN)
			}
		}
	})
	if rerr == nil && err == nil && n == 0 {
		err = io.EOF
	}
	return n, files, goneError(errors.Join(rerr, err))
}

// goneError returns ErrGone for the errors of a socket whose other end is gone, or after Close.
func goneError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrGone, err)
}
