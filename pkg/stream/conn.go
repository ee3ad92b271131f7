package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// Conn is a stream. It is a net.Conn that can be closed for writing alone.
type Conn struct {
	end           *Endpoint
	local, remote net.Addr
	reading       sync.Mutex // held by a Read
	writing       sync.Mutex // held by a Write
	rd, wd        deadline
	readable      chan struct{} // cap 1: something has changed for who reads
	writable      chan struct{} // cap 1: and for who writes
	greeted       chan struct{} // closed when the peer's hello is here
	closing       chan struct{} // closed by Close
	ended         chan struct{} // closed when the QP's stream is over and all its requests have completed
	gone          chan struct{} // closed when everything is given back
	regs          registrations // of posted operations

	mu     sync.Mutex // guards what follows
	in     inbound
	out    outbound
	err    error // why the connection has ended
	closed bool  // by Close
	ending bool  // the QP takes no receives any more
	stats  Stats
}

// Stats counts what a Conn has done.
type Stats struct {
	Sent, Received               uint64 // bytes
	SentDirect, ReceivedDirect   uint64 // bytes of them that went straight into a Read
	Messages                     uint64 // sent
	Adverts, Withdrawals, Copies uint64 // Reads that were offered, Reads that were taken back, copies out of the ring
}

func newConn(e *Endpoint, local, remote net.Addr) *Conn {
	c := &Conn{
		end: e, local: local, remote: remote,
		readable: make(chan struct{}, 1), writable: make(chan struct{}, 1),
		greeted: make(chan struct{}), closing: make(chan struct{}), ended: make(chan struct{}), gone: make(chan struct{}),
	}
	c.in.init(e)
	c.out.init(e)
	if e.check == nil {
		c.mu.Lock()
		c.greet()
		c.mu.Unlock()
	}
	go c.run()
	return c
}

// run handles completions until the stream is over.
func (c *Conn) run() {
	defer close(c.ended)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wcs [16]iwarp.WC
	for watched := false; ; {
		err := c.end.cq.Wait(ctx)
		if err != nil && ctx.Err() == nil {
			c.fail(err)
			break
		}
		n, goesOn := c.poll(wcs[:])
		if !goesOn || n == 0 && err != nil {
			break
		}
		if c.ending && !watched { // there may be no receive left that would be flushed
			watched = true
			go func() { <-c.end.qp.Done(); cancel() }()
		}
	}
	<-c.end.qp.Done() // all that is left has been flushed
	for c.end.cq.Poll(wcs[:]) > 0 {
	}
	c.over()
}

// poll handles n completions that are there. It reports whether the stream goes on.
func (c *Conn) poll(wcs []iwarp.WC) (n int, goesOn bool) {
	n = c.end.cq.Poll(wcs)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range wcs[:n] {
		if wcs[i].Status != iwarp.StatusSuccess {
			return n, false // QP.Err says why
		}
		if err := c.completed(&wcs[i]); err != nil {
			c.failLocked(err)
		}
	}
	c.pump()
	return n, true
}

// completed takes one completion.
func (c *Conn) completed(wc *iwarp.WC) error {
	if wc.Op != iwarp.OpRecv {
		c.out.left(c)
		return nil
	}
	off := int(wc.ID) * maxMessage
	b := c.end.recv.buf[off : off+int(wc.ByteLen)]
	if check := c.end.check; check != nil {
		c.end.check = nil
		if err := check(b); err != nil {
			return err
		}
		c.out.owed++
		c.greet()
		return c.end.repost(wc.ID)
	}
	m, err := parse(b)
	if err != nil {
		return err
	}
	if err := c.end.repost(wc.ID); errors.Is(err, iwarp.ErrState) {
		c.ending = true
	} else if err != nil {
		return err
	}
	c.out.owed++
	if c.err != nil {
		return nil
	}
	return c.heard(&m)
}

