package iwarptest

import (
	"context"
	"net"
	"sync"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Faults says what a wrapped connection does to its bytes. Offsets count the bytes written
// through it from 1; 0 means never.
type Faults struct {
	ReadMax int   // a Read returns at most this many bytes
	FlipAt  int64 // the byte at this offset is sent with one bit flipped
	CutAt   int64 // the connection is reset instead of this byte
}

// Wrap applies faults to what c reads and writes.
func Wrap(c net.Conn, f Faults) net.Conn { return &faultConn{Conn: c, f: f} }

type faultConn struct {
	net.Conn
	f Faults

	mu  sync.Mutex // guards what follows
	off int64      // bytes written
}

func (c *faultConn) Read(p []byte) (int, error) {
	if c.f.ReadMax > 0 && len(p) > c.f.ReadMax {
		p = p[:c.f.ReadMax]
	}
	return c.Conn.Read(p)
}

func (c *faultConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	from := c.off
	end := from + int64(len(p))
	if at := c.f.CutAt; at > from && at <= end {
		n, _ := c.Conn.Write(p[:at-1-from])
		c.off += int64(n)
		c.abort()
		return n, net.ErrClosed
	}
	if at := c.f.FlipAt; at > from && at <= end {
		p = append([]byte(nil), p...)
		p[at-1-from] ^= 0x10
	}
	n, err := c.Conn.Write(p)
	c.off += int64(n)
	return n, err
}

func (c *faultConn) abort() {
	_ = c.SetLinger(0)
	_ = c.Close()
}

// CloseWrite and SetLinger pass through, where the connection has them.
func (c *faultConn) CloseWrite() error {
	if h, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return h.CloseWrite()
	}
	return c.Close()
}

func (c *faultConn) SetLinger(sec int) error {
	if l, ok := c.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(sec)
	}
	return nil
}

// DialFaults returns cfg with faults on every connection that it dials.
func DialFaults(cfg iwarp.Config, f Faults) iwarp.Config {
	dial := cfg.Dial
	if dial == nil {
		dial = func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		}
	}
	cfg.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return Wrap(c, f), nil
	}
	return cfg
}

// ListenFaults returns cfg with faults on every connection that it accepts.
func ListenFaults(cfg iwarp.Config, f Faults) iwarp.Config {
	listen := cfg.Listen
	if listen == nil {
		listen = func(ctx context.Context, addr string) (net.Listener, error) {
			return new(net.ListenConfig).Listen(ctx, "tcp", addr)
		}
	}
	cfg.Listen = func(ctx context.Context, addr string) (net.Listener, error) {
		l, err := listen(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &faultListener{l, f}, nil
	}
	return cfg
}

type faultListener struct {
	net.Listener
	f Faults
}

func (l *faultListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Wrap(c, l.f), nil
}
