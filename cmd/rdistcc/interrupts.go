package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/rdistcc/rdistcc/internal/jobserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// interrupts handles a request to end this process. It shuts the connection, so that the
// manager cancels and a pending Recv returns, and passes the signal on to the child, if
// there is one. The flow notices, cleans up and exits. A command of several compiles has
// one interrupts for each, and they share the rest.
//
// Nothing is caught before watch: until there is a child, dying at once is all that
// needs doing.
type interrupts struct {
	*ending
	conn  *ipc.Conn     // guarded by mu
	child int           // guarded by mu; negative: a process group, to be killed
	over  bool          // guarded by mu; this part of the command is no longer wanted
	cpu   time.Duration // of the last child, with its own; owned by the flow
}

// ending holds what a process must end, and clean up, before it exits.
type ending struct {
	mu     sync.Mutex
	sig    syscall.Signal    // guarded by mu; the first signal caught
	parts  []*interrupts     // guarded by mu
	temps  []string          // guarded by mu; files to remove in any case
	places *jobserver.Client // guarded by mu; its tokens are returned in any case
	on     bool              // owned by the flow that began
}

func newInterrupts() *interrupts { return new(ending).part() }

// part returns the interrupts of a further part of the command.
func (e *ending) part() *interrupts {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := &interrupts{ending: e}
	e.parts = append(e.parts, in)
	return in
}

// watched lists the signals that end a build. One that is ignored stays ignored.
var watched = [...]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// watch begins to catch signals. It costs 0.15 ms (a thread, and a round trip to it for
// each signal), so it comes as late as possible: before the start of a child that can
// have children of its own. A lone child dies with us anyway (Pdeathsig).
func (e *ending) watch() {
	if e.on {
		return
	}
	e.on = true
	ch := make(chan os.Signal, len(watched)) // one slot for each signal; a repeated one adds nothing
	for _, s := range watched {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
	go func() {
		for s := range ch {
			e.deliver(s.(syscall.Signal))
		}
	}()
}

func (e *ending) deliver(s syscall.Signal) {
	e.mu.Lock()
	defer e.mu.Unlock()
	child := false
	for _, in := range e.parts {
		child = child || in.child != 0
	}
	if e.sig != 0 && !child {
		e.leaveLocked()
		os.Exit(128 + int(s)) // asked twice: the clean-up hangs
	}
	if e.sig == 0 {
		e.sig = s
	}
	for _, in := range e.parts {
		in.endLocked(s)
	}
}

// endLocked passes a signal on to the child and shuts the connection.
func (in *interrupts) endLocked(s syscall.Signal) {
	if in.conn != nil {
		in.conn.Interrupt()
	}
	switch {
	case in.child > 0:
		_ = syscall.Kill(in.child, s) // not reaped yet: it is still our child
	case in.child < 0:
		_ = syscall.Kill(in.child, syscall.SIGKILL)
	}
}

// cancel ends this part, along with any connection or child that it gets later.
func (in *interrupts) cancel() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.endLocked(syscall.SIGTERM)
}

// temp records a file that must not outlive the command.
func (e *ending) temp(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.temps = append(e.temps, name)
}

// uses records a jobserver whose tokens must not outlive the command.
func (e *ending) uses(c *jobserver.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places = c
}

// leave removes the files that must not outlive the command, and returns the jobserver
// tokens that the command holds beside its own.
func (e *ending) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked()
}

func (e *ending) leaveLocked() {
	e.places.Close()
	for _, name := range e.temps {
		_ = syscall.Unlink(name) // an error could not be reported to anyone
	}
	e.temps = nil
}

// caught returns the signal that asked us to end, or 0.
func (e *ending) caught() syscall.Signal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sig
}

// holds sets the connection and the child that a signal concerns. A signal that came
// earlier is passed on to them.
func (in *interrupts) holds(conn *ipc.Conn, child int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.conn, in.child = conn, child
	switch {
	case in.sig != 0:
		in.endLocked(in.sig)
	case in.over:
		in.endLocked(syscall.SIGTERM)
	}
}

// reap waits for the child pid and forgets it in the same moment, so that no signal
// reaches another process that has been given its number.
func (in *interrupts) reap(pid int) (syscall.WaitStatus, error) {
	const pPid, wExited, wNoWait = 1, 4, 0x1000000
	var info [128]byte // siginfo_t
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPid, uintptr(pid), uintptr(unsafe.Pointer(&info)), wExited|wNoWait, 0, 0)
		if errno == 0 {
			break
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	in.child = 0
	var ws syscall.WaitStatus
	var used syscall.Rusage
	for {
		_, err := syscall.Wait4(pid, &ws, 0, &used)
		if err != syscall.EINTR {
			in.cpu = time.Duration(used.Utime.Nano() + used.Stime.Nano())
			return ws, err
		}
	}
}