// heard takes a message of the peer's.
func (c *Conn) heard(m *message) error {
	if isClosed(c.greeted) == (m.kind == kindHello) {
		return fmt.Errorf("%w: a message of kind %d out of turn", exs.ErrPeer, m.kind)
	}
	c.out.credits += int(m.credits)
	if m.kind == kindHello {
		if err := c.hello(&m.hello); err != nil {
			return err
		}
	}
	if c.out.credits > c.out.depth {
		return fmt.Errorf("%w: it returns more receives than it has", exs.ErrPeer)
	}
	switch m.kind {
	case kindHello:
		close(c.greeted)
		return nil
	case kindAdvert:
		return c.out.sender.Advert(m.advert)
	case kindAck:
		return c.out.sender.Ack(m.n)
	case kindWithdraw:
		if c.out.gives {
			return fmt.Errorf("%w: it takes receives back twice", exs.ErrPeer)
		}
		c.out.sender.Withdraw()
		c.out.gives = true
		return nil
	case kindDeaf:
		c.out.deafen(c)
		return nil
	}
	return c.in.heard(c, m)
}

// hello takes the peer's greeting.
func (c *Conn) hello(h *hello) error {
	if h.Size == 0 || h.Size > maxRing || h.Depth < 8 || h.Depth > maxDepth || h.Policy > exs.Indirect {
		return fmt.Errorf("%w: a greeting with a ring of %d bytes, a depth of %d and policy %d", exs.ErrPeer, h.Size, h.Depth, h.Policy)
	}
	c.out.greeted(h, c.end.cfg.Policy)
	c.in.eager = h.Policy == exs.Direct
	return nil
}

// fail ends the connection, unless it has ended.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *Conn) failLocked(err error) {
	if c.err != nil {
		return
	}
	c.err = err
	go c.end.qp.Abort() // it waits for requests to be flushed
	c.wakeLocked()
}

// over notes that the QP's stream has ended.
func (c *Conn) over() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		if c.err = c.end.qp.Err(); c.err == nil {
			c.err = io.ErrUnexpectedEOF // the peer has gone without a word
		}
	}
	c.out.abandon(c)
	c.in.abandon()
	c.wakeLocked()
}

func (c *Conn) wakeLocked() {
	notify(c.readable)
	notify(c.writable)
}

func notify(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// Close ends the stream in both directions. What was written before is still sent, for Config.Linger at most; Done is closed
// when that is over.
func (c *Conn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return c.opErr("close", net.ErrClosed)
	}
	c.closed = true
	close(c.closing)
	c.out.close()
	c.in.close(c)
	c.pump()
	c.wakeLocked()
	go c.linger()
	return nil
}

// Done is closed when the connection has ended after Close, and everything is given back.
func (c *Conn) Done() <-chan struct{} { return c.gone }

// linger waits till all is sent after Close, ends the connection and gives everything back.
func (c *Conn) linger() {
	defer close(c.gone)
	ctx, cancel := context.WithTimeout(context.Background(), c.end.cfg.Linger)
	defer cancel()
	select {
	case <-c.out.drained:
		_ = c.end.qp.Disconnect(ctx) // how it ended is told below
	case <-c.ended:
	case <-ctx.Done():
		c.end.qp.Abort()
	}
	<-c.ended
	c.reading.Lock() // Reads and Writes that are under way give their memory back first
	c.writing.Lock()
	defer c.reading.Unlock()
	defer c.writing.Unlock()
	c.regs.end()
	_ = c.end.Close()
}

// CloseWrite ends the stream in this direction: the peer reads io.EOF after what was written.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return c.opErr("close", net.ErrClosed)
	case c.err != nil:
		return c.opErr("close", c.err)
	}
	c.out.close()
	c.pump()
	notify(c.writable)
	return nil
}

// LocalAddr returns the address of this side.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the address of the other side.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetReadDeadline sets when a Read ends at the latest. A Read that the peer may write to ends a round trip later.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.setDeadline(&c.rd, t) }

// SetWriteDeadline sets when a Write ends at the latest.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(&c.wd, t) }

func (c *Conn) setDeadline(d *deadline, t time.Time) error {
	if isClosed(c.closing) {
		return c.opErr("set", net.ErrClosed)
	}
	d.set(t)
	return nil
}

// Err returns why the connection has ended, or nil if it goes on. After Close it is of no interest, unless it wraps ErrPeer.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Stats returns what has been done so far.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// opErr is err as callers of net.Conn know it.
func (c *Conn) opErr(op string, err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%w: the connection ended in the middle of the stream", syscall.ECONNRESET)
	}
	return &net.OpError{Op: op, Net: "rdma", Source: c.local, Addr: c.remote, Err: err}
}

// stop returns why a Read or Write may not go on whatever there is to do: closed, or past d.
func (c *Conn) stop(d *deadline) error {
	switch {
	case isClosed(c.closing):
		return net.ErrClosed
	case d.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}
