package stream

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Endpoint is one side of a connection that is not made yet: a QP with receives posted, for the program to Dial
// or Accept with. Start or Close ends it.
type Endpoint struct {
	cfg  Config
	dev  iwarp.Device
	pd   iwarp.PD
	cq   iwarp.CQ
	qp   iwarp.QP
	mrs  []iwarp.MR
	recv region // Depth receives of maxMessage bytes
	ring region
	send region // slots to copy to

	first []byte             // goes before the greeting, if set
	check func([]byte) error // judges what comes before the peer's, if set
}

// region is registered memory.
type region struct {
	buf []byte
	mr  iwarp.MR
}

// sge names n bytes of r from off on.
func (r *region) sge(off, n int) iwarp.SGE {
	return iwarp.SGE{Addr: r.mr.Base() + uint64(off), Length: uint32(n), LKey: r.mr.STag()}
}

// NewEndpoint returns an endpoint on dev, with a protection domain of its own.
func NewEndpoint(dev iwarp.Device, c Config) (*Endpoint, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if a := dev.Attr(); a.MaxInline < maxMessage {
		return nil, fmt.Errorf("%w: %d bytes inline; a stream needs %d", iwarp.ErrUnsupported, a.MaxInline, maxMessage)
	}
	e := &Endpoint{cfg: c, dev: dev}
	if err := e.make(); err != nil {
		e.Close()
		return nil, fmt.Errorf("stream: %w", err)
	}
	return e, nil
}

func (e *Endpoint) make() (err error) {
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	sends := 4 * e.cfg.Depth // a Write and a message, and as many again that have left and are not polled
	if e.cq, err = e.dev.CreateCQ(sends + e.cfg.Depth); err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(iwarp.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, MaxSend: sends, MaxRecv: e.cfg.Depth})
	if err != nil {
		return err
	}
	for _, r := range []struct {
		r *region
		n int
		a iwarp.Access
		o *iwarp.MROptions
	}{
		{&e.recv, e.cfg.Depth * maxMessage, iwarp.LocalWrite, nil},
		{&e.ring, e.cfg.Ring, iwarp.LocalWrite | iwarp.RemoteWrite, e.bound()},
		{&e.send, slots * slotLen, 0, nil},
	} {
		r.r.buf = make([]byte, r.n)
		if r.r.mr, err = e.pd.RegMR(r.r.buf, r.a, r.o); err != nil {
			return err
		}
		e.mrs = append(e.mrs, r.r.mr)
	}
	for i := range e.cfg.Depth {
		if err := e.repost(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// bound lets only this connection use a region, where the device can do that.
func (e *Endpoint) bound() *iwarp.MROptions {
	if !e.dev.Attr().BoundMR {
		return nil
	}
	return &iwarp.MROptions{QP: e.qp}
}

// repost posts receive i.
func (e *Endpoint) repost(i uint64) error {
	return e.qp.PostRecv(&iwarp.RecvWR{ID: i, SGL: []iwarp.SGE{e.recv.sge(int(i)*maxMessage, maxMessage)}})
}

// QP returns the QP to connect.
func (e *Endpoint) QP() iwarp.QP { return e.qp }

// Introduce makes b, at most 64 bytes, the first message of this side, before anything of the stream: say a proof of who it is. The peer has
// to Expect it.
func (e *Endpoint) Introduce(b []byte) { e.first = b }

// Expect makes check judge the peer's first message, which is no part of the stream. The connection ends with its error, and
// nothing of this side is sent before it has returned nil.
func (e *Endpoint) Expect(check func(first []byte) error) { e.check = check }

// Close gives everything back. It must not be called after Start.
func (e *Endpoint) Close() error {
	var errs []error
	if e.qp != nil {
		errs = append(errs, e.qp.Destroy())
	}
	for _, mr := range e.mrs {
		errs = append(errs, mr.Dereg())
	}
	if e.cq != nil {
		errs = append(errs, e.cq.Close())
	}
	if e.pd != nil {
		errs = append(errs, e.pd.Dealloc())
	}
	return errors.Join(errs...)
}

// Start makes a stream of the endpoint, whose QP is connected. It waits for the peer's first message. On error the endpoint is
// closed.
func (e *Endpoint) Start(ctx context.Context, local, remote net.Addr) (*Conn, error) {
	c := newConn(e, local, remote)
	select {
	case <-c.greeted:
		return c, nil
	case <-ctx.Done():
		c.fail(context.Cause(ctx))
	case <-c.ended:
	}
	c.mu.Lock()
	err := c.err
	c.mu.Unlock()
	c.Close()
	<-c.Done()
	return nil, fmt.Errorf("stream: no greeting of %s: %w", remote, err)
}

// Dial connects to addr on a QP of its own. p may be nil.
func Dial(ctx context.Context, dev iwarp.Device, addr string, p *iwarp.ConnParam, c Config) (*Conn, error) {
	e, err := NewEndpoint(dev, c)
	if err != nil {
		return nil, err
	}
	info, err := dev.Dial(ctx, addr, e.qp, p)
	if err != nil {
		e.Close()
		return nil, err
	}
	return e.Start(ctx, info.Local, info.Remote)
}

// Accept makes a stream of a connection request. p may be nil.
func Accept(ctx context.Context, dev iwarp.Device, r iwarp.ConnRequest, p *iwarp.ConnParam, c Config) (*Conn, error) {
	e, err := NewEndpoint(dev, c)
	if err != nil {
		return nil, err
	}
	info := r.Info()
	if err := r.Accept(ctx, e.qp, p); err != nil {
		e.Close()
		return nil, err
	}
	return e.Start(ctx, info.Local, info.Remote)
}
