// Package jobserver takes job slots ("places") from a GNU make that runs above this process.
//
// make -jN gives each command one place, which needs no asking, and keeps the others
// as bytes in a pipe or a FIFO that MAKEFLAGS names (GNU make's manual, "POSIX
// Jobserver Interaction"). A client that reads a byte may run one more thing at a time, and
// must write the same byte back when that has ended. A byte that is not written back is a
// place that the build has lost, so when in doubt this package takes none.
//
// It is linked into the wrapper: raw system calls, no package os.
package jobserver

import (
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"
)

// Client takes places and returns them. A nil Client has none to give; its methods may be called. Methods
// may be called concurrently.
type Client struct {
	// set once in Open
	fd   int    // reads and writes tokens, non-blocking
	wake [2]int // a pipe; its reading end is readable once no more places are wanted

	mu     sync.Mutex
	held   []byte // tokens as read, guarded by mu
	enough bool   // guarded by mu
	closed bool   // guarded by mu
}

// Open opens the jobserver that the value of MAKEFLAGS offers. It returns nil if none is offered, or if it
// cannot be used: make keeps its descriptors, but not their numbers, from commands that it does not take
// for a make.
func Open(makeflags string) *Client {
	c := &Client{fd: -1}
	switch auth := offered(makeflags); {
	case strings.HasPrefix(auth, "fifo:"):
		c.fd = openFIFO(auth[len("fifo:"):])
	case auth != "":
		c.fd = openPipe(auth)
	}
	if c.fd < 0 {
		return nil
	}
	if err := syscall.Pipe2(c.wake[:], syscall.O_CLOEXEC); err != nil {
		syscall.Close(c.fd)
		return nil
	}
	return c
}

// offered returns the jobserver's address in MAKEFLAGS: "R,W", "fifo:PATH", or "". The last one counts, as
// a nested make appends its own. The variables of make's command line follow "--".
func offered(makeflags string) (auth string) {
	for _, w := range words(makeflags) {
		if w == "--" {
			break
		}
		for _, name := range [...]string{"--jobserver-auth=", "--jobserver-fds="} { // the second name is that before make 4.2
			if v, ok := strings.CutPrefix(w, name); ok {
				auth = v
			}
		}
	}
	return auth
}

// words splits s at blanks; a backslash quotes the next byte.
func words(s string) (list []string) {
	var w []byte
	in := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ' || c == '\t':
			if in {
				list = append(list, string(w))
			}
			w, in = w[:0], false
		case c == '\\' && i+1 < len(s):
			i++
			w, in = append(w, s[i]), true
		default:
			w, in = append(w, c), true
		}
	}
	if in {
		list = append(list, string(w))
	}
	return list
}

func openFIFO(path string) int {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil || st.Mode&syscall.S_IFMT != syscall.S_IFIFO {
		return -1 // opening anything else could have side effects
	}
	return open(path)
}

// openPipe opens the pipe whose two descriptors make passed on. Their numbers may refer to something else
// by now: they must be the two ends of one pipe, inherited through an exec.
func openPipe(auth string) int {
	first, second, ok := strings.Cut(auth, ",")
	r, err1 := strconv.Atoi(first)
	w, err2 := strconv.Atoi(second)
	if !ok || err1 != nil || err2 != nil || r < 0 || w < 0 {
		return -1 // also "-2,-2": make's way of saying that there is none
	}
	var in, out syscall.Stat_t
	if syscall.Fstat(r, &in) != nil || syscall.Fstat(w, &out) != nil ||
		in.Mode&syscall.S_IFMT != syscall.S_IFIFO || in.Ino != out.Ino || in.Dev != out.Dev ||
		!inherited(r, syscall.O_WRONLY) || !inherited(w, syscall.O_RDONLY) {
		return -1
	}
	// Opened again, so that it does not block: another reader may take the byte that poll has announced.
	// The flag belongs to the open file, and the inherited one is shared with make and all its commands.
	return open("/proc/self/fd/" + strconv.Itoa(r))
}

// inherited reports whether fd came through an exec, and was not just opened for the other direction.
func inherited(fd, not int) bool {
	flags, _, e1 := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
	mode, _, e2 := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFL, 0)
	return e1 == 0 && e2 == 0 && flags&syscall.FD_CLOEXEC == 0 && int(mode)&syscall.O_ACCMODE != not
}

// open opens a pipe or FIFO for both directions, which never blocks.
func open(path string) int {
	for {
		fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		switch err {
		case nil:
			return fd
		case syscall.EINTR:
		default:
			return -1
		}
	}
}

// Acquire waits for a place and takes it. It returns false after Enough or Close, or if there is something
// wrong with the jobserver.
func (c *Client) Acquire() bool {
	if c == nil {
		return false
	}
	for {
		switch err := c.take(); err {
		case nil:
			return true
		case syscall.EAGAIN:
		default:
			return false
		}
		fds := [2]pollFD{{fd: int32(c.fd), events: pollIn}, {fd: int32(c.wake[0]), events: pollIn}}
		_, _, errno := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&fds)), 2, 0, 0, 0, 0)
		if errno != 0 && errno != syscall.EINTR {
			return false
		}
	}
}

// take reads a token if there is one. It reads and records it under one lock: a caller that closes c in
// between, because the process is about to end, finds the token either in the pipe or among the held ones.
func (c *Client) take() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.enough || c.closed {
		return syscall.ECANCELED
	}
	var b [1]byte
	for {
		n, err := syscall.Read(c.fd, b[:])
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return err
		case n == 0:
			return syscall.EPIPE
		default:
			c.held = append(c.held, b[0])
			return nil
		}
	}
}

// Release returns one place.
func (c *Client) Release() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.held); n > 0 {
		c.giveLocked(c.held[n-1:])
		c.held = c.held[:n-1]
	}
}

// giveLocked writes tokens back. There is room for them, as they came from there.
func (c *Client) giveLocked(tokens []byte) {
	for len(tokens) > 0 {
		n, err := syscall.Write(c.fd, tokens)
		if err != nil && err != syscall.EINTR {
			return // make has gone
		}
		tokens = tokens[max(n, 0):]
	}
}

// Enough ends every Acquire, now and later; held places stay.
func (c *Client) Enough() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enoughLocked()
}

func (c *Client) enoughLocked() {
	if !c.enough {
		c.enough = true
		_, _ = syscall.Write(c.wake[1], []byte{0}) // an empty pipe accepts it
	}
}

// Close returns all places. The descriptors stay open until the process ends, as an Acquire may be waiting on them.
func (c *Client) Close() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.enoughLocked()
	c.giveLocked(c.held)
	c.held = nil
}

// CloseOnPanic is deferred in a goroutine that uses a place: its panic ends the process without the
// deferred calls of other goroutines.
func (c *Client) CloseOnPanic() {
	if p := recover(); p != nil {
		c.Close()
		panic(p)
	}
}

// pollFD is struct pollfd.
type pollFD struct {
	fd     int32
	events int16
	_      int16 // result, which the call's return value replaces
}

const pollIn = 0x01
