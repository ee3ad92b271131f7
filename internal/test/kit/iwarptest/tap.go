package iwarptest

import (
	"context"
	"io"
	"net"
)

// Tap returns dial, with a copy of what each connection writes sent to out and of what it reads to in.
// It is for one connection at a time.
func Tap(dial func(context.Context, string) (net.Conn, error), out, in io.Writer) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &tapConn{faultConn: faultConn{Conn: c}, out: out, in: in}, nil
	}
}

type tapConn struct {
	faultConn // without faults: for CloseWrite and SetLinger
	out, in   io.Writer
}

func (c *tapConn) Read(p []byte) (int, error) {
	n, err := c.faultConn.Read(p)
	_, _ = c.in.Write(p[:n]) // to a buffer, which does not fail
	return n, err
}

func (c *tapConn) Write(p []byte) (int, error) {
	n, err := c.faultConn.Write(p)
	_, _ = c.out.Write(p[:n])
	return n, err
}
