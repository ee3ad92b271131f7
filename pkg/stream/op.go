package stream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream/exs"
)

// maxPosted bounds how many sends, and how many receives, a program may have posted at a time. A peer keeps no more adverts.
const maxPosted = exs.MaxAdverts

// Op is a send or a receive that was posted. Its memory belongs to the connection until Wait has returned.
type Op struct {
	c    *Conn
	done chan struct{} // closed when the counts are final and the memory is not used any more
	mr   iwarp.MR      // registered for this operation alone; nil: it is a Memory's
	want int           // bytes
	recv *read         // either this
	send *segment      // or this
}

// Memory is memory that a connection can send from without registering it each time.
type Memory struct {
	c  *Conn
	mr iwarp.MR
	n  int
}

// Register registers buf for sending. It must stay mapped until Close has returned, or the connection is Done.
func (c *Conn) Register(buf []byte) (*Memory, error) {
	mr, err := c.register(buf, 0)
	if err != nil {
		return nil, c.opErr("register", err)
	}
	return &Memory{c, mr, len(buf)}, nil
}

// Close ends the registration. Sends from the memory must have completed.
func (m *Memory) Close() error { return m.c.deregister(m.mr) }

// PostSend queues n bytes of the memory from off on, and returns at once. They must not change before the Op's Wait has
// returned. Sends are carried out in the order in which they are posted and written.
//
// A Write that waits holds it up. It fails with iwarp.ErrQueueFull when 1024 sends are posted.
func (m *Memory) PostSend(off, n int) (*Op, error) {
	if off < 0 || n <= 0 || n > m.n-off {
		return nil, m.c.opErr("write", fmt.Errorf("%w: %d bytes at %d of %d that are registered", iwarp.ErrInvalid, n, off, m.n))
	}
	return m.c.postSend(m.mr, off, n, nil)
}

// PostSend queues buf like Memory.PostSend, and registers it for this send.
func (c *Conn) PostSend(buf []byte) (*Op, error) {
	mr, err := c.register(buf, 0)
	if err != nil {
		return nil, c.opErr("write", err)
	}
	return c.postSend(mr, 0, len(buf), mr)
}

func (c *Conn) postSend(mr iwarp.MR, off, n int, own iwarp.MR) (*Op, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	s := &segment{addr: mr.Base() + uint64(off), lkey: mr.STag(), left: n, done: make(chan struct{})}
	c.mu.Lock()
	err := c.mayWrite()
	if err == nil && len(c.out.posted) == maxPosted {
		err = iwarp.ErrQueueFull
	}
	if err == nil {
		c.out.posted = append(c.out.posted, s)
		c.out.queue = append(c.out.queue, s)
		c.out.sender.Post(uint64(n))
		c.pump()
	}
	c.mu.Unlock()
	if err != nil {
		return nil, c.opErr("write", errors.Join(err, c.deregister(own)))
	}
	return &Op{c: c, done: s.done, mr: own, want: n, send: s}, nil
}

// PostRecv offers buf to the peer and returns at once. With waitAll it completes when buf is full, else with any data. Data that
// is here already is copied. Receives are filled in the order in which they are posted; a Read gets what comes after all of them.
//
// A Read that waits holds it up. If one passes its deadline, or the connection is closed, all receives are taken back. It fails with
// io.EOF at the end of the stream, and with iwarp.ErrQueueFull when 1024 receives are posted.
func (c *Conn) PostRecv(buf []byte, waitAll bool) (*Op, error) {
	mr, err := c.register(buf, iwarp.LocalWrite|iwarp.RemoteWrite)
	if err != nil {
		return nil, c.opErr("read", err)
	}
	c.reading.Lock()
	defer c.reading.Unlock()
	r := &read{buf: buf, mr: mr, waitAll: waitAll}
	if err = c.offer(r); err != nil {
		if e := c.deregister(mr); e != nil {
			err = errors.Join(err, e)
		}
		return nil, c.opErr("read", err)
	}
	return &Op{c: c, done: r.done, mr: mr, want: len(buf), recv: r}, nil
}

// offer posts r.
func (c *Conn) offer(r *read) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case isClosed(c.closing):
		return net.ErrClosed
	case c.in.receiver.EOF():
		return io.EOF
	case c.err != nil:
		return c.err
	case len(c.in.reads) >= maxPosted:
		return iwarp.ErrQueueFull
	}
	c.in.post(r, len(r.buf))
	c.in.settle(c)
	c.pump()
	return nil
}

// Done is closed when the operation has completed. Wait does not block then.
func (o *Op) Done() <-chan struct{} { return o.done }

// Wait waits for the operation and returns how many bytes were sent or received. The memory is the caller's again. What is less
// than was asked for comes with an error, except data for a receive without waitAll. It must be called once.
func (o *Op) Wait() (int, error) {
	if o.recv != nil {
		select {
		case <-o.done:
		case <-o.c.closing:
			_ = o.c.takeBack(o.recv) // the result says it
		}
	}
	<-o.done
	n, err := o.result()
	name := "write"
	if o.recv != nil {
		name = "read"
	}
	if e := o.c.deregister(o.mr); err == nil {
		err = e
	}
	return n, o.c.opErr(name, err)
}

func (o *Op) result() (int, error) {
	c := o.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := o.send; s != nil {
		switch {
		case s.sent == o.want && !s.lost:
			return s.sent, nil
		case c.err != nil && !c.out.deaf:
			return s.sent, c.err
		}
		return s.sent, errPipe
	}
	switch r := o.recv; {
	case r.n == o.want || r.n > 0 && !r.waitAll:
		return r.n, nil
	case c.in.receiver.EOF():
		return r.n, io.EOF
	case c.closed:
		return r.n, net.ErrClosed
	case c.err != nil:
		return r.n, c.err
	default: // a Read's deadline has taken back this one too
		return r.n, os.ErrDeadlineExceeded
	}
}

// register registers buf. What is left when the connection ends is deregistered then.
func (c *Conn) register(buf []byte, a iwarp.Access) (iwarp.MR, error) {
	var o *iwarp.MROptions
	if a != 0 {
		o = c.end.bound()
	}
	c.regs.Lock()
	defer c.regs.Unlock()
	if c.regs.over {
		return nil, net.ErrClosed
	}
	mr, err := c.end.pd.RegMR(buf, a, o)
	if err == nil {
		c.regs.open = append(c.regs.open, mr)
	}
	return mr, err
}

// deregister ends a registration, if it has not ended with the connection. mr may be nil.
func (c *Conn) deregister(mr iwarp.MR) error {
	if mr == nil || !c.regs.remove(mr) {
		return nil
	}
	return mr.Dereg()
}
