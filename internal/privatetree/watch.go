package privatetree

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// watch is what this process waits for while a command runs.
type watch struct {
	c     *child
	req   *request
	probe bool
	r     *reply
	look  time.Time     // when the command is to be looked at; zero: never
	fds   []unix.PollFd // the awaited descriptors, then the caller's and the filter's
}

// watch returns a watch for descriptors of programs, or of their outputs.
func (c *child) watch(req *request, probe bool, r *reply, fds ...int) *watch {
	w := &watch{c: c, req: req, probe: probe, r: r, fds: make([]unix.PollFd, 0, len(fds)+3)}
	for _, fd := range append(fds, childSock, c.hold.Listener()) {
		w.fds = append(w.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if c.watched(&req.limits) {
		w.look = time.Now().Add(firstLook)
	}
	return w
}

// wait returns when one of the awaited descriptors is ready. It records whether the caller has asked to kill the
// command, or whether it was killed for what it used. When the caller itself has ended, so does this process. A
// probe is not killed for what it tries.
func (w *watch) wait() {
	n := len(w.fds) - 2
	caller, filter := &w.fds[n], &w.fds[n+1]
	for {
		pause := -1
		if !w.look.IsZero() {
			pause = max(0, int(time.Until(w.look)/time.Millisecond)+1)
		}
		k, err := unix.Poll(w.fds, pause)
		switch {
		case err != nil: // EINTR: no other error is possible here
			continue
		case !w.look.IsZero() && (k == 0 || !time.Now().Before(w.look)): // however many calls there are to be answered
			w.look = time.Now().Add(nextLook)
			var e sandbox.Excess
			w.c.ask(func() { e = w.c.look(&w.req.limits) })
			w.c.stop(e, w.r)
			continue
		}
		if filter.Revents&unix.POLLIN != 0 {
			w.c.called(w.probe, w.r)
		}
		if filter.Revents&^unix.POLLIN != 0 || w.r.excess != sandbox.ExcessNone && !w.probe {
			filter.Fd = -1 // no process is left that could be reported, or one report is enough
		}
		for i := range w.fds[:n] {
			if w.fds[i].Revents != 0 {
				return
			}
		}
		if caller.Revents != 0 {
			w.c.heard(w.req.seq, w.r)
		}
	}
}

// ready reports whether descriptor i is ready.
func (w *watch) ready(i int) bool { return w.fds[i].Fd >= 0 && w.fds[i].Revents != 0 }

// forget stops waiting for descriptor i.
func (w *watch) forget(i int) { w.fds[i].Fd, w.fds[i].Revents = -1, 0 }

// called handles a call that waits for an answer: one that names files, or one that no compiler makes.
func (c *child) called(probe bool, r *reply) {
	if !probe && c.names == nil {
		c.stop(sandbox.ExcessDenied, r)
		return
	}
	call, err := c.hold.Receive()
	if err != nil {
		return
	}
	e := sandbox.ExcessDenied
	if c.names != nil {
		e = c.names.answer(&call)
	}
	switch {
	case e == sandbox.ExcessNone:
	case probe:
		if c.hold.Answer(&call, 0, unix.EPERM) == nil && r.excess != sandbox.ExcessDenied {
			r.excess = e
		}
	default:
		c.stop(e, r)
	}
}

// stop kills the command for an excess, if there is one.
func (c *child) stop(e sandbox.Excess, r *reply) {
	if e != sandbox.ExcessNone {
		r.excess = e
		c.kill()
	}
}

// heard handles a message from the caller while a command runs.
func (c *child) heard(seq uint64, r *reply) {
	req, _, err := c.next()
	if err != nil {
		c.exit()
	}
	if req.op == opKill && req.seq == seq {
		r.killed = true
		c.kill()
	}
}
