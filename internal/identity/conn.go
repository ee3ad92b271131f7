package identity

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is a connection under TLS. A daemon's does its handshake in its first Read, so that accepting
// costs nothing and the handshake falls under the deadline set for that Read.
//
// Close ends the TCP connection at once and tells the peer nothing, so that it never waits for one that
// does not read; CloseWrite says that this side is done. If a peer's connection ends without that, Read
// fails with io.ErrUnexpectedEOF: the stream may have been cut on the way.
type Conn struct {
	*tls.Conn
	id   *Identity
	own  *credentials // what this side presents; a daemon sets it at the client's first message
	wire *wire
	// visit is the attempt of a daemon's peer that the doorman counts; guarded by the doorman's mu.
	visit *visitor

	begin sync.Once // the handshake on a daemon's side
	err   error     // its error; read after begin
	peer  atomic.Pointer[string]
}

func newConn(c net.Conn, id *Identity, own *credentials) *Conn {
	return &Conn{id: id, own: own, wire: &wire{Conn: c, budget: handshakeMost}}
}

// NetConn returns the underlying TCP connection.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// PeerName returns the name in the peer's certificate once that has been verified; "" before.
func (c *Conn) PeerName() string {
	if p := c.peer.Load(); p != nil {
		return *p
	}
	return ""
}

// agreed records that the handshake is over.
func (c *Conn) agreed() {
	c.wire.established()
	name, _ := nameOf(c.Conn.ConnectionState().PeerCertificates[0]) // has been verified
	c.peer.Store(&name)
}

// handshake does a daemon's handshake.
func (c *Conn) handshake() {
	if c.PeerName() != "" {
		return // on a client, Dial has done it
	}
	err := c.Conn.Handshake()
	if err == nil {
		c.agreed()
		c.id.door.passed(c.RemoteAddr())
		c.id.door.settle(&c.visit)
		return
	}
	e := explain(err, Daemon, c.own, c.id.now())
	c.id.door.failed(c.RemoteAddr(), e.Cause, e.Text)
	c.id.door.settle(&c.visit)
	c.err = e
	c.farewell(e)
}

// farewellTime is how long a peer has to read the final alert.
const farewellTime = 500 * time.Millisecond

// farewell lets the peer read the alert that says why: what it has sent since must not be left unread,
// or the kernel resets the connection, and the alert is lost with it.
func (c *Conn) farewell(e *Error) {
	_ = c.wire.Conn.SetDeadline(time.Now().Add(farewellTime))
	if e.Cause == CausePlaintext {
		// crypto/tls sends no alert to a peer that does not speak TLS. Our own peers understand one.
		_, _ = c.wire.Conn.Write(alertRecord(alertUnexpected))
	}
	if h, ok := c.wire.Conn.(interface{ CloseWrite() error }); ok && h.CloseWrite() == nil {
		_, _ = io.CopyN(io.Discard, c.wire.Conn, handshakeMost)
	}
	_ = c.wire.Conn.Close() // it will not be used
}

// alertRecord returns an unencrypted fatal alert (RFC 8446 §5.1, §6).
func alertRecord(number byte) []byte { return []byte{21, 3, 3, 0, 2, 2, number} }

// Read reads what the peer has written. The first Read of a daemon's connection does the handshake.
func (c *Conn) Read(p []byte) (int, error) {
	if c.begin.Do(c.handshake); c.err != nil {
		return 0, c.err
	}
	n, err := c.Conn.Read(p)
	if err != nil && err != io.EOF {
		if alert, ok := alertOf(err); ok {
			err = refused(alert, err, c.own, c.id.now())
		} else if errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("the connection was cut off: %w", err)
		}
	}
	return n, err
}

// Write encrypts and writes p. Long data goes to the kernel many records at a time.
func (c *Conn) Write(p []byte) (int, error) {
	if c.begin.Do(c.handshake); c.err != nil {
		return 0, c.err
	}
	if len(p) <= recordMost {
		return c.Conn.Write(p)
	}
	c.wire.hold()
	n, err := c.Conn.Write(p)
	if ferr := c.wire.release(); err == nil && ferr != nil {
		n, err = 0, ferr
	}
	return n, err
}

// Close ends the connection at once.
func (c *Conn) Close() error {
	c.id.door.settle(&c.visit) // without a Read, nothing was decided
	return c.wire.Conn.Close()
}
