package storage

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

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
	"github.com/rdistcc/rdistcc/pkg/resultcache/crsh"
)

// manager asks the connection manager, over a connection for each request: so none holds up its end, or its idle time,
// and the next one is for its successor. It implements crsh.Values.
type manager struct {
	path   string // of its socket
	hosts  string // RDISTCC_HOSTS
	starts bool   // it is started where none runs
	getenv func(string) string

	starting sync.Mutex
	again    time.Time // none is started before that; guarded by starting
	refused  error     // why the last one did not; guarded by starting
}

// askTime bounds a request: ccache gives up after ten seconds.
const askTime = 8 * time.Second

// ask calls what with a connection to the manager.
func (m *manager) ask(ctx context.Context, what func(ctx context.Context, c *crsh.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := m.connect(ctx)
	if err != nil {
		return err
	}
	c, err := crsh.NewClient(ctx, conn)
	if err != nil {
		return fmt.Errorf("rdistcc-cm: %w", err)
	}
	defer c.Close()
	if err := what(ctx, c); !crsh.IsBroken(err) {
		return err
	} else if err != nil {
		return fmt.Errorf("rdistcc-cm: %w", err)
	}
	return nil
}

// dialled is what dial returns.
type dialled struct {
	conn net.Conn
	err  error
}

// connect returns a connection on which the manager speaks package crsh's protocol.
func (m *manager) connect(ctx context.Context) (net.Conn, error) {
	d := m.dialWithin(ctx)
	if absent(d.err) && m.starts {
		if err := m.start(ctx); err != nil {
			return nil, err
		}
		d = m.dialWithin(ctx)
	}
	if absent(d.err) {
		return nil, fmt.Errorf("no connection manager serves %s: any rdistcc compile starts one", m.path)
	}
	return d.conn, d.err
}

// dialWithin is dial, until ctx ends: a manager that hangs accepts nothing.
func (m *manager) dialWithin(ctx context.Context) dialled {
	got := make(chan dialled, 1)
	go func() {
		conn, err := m.dial()
		got <- dialled{conn, err}
	}()
	select {
	case d := <-got:
		return d
	case <-ctx.Done():
		go func() { // it ends by itself: the frames have their own time
			if d := <-got; d.conn != nil {
				d.conn.Close()
			}
		}()
		return dialled{err: fmt.Errorf("rdistcc-cm does not answer: %w", ctx.Err())}
	}
}

// absent reports whether err means that no process serves the socket.
func absent(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
}

// dial connects to the manager, and agrees with it on the protocol.
func (m *manager) dial() (net.Conn, error) {
	if m.path == ipc.StateDir(m.getenv)+"/"+ipc.SocketName {
		// Anyone with write access to the directory could put a socket of their own there.
		if err := ipc.CheckDir(ipc.StateDir(m.getenv)); err != nil {
			return nil, fmt.Errorf("%s: %w", ipc.StateDir(m.getenv), err)
		}
	}
	c, err := ipc.Dial(m.path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	uid, err := c.PeerUID()
	if err == nil {
		err = ipc.Trusted(m.path, uid)
	}
	if err == nil {
		err = agree(c, m.hosts)
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	fd, received := c.Detach()
	f := os.NewFile(uintptr(fd), m.path)
	defer f.Close() // FileConn has its own copy
	conn, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", m.path, err)
	}
	return &begun{conn, received}, nil
}

// begun is a connection of which something was received already.
type begun struct {
	net.Conn
	received []byte
}

func (b *begun) Read(p []byte) (int, error) {
	if len(b.received) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.received)
	b.received = b.received[n:]
	return n, nil
}

// agree asks the manager to serve values on the connection.
func agree(c *ipc.Conn, hosts string) error {
	if err := c.SetPatience(askTime); err != nil {
		return err
	}
	if err := c.Send((&ipc.Control{Version: ipc.Version, Hosts: hosts, Args: []string{"storage"}}).Append(nil)); err != nil {
		return err
	}
	kind, fields, err := c.Recv()
	if err != nil {
		return err
	}
	var r ipc.Reply
	switch {
	case kind == ipc.KindGoLocal:
		return errors.New("the connection manager is of another version, or another user's: rdistcc-cm --replace")
	case kind != ipc.KindReply:
		return ipc.ErrMalformed
	}
	if err := r.Parse(fields); err != nil {
		return err
	}
	if r.Code != 0 {
		return errors.New(string(r.Data))
	}
	return nil
}

// Get implements crsh.Values.
func (m *manager) Get(ctx context.Context, key []byte, take func(size uint64, value io.Reader) error) error {
	return m.ask(ctx, func(ctx context.Context, c *crsh.Client) error { return c.Get(ctx, key, take) })
}

// Put implements crsh.Values.
func (m *manager) Put(ctx context.Context, key []byte, value io.Reader, size uint64, replace bool) (kept bool, err error) {
	err = m.ask(ctx, func(ctx context.Context, c *crsh.Client) (err error) {
		kept, err = c.Put(ctx, key, value, size, replace)
		return err
	})
	return kept, err
}

// Remove implements crsh.Values.
func (m *manager) Remove(ctx context.Context, key []byte) (removed bool, err error) {
	err = m.ask(ctx, func(ctx context.Context, c *crsh.Client) (err error) {
		removed, err = c.Remove(ctx, key)
		return err
	})
	return removed, err
}

// Exists implements crsh.Values.
func (m *manager) Exists(ctx context.Context, key []byte) (there bool, err error) {
	err = m.ask(ctx, func(ctx context.Context, c *crsh.Client) (err error) {
		there, err = c.Exists(ctx, key)
		return err
	})
	return there, err
}
