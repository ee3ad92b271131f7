package privatetree

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/sandbox"
)

// A compiler and its assembler need not wait for each other. With a FIFO in place of the file between them the
// assembler starts at once, and reads while the compiler writes. Both get their usual words, and the result is that
// of running one after the other:
//
//   - The second program's output is held back until the first one has ended well, and dropped if that fails.
//   - If the second one ends without having read everything, it is unknown how the first one would have ended: the
//     command must be run again, one program after the other (Outcome.Apart).

// maxHeld bounds what is held back of each output of the second program, in bytes. One that prints more is run again.
const maxHeld = 64 << 10

// makeFIFO makes a FIFO for two programs that run at the same time, and reports whether there is one. A bare tree has
// none: an earlier command might have put something in its place.
func (t *Tree) makeFIFO(name string) bool {
	if name == "" || t.bare != "" {
		return false
	}
	in, base, err := split(name)
	if err != nil {
		return false
	}
	d, err := t.dir(in, true)
	if err != nil {
		return false
	}
	fd, at := t.entry(d, base)
	if unix.Mknodat(fd, at, unix.S_IFIFO|0o600, 0) != nil {
		return false
	}
	t.made(d, base)
	if t.own(fd, at) != nil {
		_ = unix.Unlinkat(fd, at, 0) // Clean will do it
		return false
	}
	return true
}

// pair is two programs that run at the same time.
type pair struct {
	c             *child
	first, second running
	between       string // the FIFO's name
	held          [2]heldOutput
	unread        int  // the FIFO's reading end, once the second one has ended but not the first one; else -1
	early         bool // the second one ended before the first one, or at the same time
	unheard       bool // the first one has failed: one after the other, the second one would not have run
	w             *watch
	r             *reply // the first one's, and finally the command's
}

// What a pair's watch waits for: the two programs, the second one's two outputs, and what that one leaves unread.
const (
	watchFirst = iota
	watchSecond
	watchHeld
	watchUnread = watchHeld + 2
)

// runPair runs the first two programs of a command at the same time. It fails if the first one could not be started.
func (c *child) runPair(req *request, first, second Program, between string, attr *syscall.ProcAttr, r *reply) error {
	p := pair{c: c, between: between, unread: -1, r: r}
	defer p.close()
	for i := range p.held {
		if err := p.held[i].open(); err != nil {
			return err
		}
	}
	var err error
	if p.first, err = c.start(req, first, attr); err != nil {
		return err
	}
	theirs := *attr
	theirs.Files = []uintptr{attr.Files[0], uintptr(p.held[0].write), uintptr(p.held[1].write)}
	if p.second, err = c.start(req, second, &theirs); err != nil {
		p.apart()
		c.take(p.first.pid, r)
		c.endRest(&req.limits, r)
		return nil
	}
	p.w = c.watch(req, false, r, p.first.pidfd, p.second.pidfd, p.held[0].read, p.held[1].read, p.unread)
	p.wait()
	c.endRest(&req.limits, r)
	p.conclude(attr.Files[1:])
	return nil
}

// wait returns when both have ended.
func (p *pair) wait() {
	var last reply
	for first, second := true, true; first || second; {
		p.w.wait()
		for i := range p.held {
			if p.w.ready(watchHeld+i) && !p.held[i].take() {
				p.apart()
				p.w.forget(watchHeld + i)
			}
		}
		if p.w.ready(watchUnread) {
			var b [1]byte
			if n, err := unix.Read(p.unread, b[:]); n > 0 || err != nil {
				p.apart()
			}
			p.w.forget(watchUnread)
		}
		if p.w.ready(watchFirst) {
			p.w.forget(watchFirst)
			first = false
			if p.c.take(p.first.pid, p.r); p.r.failed() && second {
				p.c.kill()
			}
		}
		if p.w.ready(watchSecond) {
			p.w.forget(watchSecond)
			second = false
			if p.c.take(p.second.pid, &last); first {
				p.openUnread()
			}
		}
	}
	// Writing without a reader kills a program with this signal, or makes it fail if it catches that.
	if p.r.signal == int32(unix.SIGPIPE) || p.early && p.r.failed() && last.failed() {
		p.r.apart = true
	}
	if p.unheard = p.r.failed(); !p.unheard {
		p.r.exit, p.r.signal = last.exit, last.signal
	}
	p.r.errno |= last.errno
	p.r.cpu += last.cpu
	p.r.maxRSS = max(p.r.maxRSS, last.maxRSS)
}

// failed reports whether a program did not end with success.
func (r *reply) failed() bool { return r.exit != 0 || r.signal != 0 }

// openUnread opens the FIFO when the second program has ended before the first one: the first one must not wait for a
// reader, and anything it still writes shows that the second one had not read everything.
func (p *pair) openUnread() {
	fd, err := unix.Open(p.between, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		p.apart()
		return
	}
	p.unread = fd
	p.w.fds[watchUnread].Fd = int32(fd)
}

// apart ends both, as the command must be run again.
func (p *pair) apart() {
	p.r.apart = true
	p.c.kill()
}

// conclude passes the second program's output on to the command's standard output and error, if it would have run.
func (p *pair) conclude(to []uintptr) {
	if p.r.killed || p.r.excess != sandbox.ExcessNone {
		p.r.apart = false // its result would not have been used
		return
	}
	if p.unheard {
		return
	}
	for i := range p.held {
		if !p.held[i].take() || !p.r.apart && len(p.held[i].text) > 0 && fill(int(to[i]), p.held[i].text) != nil {
			p.r.apart = true // it would have found that it cannot write
		}
	}
}

func (p *pair) close() {
	for i := range p.held {
		p.held[i].close()
	}
	for _, fd := range []int{p.first.pidfd, p.second.pidfd, p.unread} {
		if fd > 0 {
			unix.Close(fd)
		}
	}
}

// heldOutput is an output of the second program that is held back.
type heldOutput struct {
	read, write int
	text        []byte
}

func (h *heldOutput) open() error {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return err
	}
	h.read, h.write = p[0], p[1]
	return unix.SetNonblock(h.read, true)
}

// take reads what is available, and reports whether it still fits into what may be held.
func (h *heldOutput) take() bool {
	var b [4096]byte
	for {
		n, err := unix.Read(h.read, b[:])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0: // EAGAIN
			return len(h.text) <= maxHeld
		default:
			if h.text = append(h.text, b[:n]...); len(h.text) > maxHeld {
				return false
			}
		}
	}
}

func (h *heldOutput) close() {
	if h.read > 0 {
		unix.Close(h.read)
		unix.Close(h.write)
	}
}
