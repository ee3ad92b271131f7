package rsocket

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Conn is a stream to an rsocket. Its methods may be called concurrently.
type Conn struct {
	*endpoint     // set once
	o             Options
	peer          proto.ConnData
	local, remote net.Addr

	closing chan struct{} // closed by Close
	ended   chan struct{} // closed when the stream is over and watch has ended
	rd, wr  side          // their turn is held before mu

	mu   sync.Mutex // guards what follows, and posting
	in   *proto.Receiver
	out  *proto.Sender
	ring sendRing
	maps []iwarp.MR // ours that the peer was told of, by their place in its table
	// Requests in the SQ whose completion was not polled: data, and grants and keepalives.
	data, control int

	// open says that data and grants may be sent: a responder waits for the initiator's first message
	// (RFC 5044 §7.1.2). siw does not see to that, and its initiator fails if anything comes right
	// behind the Reply. Every initiator begins with a grant.
	open      bool
	closed    bool  // by Close
	over      bool  // the QP has ended: err says why
	err       error // why the stream broke; nil after a good end
	finished  bool  // the peer sends no more data
	gone      bool  // the peer does not take any more either
	shut      bool  // we have said that we send no more data
	left      bool  // we have said that we are gone
	keepAlive *time.Timer
}

// side is what Reads, or Writes, wait for.
type side struct {
	turn     sync.Mutex    // held by the one that is at work
	wake     chan struct{} // cap 1: look again
	deadline time.Time     // guarded by Conn.mu
	timer    *time.Timer   // likewise
}

// notify makes the one at work look again.
func (s *side) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// expired reports whether the deadline has passed.
func (s *side) expired() bool { return !s.deadline.IsZero() && !time.Now().Before(s.deadline) }

// set sets the deadline.
func (s *side) set(t time.Time) {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.deadline = t
	if wait := time.Until(t); !t.IsZero() && wait > 0 {
		s.timer = time.AfterFunc(wait, s.notify)
	}
	s.notify()
}

// newConn starts a connection on e, whose QP is in state RTS.
func newConn(e *endpoint, o *Options, peer *proto.ConnData, info *iwarp.ConnInfo, initiator bool) *Conn {
	c := &Conn{
		endpoint: e, o: *o, peer: *peer, local: info.Local, remote: info.Remote, open: initiator,
		closing: make(chan struct{}), ended: make(chan struct{}),
		rd: side{wake: make(chan struct{}, 1)}, wr: side{wake: make(chan struct{}, 1)},
		in: proto.NewReceiver(&e.own, peer), out: proto.NewSender(&e.own, peer, e.table),
		ring: sendRing{size: len(e.send)},
		maps: make([]iwarp.MR, peer.IOMaps),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grantLocked() // the second half of the buffer
	if o.KeepAlive > 0 {
		c.keepAlive = time.AfterFunc(o.KeepAlive, c.sendKeepAlive)
	}
	go c.watch()
	return c
}

// Dial connects to a listening rsocket at addr. ctx bounds the start-up only.
func Dial(ctx context.Context, dev iwarp.Device, addr string, o *Options) (*Conn, error) {
	c, err := dial(ctx, dev, addr, o)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: named(addr), Err: err}
	}
	return c, nil
}

func dial(ctx context.Context, dev iwarp.Device, addr string, opts *Options) (*Conn, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	e, err := newEndpoint(dev, &o, o.BigEndian)
	if err != nil {
		return nil, err
	}
	p := o.Param
	p.PrivateData, p.Private = e.own.Append(nil), nil
	info, err := dev.Dial(ctx, addr, e.qp, &p)
	if err != nil {
		e.release()
		return nil, err
	}
	peer, err := proto.ParseConnData(info.PrivateData)
	if err != nil {
		e.release()
		return nil, err
	}
	return newConn(e, &o, &peer, info, true), nil
}

const network = "rsocket"

// named is the address of a peer that was not reached.
type named string

func (named) Network() string  { return network }
func (a named) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.setDeadline(t, &c.rd, &c.wr) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(t, &c.rd) }

// SetWriteDeadline implements net.Conn. It also bounds WriteAt and Map.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.wr) }

func (c *Conn) setDeadline(t time.Time, sides ...*side) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opError("set", net.ErrClosed)
	}
	for _, s := range sides {
		s.set(t)
	}
	return nil
}

// wait waits until it is worth while to look again.
func (c *Conn) wait(s *side) {
	select {
	case <-s.wake:
	case <-c.closing:
	case <-c.ended:
	}
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}

// Read implements net.Conn. The package comment says which errors end a stream.
func (c *Conn) Read(p []byte) (int, error) {
	c.rd.turn.Lock()
	defer c.rd.turn.Unlock()
	for {
		c.mu.Lock()
		n, err := c.readLocked(p)
		c.mu.Unlock()
		switch {
		case err == io.EOF:
			return n, io.EOF
		case err != nil:
			return n, c.opError("read", err)
		case n > 0 || len(p) == 0:
			return n, nil
		}
		c.wait(&c.rd)
	}
}

// readLocked returns 0 and no error if there is nothing yet.
func (c *Conn) readLocked(p []byte) (n int, err error) {
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case c.rd.expired():
		return 0, os.ErrDeadlineExceeded
	}
	for n < len(p) {
		at, length := c.in.Unread()
		if length == 0 {
			break
		}
		k := copy(p[n:], c.recv[at:at+length])
		c.in.Read(uint32(k))
		n += k
	}
	if n > 0 {
		c.grantLocked()
		return n, nil
	}
	switch {
	case c.err != nil:
		return 0, c.err
	case c.finished:
		return 0, io.EOF
	case c.over:
		return 0, io.ErrUnexpectedEOF
	}
	return 0, nil
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (n int, err error) {
	c.wr.turn.Lock()
	defer c.wr.turn.Unlock()
	for {
		c.mu.Lock()
		k, err := c.writeLocked(p[n:])
		c.mu.Unlock()
		n += k
		switch {
		case err != nil:
			return n, c.opError("write", err)
		case n == len(p):
			return n, nil
		case k == 0:
			c.wait(&c.wr)
		}
	}
}

// mayWriteLocked returns why nothing can be written.
func (c *Conn) mayWriteLocked() error {
	switch {
	case c.closed:
		return net.ErrClosed
	case c.wr.expired():
		return os.ErrDeadlineExceeded
	case c.err != nil:
		return c.err
	case c.shut || c.gone || c.over:
		return syscall.EPIPE
	}
	return nil
}

// CloseWrite tells the peer that no more data comes. It may still send.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opError("close", net.ErrClosed)
	case c.shut:
		return nil
	}
	c.shut = true
	c.wr.notify()
	if c.finished { // the peer was the first: nothing is left of the stream
		c.disconnectLocked()
		return nil
	}
	c.postControlLocked(proto.Shutdown)
	return nil
}

// Close implements net.Conn. The peer gets what was written before. The error says that it did
// not take it within Options.CloseTimeout.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.closed = true
	close(c.closing)
	if c.keepAlive != nil {
		c.keepAlive.Stop()
	}
	c.rd.set(time.Time{})
	c.wr.set(time.Time{})
	c.disconnectLocked()
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), c.o.CloseTimeout)
	defer cancel()
	err := c.qp.Disconnect(ctx)
	<-c.ended
	for _, mr := range c.maps {
		if mr != nil {
			_ = mr.Dereg()
		}
	}
	c.release()
	if errors.Is(err, context.DeadlineExceeded) {
		return c.opError("close", os.ErrDeadlineExceeded)
	}
	return nil
}
