package capture

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// conn records what goes through a connection. Its reader and its writer may be different goroutines.
type conn struct {
	net.Conn
	f *File

	mu   sync.Mutex // guards what follows
	out  int        // which of the two sides below is ours: 0 dialled
	side [2]side    // the one that dialled first
	left bool       // what follows cannot be told: nothing more is recorded
	p    packets
}

// side is what one side sends.
type side struct {
	stream stream
	fin    bool
}

func newConn(f *File, c net.Conn, dialled bool) *conn {
	r := &conn{Conn: c, f: f}
	near, far := address(c.LocalAddr()), address(c.RemoteAddr())
	if !dialled {
		r.out = 1
		near, far = far, near
	}
	r.p.init(near, far)
	f.write(r.p.open(time.Now()))
	return r
}

// address returns the address of a TCP connection, or one that stands for none.
func address(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap().WithZone(""), p.Port())
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, 1}), 1) // RFC 5737: for documents
}

// NetConn returns the connection below, for what concerns the socket.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.record(1-c.out, b[:max(n, 0)])
	if errors.Is(err, io.EOF) {
		c.finish(1 - c.out)
	}
	return n, err
}

// Write records before it sends, so that no answer is recorded before what it answers.
func (c *conn) Write(b []byte) (int, error) {
	c.record(c.out, b)
	return c.Conn.Write(b)
}

func (c *conn) CloseWrite() error {
	c.finish(c.out)
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Conn.Close()
}

func (c *conn) Close() error {
	c.finish(c.out)
	c.finish(1 - c.out)
	return c.Conn.Close()
}

// finish records a side's FIN, once.
func (c *conn) finish(side int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := &c.side[side]; !s.fin {
		s.fin = true
		c.f.write(c.p.finish(side, time.Now()))
	}
}

// record adds b to what side has sent.
func (c *conn) record(side int, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.side[side].stream
	for len(b) > 0 && !c.left {
		var unit []byte
		var err error
		if unit, b, err = s.next(b); err != nil {
			c.left = true
			c.f.log("capture " + c.f.name + ": the rest of the connection with " + c.RemoteAddr().String() + " is left out: " + err.Error())
			return
		}
		if unit == nil {
			return
		}
		if !c.f.o.Payload {
			s.blank(unit)
		}
		c.f.write(c.p.data(side, unit, time.Now()))
	}
}
