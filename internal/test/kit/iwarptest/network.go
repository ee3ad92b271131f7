package iwarptest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// socketBuffer is the capacity of one direction of a connection in bytes, as small as a kernel's
// may be, so that writers do block.
const socketBuffer = 64 << 10

// Network is a TCP-like network in memory: ordered byte streams with half-close,
// reset and deadlines. Its waits are on sync.Cond and channels, so that a synctest
// bubble can tell when all is idle.
type Network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*memListener
	port      int
}

// NewNetwork returns an empty network.
func NewNetwork() *Network {
	return &Network{listeners: make(map[string]*memListener), port: 40000}
}

// Config returns a device configuration for this network.
func (n *Network) Config() iwarp.Config {
	return iwarp.Config{Dial: n.Dial, Listen: n.Listen}
}

func (n *Network) nextPort() int {
	n.port++
	return n.port
}

// Listen opens a listener on addr, an IP address with a port; port 0 picks a free one.
func (n *Network) Listen(_ context.Context, addr string) (net.Listener, error) {
	a, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if a.Port == 0 {
		a.Port = n.nextPort()
	}
	if n.listeners[a.String()] != nil {
		return nil, &net.OpError{Op: "listen", Net: "mem", Addr: a, Err: syscall.EADDRINUSE}
	}
	l := &memListener{n: n, addr: a, backlog: make(chan *memConn, 128), done: make(chan struct{})}
	n.listeners[a.String()] = l
	return l, nil
}

// Dial connects to a listener of the network.
func (n *Network) Dial(ctx context.Context, addr string) (net.Conn, error) {
	a, err := parseAddr(addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	l := n.listeners[a.String()]
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: n.nextPort()}
	n.mu.Unlock()
	refused := &net.OpError{Op: "dial", Net: "mem", Addr: a, Err: syscall.ECONNREFUSED}
	if l == nil {
		return nil, refused
	}
	client, server := pipe(local, a)
	select {
	case l.backlog <- server:
		return client, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// parseAddr reads addr without asking a name server.
func parseAddr(addr string) (*net.TCPAddr, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	p, err := strconv.Atoi(port)
	if err != nil {
		return nil, err
	}
	ip := net.ParseIP(host)
	if host == "localhost" {
		ip = net.IPv4(127, 0, 0, 1)
	}
	if ip == nil {
		return nil, &net.AddrError{Err: "the in-memory network has no names, only addresses", Addr: addr}
	}
	return &net.TCPAddr{IP: ip, Port: p}, nil
}

type memListener struct {
	n       *Network
	addr    *net.TCPAddr
	backlog chan *memConn
	done    chan struct{}
	once    sync.Once
}

func (l *memListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.backlog:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *memListener) Addr() net.Addr { return l.addr }

func (l *memListener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = nil
		l.n.mu.Lock()
		delete(l.n.listeners, l.addr.String())
		l.n.mu.Unlock()
		close(l.done)
		for {
			select {
			case c := <-l.backlog:
				_ = c.Close() // it will not be accepted
			default:
				return
			}
		}
	})
	return err
}

func pipe(a, b net.Addr) (*memConn, *memConn) {
	ab, ba := newStream(), newStream()
	return &memConn{in: ba, out: ab, local: a, remote: b}, &memConn{in: ab, out: ba, local: b, remote: a}
}

// stream is one direction of a connection.
type stream struct {
	mu   sync.Mutex // guards what follows
	cond sync.Cond
	buf  [socketBuffer]byte
	r, n int // buf[r:r+n], cyclic, is unread

	fin   bool // the writer has closed its half
	gone  bool // the reader has closed
	reset bool // the connection is dead, in both directions

	readBy, writeBy time.Time // deadlines
	readClosed      bool      // the reader's own Close
	writeClosed     bool      // the writer's own Close or CloseWrite
	timers          []*time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.cond.L = &s.mu
	return s
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readClosed:
			return 0, net.ErrClosed
		case passed(s.readBy):
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case s.n > 0:
			n := copy(p, s.buf[s.r:min(s.r+s.n, len(s.buf))])
			s.r = (s.r + n) % len(s.buf)
			s.n -= n
			s.cond.Broadcast()
			return n, nil
		case s.reset:
			return 0, syscall.ECONNRESET
		case s.fin:
			return 0, io.EOF
		}
		s.cond.Wait()
	}
}

func (s *stream) write(p []byte) (done int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.writeClosed:
			return done, net.ErrClosed
		case s.reset:
			return done, syscall.ECONNRESET
		case s.gone:
			return done, syscall.EPIPE
		case passed(s.writeBy):
			return done, os.ErrDeadlineExceeded
		case len(p) == 0:
			return done, nil
		case s.n < len(s.buf):
			w := (s.r + s.n) % len(s.buf)
			n := copy(s.buf[w:min(w+len(s.buf)-s.n, len(s.buf))], p)
			s.n += n
			p = p[n:]
			done += n
			s.cond.Broadcast()
			continue
		}
		s.cond.Wait()
	}
}

// set changes s and wakes its waiters.
func (s *stream) set(f func()) {
	s.mu.Lock()
	f()
	s.cond.Broadcast()
	s.mu.Unlock()
}

// deadline sets by to t and makes waiters check again then.
func (s *stream) deadline(by *time.Time, t time.Time) {
	s.set(func() {
		*by = t
		if d := time.Until(t); !t.IsZero() && d > 0 {
			s.timers = append(s.timers, time.AfterFunc(d, func() { s.set(func() {}) }))
		}
	})
}

func (s *stream) stopTimers() {
	for _, t := range s.timers {
		t.Stop()
	}
	s.timers = nil
}

// memConn is one end of a connection.
type memConn struct {
	in, out       *stream
	local, remote net.Addr
	linger        bool // SetLinger(0): Close resets; guarded by out.mu
}

func (c *memConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	if err == io.EOF {
		return n, err
	}
	return n, c.wrap("read", err)
}

func (c *memConn) Write(p []byte) (int, error) {
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

func (c *memConn) wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: op, Net: "mem", Source: c.local, Addr: c.remote, Err: err}
}

// Close sends a FIN, or, as TCP does, a reset when there is unread data.
func (c *memConn) Close() error {
	closed, unread := false, false
	c.in.set(func() {
		closed = c.in.readClosed
		unread = c.in.n > 0
		c.in.readClosed, c.in.gone = true, true
		c.in.stopTimers()
	})
	if closed {
		return c.wrap("close", net.ErrClosed)
	}
	reset := false
	c.out.set(func() {
		reset = unread || c.linger
		c.out.writeClosed, c.out.fin = true, true
		c.out.reset = c.out.reset || reset
		c.out.stopTimers()
	})
	if reset {
		c.in.set(func() { c.in.reset = true })
	}
	return nil
}

// CloseWrite sends a FIN.
func (c *memConn) CloseWrite() error {
	c.out.set(func() { c.out.writeClosed, c.out.fin = true, true })
	return nil
}

// SetLinger with 0 makes Close reset the connection.
func (c *memConn) SetLinger(sec int) error {
	c.out.set(func() { c.linger = sec == 0 })
	return nil
}

func (c *memConn) LocalAddr() net.Addr  { return c.local }
func (c *memConn) RemoteAddr() net.Addr { return c.remote }

func (c *memConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

func (c *memConn) SetReadDeadline(t time.Time) error {
	c.in.deadline(&c.in.readBy, t)
	return nil
}

func (c *memConn) SetWriteDeadline(t time.Time) error {
	c.out.deadline(&c.out.writeBy, t)
	return nil
}
