package redis

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// guarded is a connection that fails when the server announces more than it can be meant to send. The client
// library allocates what a length says before anything of that length has arrived, so a few bytes of garbage
// could end the program.
//
// It follows the server's stream of RESP values: a line, which with some first bytes gives the length of a
// string behind it or the number of values in an aggregate.
type guarded struct {
	net.Conn
	skip int    // bytes of a string, and the line end behind it, that are still to come
	line []byte // the current line so far
}

const (
	maxLine      = 64 << 10
	maxAggregate = 1024 // values; the longest is the answer to HELLO
)

// Read reads from the connection, and looks at what it has read.
func (g *guarded) Read(b []byte) (int, error) {
	n, err := g.Conn.Read(b)
	if fault := g.look(b[:n]); fault != nil {
		return 0, fault
	}
	return n, err
}

func (g *guarded) look(b []byte) error {
	for len(b) > 0 {
		if g.skip > 0 {
			k := min(g.skip, len(b))
			g.skip -= k
			b = b[k:]
			continue
		}
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			end = len(b) - 1
		}
		g.line = append(g.line, b[:end+1]...)
		b = b[end+1:]
		if len(g.line) > maxLine {
			return fmt.Errorf("the server does not speak Redis's protocol: a line of more than %d bytes", maxLine)
		}
		if g.line[len(g.line)-1] != '\n' {
			continue
		}
		if err := g.ended(); err != nil {
			return err
		}
		g.line = g.line[:0]
	}
	return nil
}

// ended looks at a whole line.
func (g *guarded) ended() error {
	limit := 0
	switch g.line[0] {
	case '$', '=', '!':
		limit = MaxEntry
	case '*', '%', '~', '>', '|':
		limit = maxAggregate
	case '+', '-', ':', '_', '#', ',', '(':
		return nil
	default:
		return fmt.Errorf("the server does not speak Redis's protocol: a reply begins with %q", g.line[:min(len(g.line), 16)])
	}
	n, err := strconv.Atoi(string(bytes.TrimRight(g.line[1:], "\r\n")))
	if err != nil || n < -1 || n > limit {
		return fmt.Errorf("the server announces %q: more than it can have been given", g.line[:min(len(g.line), 32)])
	}
	if limit == MaxEntry && n >= 0 {
		g.skip = n + len("\r\n")
	}
	return nil
}

// SyscallConn lets the client library look whether an idle connection has ended.
func (g *guarded) SyscallConn() (syscall.RawConn, error) {
	if c, ok := g.Conn.(syscall.Conn); ok {
		return c.SyscallConn()
	}
	return nil, errors.ErrUnsupported // through TLS there is nothing to see
}
