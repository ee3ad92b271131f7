package main

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"unsafe"

	"github.com/rdistcc/rdistcc/internal/jobserver"
	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// interrupts is what happens when somebody wants this process to end: the
// connection is shut, so that the manager cancels and a Recv returns, and the
// child, if there is one, gets the signal too. The flow notices, cleans up and
// exits. A command of several compiles has one for each, and they share the rest.
//
// Nothing is caught before watch: until there is a child, to die at once is all
// that is to be done.
type interrupts struct {
	*ending
	conn  *ipc.Conn // guarded by mu
	child int       // guarded by mu; below zero: a process group, to be killed
	over  bool      // guarded by mu; this part of the command is not wanted any more
}

// ending is what a process has to end, and what it leaves.
type ending struct {
	mu     sync.Mutex
	sig    syscall.Signal    // the first one, guarded by mu
	parts  []*interrupts     // guarded by mu
	temps  []string          // guarded by mu; files to remove in any case
	places *jobserver.Client // guarded by mu; to be given back in any case
	on     bool              // owned by the flow that began
}

func newInterrupts() *interrupts { return new(ending).part() }

// part is what a further part of the command holds.
func (e *ending) part() *interrupts {
	e.mu.Lock()
	defer e.mu.Unlock()
	in := &interrupts{ending: e}
	e.parts = append(e.parts, in)
	return in
}

// watched are the signals that end a build. One that is ignored stays ignored.
var watched = [...]os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT}

// watch begins to catch signals. It costs 0.15 ms (a thread, and a round trip to
// it a signal), so it comes as late as it may: before a child starts that can
// have children of its own; a lone one dies with us anyhow (Pdeathsig).
func (e *ending) watch() {
	if e.on {
		return
	}
	e.on = true
	ch := make(chan os.Signal, len(watched)) // one of each kind; a repeated one adds nothing
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

// endLocked passes a signal on.
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

// cancel ends this part, and what it will hold from now on.
func (in *interrupts) cancel() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.over = true
	in.endLocked(syscall.SIGTERM)
}

// temp notes a file that is not to outlive the command.
func (e *ending) temp(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.temps = append(e.temps, name)
}

// uses notes a jobserver whose places are not to outlive the command.
func (e *ending) uses(c *jobserver.Client) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.places = c
}

// leave removes the files that are not to outlive the command, and gives the places
// back that it has beside its own.
func (e *ending) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.leaveLocked()
}

func (e *ending) leaveLocked() {
	e.places.Close()
	for _, name := range e.temps {
		_ = syscall.Unlink(name) // there is nobody to tell
	}
	e.temps = nil
}

// caught is the signal that wants us to end, or 0.
func (e *ending) caught() syscall.Signal {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.sig
}

// holds tells which connection and which child a signal concerns. One that has
// come already is passed on to them.
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

// reap waits for the child pid and forgets it in the same moment, so that no
// signal goes to another process that has got its number.
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
	for {
		_, err := syscall.Wait4(pid, &ws, 0, nil)
		if err != syscall.EINTR {
			return ws, err
		}
	}
}
