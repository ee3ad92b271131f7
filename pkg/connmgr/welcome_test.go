package connmgr

import (
	"encoding/binary"
	"net"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/daemontest"
)

// deafConn holds back the first two FPDUs that are sent until the third: siw's acceptor can miss the first
// ones until more arrives.
type deafConn struct {
	net.Conn

	mu   sync.Mutex
	held []byte // the bytes from the MPA Request on; nil once nothing is held back
	off  bool
}

func (c *deafConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.off {
		return c.Conn.Write(p)
	}
	c.held = append(c.held, p...)
	const header = 20
	if len(c.held) < header {
		return len(p), nil
	}
	request := header + int(binary.BigEndian.Uint16(c.held[18:]))
	end, fpdus := request, 0
	for fpdus < 3 && len(c.held) >= end+2 {
		if end += (2+int(binary.BigEndian.Uint16(c.held[end:]))+3)&^3 + 4; len(c.held) >= end {
			fpdus++
		}
	}
	var out []byte
	switch {
	case fpdus == 3:
		c.off = true
		out, c.held = c.held, nil
		// The Request has been sent by then.
		out = out[request:]
	case len(c.held) == request:
		out = c.held
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// TestDeafAcceptor: a peer that does not notice our first messages until something follows works like any
// other host.
func TestDeafAcceptor(t *testing.T) {
	deaf := make(map[string]func(net.Conn) net.Conn)
	r := newRig(t, func(o *Options) {
		o.Device.Close()
		o.Device = dialer(t, deaf)
	})
	r.dev = r.m.o.Device
	d := daemontest.Start(t, r.far, "127.0.0.1:0", nil)
	deaf[d.Addr] = func(c net.Conn) net.Conn { return &deafConn{Conn: c} }
	r.warm(d.Addr)
	if res := r.remote(d.Addr, "int x;"); res.Host != d.Addr || res.Attempts != 1 {
		t.Errorf("result %+v", res)
	}
	r.idle()
}
