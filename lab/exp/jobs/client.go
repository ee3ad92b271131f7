package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// job is what a client wants done.
type job struct {
	what, index byte
	text        []byte
}

// conn is a connection to a host.
type conn interface {
	// do does one job. The result is valid until the next one.
	do(ctx context.Context, j *job) (result []byte, first int64, err error)
	close()
}

// client connects to a host. It keeps a device and registered memory, as a connection manager does.
type client struct {
	dev  iwarp.Device
	mem  *memories
	at   addresses
	dial func(ctx context.Context, addr string) (net.Conn, error) // for TCP
}

// connect makes a connection for a carrier.
func (c *client) connect(ctx context.Context, h hello, w iwarp.Waiting) (conn, error) {
	if h.Carrier == byTCP {
		nc, err := c.dial(ctx, c.at.TCP)
		if err != nil {
			return nil, err
		}
		return &tcpConn{client: c, c: nc, head: make([]byte, messageLen), buf: c.mem.text.Get().(*[]byte)}, nil
	}
	v := &verbsConn{client: c, h: h}
	var err error
	if v.mem, err = c.mem.get(); err != nil {
		return nil, err
	}
	if h.pools() {
		if v.receives, err = c.mem.get(); err != nil {
			v.close()
			return nil, err
		}
	}
	o := h.options(v.mem, v.receives)
	o.Wait = w
	if v.e, err = end.New(c.dev, o); err == nil {
		var b []byte
		if b, err = json.Marshal(&h); err == nil {
			err = v.e.Dial(ctx, c.at.Verbs, b)
		}
	}
	if err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}

// verbsConn carries jobs by verbs.
type verbsConn struct {
	*client
	h   hello
	e   *end.End
	mem *end.Memory // text, then the sink

	receives *end.Memory // nil: the end's own
}

func (v *verbsConn) close() {
	if v.e != nil {
		v.e.Close()
	}
	v.client.mem.put(v.mem)
	if v.receives != nil {
		v.client.mem.put(v.receives)
	}
}

// do carries a job. With memory of its own, the text is written into it here, as a preprocessor would; with pooled
// memory too, so that what differs is the memory.
func (v *verbsConn) do(ctx context.Context, j *job) (result []byte, first int64, err error) {
	mem := v.mem
	if v.h.Memory == each {
		if mem, err = v.client.mem.fresh(slotLen); err != nil {
			return nil, 0, err
		}
		defer func() { err = errors.Join(err, drop(mem)) }()
	}
	copy(mem.Buf, j.text)
	m := message{Op: opJob, What: j.what, Index: j.index, Len: uint32(len(j.text)), STag: uint32(mem.MR.STag()), TO: mem.MR.Base(),
		SinkSTag: uint32(mem.MR.STag()), SinkTO: mem.MR.Base() + maxText}
	switch v.h.Carrier {
	case bySend:
		if err = v.e.Send(ctx, m.bytes()); err == nil {
			err = sendChunks(ctx, v.e, mem, 0, len(j.text))
		}
	case byWrite:
		err = v.write(ctx, mem, &m)
	default:
		err = v.e.Send(ctx, m.bytes())
	}
	if err != nil {
		return nil, 0, err
	}
	b, err := v.e.Receive(ctx)
	if err != nil {
		return nil, 0, err
	}
	done, err := parse(b)
	if err != nil {
		return nil, 0, err
	}
	result = mem.Buf[maxText:][:done.Len]
	if v.h.Carrier == bySend {
		err = receiveChunks(ctx, v.e, result)
	}
	if err == nil {
		err = v.e.Reap(ctx, 0)
	}
	if v.h.Memory == each { // mem goes
		result = append([]byte(nil), result...)
	}
	return result, done.First, err
}

// write writes the text into a slot, and sends the job behind it.
func (v *verbsConn) write(ctx context.Context, mem *end.Memory, m *message) error {
	stag, to := v.e.Peer, v.e.PeerTO
	if v.h.Memory != pool {
		if err := v.e.Send(ctx, (&message{Op: opAsk}).bytes()); err != nil {
			return err
		}
		b, err := v.e.Receive(ctx)
		if err != nil {
			return err
		}
		grant, err := parse(b)
		if err != nil {
			return err
		}
		stag, to = iwarp.STag(grant.STag), grant.TO
	}
	if m.Len > 0 {
		if err := v.e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.More, SGL: part(mem, 0, int(m.Len)), STag: stag, TO: to}); err != nil {
			return err
		}
	}
	return v.e.Send(ctx, m.bytes())
}

// sendChunks sends n bytes of registered memory in Sends.
func sendChunks(ctx context.Context, e *end.End, mem *end.Memory, off, n int) error {
	for at := 0; at < n; at += chunk {
		if err := e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, SGL: part(mem, off+at, min(chunk, n-at))}); err != nil {
			return err
		}
	}
	return nil
}

// receiveChunks fills buf from Sends: a copy, as the receives are where the messages came.
func receiveChunks(ctx context.Context, e *end.End, buf []byte) error {
	for len(buf) > 0 {
		b, err := e.Receive(ctx)
		if err != nil {
			return err
		}
		if len(b) == 0 || len(b) > len(buf) {
			return fmt.Errorf("a Send of %d bytes where %d are left", len(b), len(buf))
		}
		buf = buf[copy(buf, b):]
	}
	return nil
}

// tcpConn carries jobs over TCP.
type tcpConn struct {
	*client
	c    net.Conn
	head []byte
	buf  *[]byte
}

func (t *tcpConn) close() {
	_ = t.c.Close()
	t.mem.text.Put(t.buf)
}

func (t *tcpConn) do(_ context.Context, j *job) ([]byte, int64, error) {
	m := message{Op: opJob, What: j.what, Index: j.index, Len: uint32(len(j.text))}
	bufs := net.Buffers{m.bytes(), j.text}
	if _, err := bufs.WriteTo(t.c); err != nil {
		return nil, 0, err
	}
	if _, err := io.ReadFull(t.c, t.head); err != nil {
		return nil, 0, err
	}
	done, err := parse(t.head)
	if err != nil {
		return nil, 0, err
	}
	result := (*t.buf)[:done.Len]
	_, err = io.ReadFull(t.c, result)
	return result, done.First, err
}
