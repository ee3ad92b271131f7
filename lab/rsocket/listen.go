package rsocket

import (
	"context"
	"net"
	"sync"

	"github.com/rdistcc/rdistcc/lab/rsocket/proto"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// backlog is how many connections are in start-up or wait for Accept. Each has its buffers, 260 KiB
// with the defaults.
const backlog = 64

// Listener accepts connections of rsockets.
type Listener struct {
	l      iwarp.Listener
	dev    iwarp.Device
	o      Options
	ready  chan *Conn
	places chan struct{} // one for each connection up to its Accept
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // serve, and a start-up each
}

// Listen accepts connections on a TCP address.
func Listen(ctx context.Context, dev iwarp.Device, addr string, opts *Options) (*Listener, error) {
	o, err := opts.withDefaults()
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: named(addr), Err: err}
	}
	l, err := dev.Listen(ctx, addr, o.Listen)
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: named(addr), Err: err}
	}
	s := &Listener{l: l, dev: dev, o: o, ready: make(chan *Conn, backlog), places: make(chan struct{}, backlog)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.serve)
	return s, nil
}

// Addr implements net.Listener.
func (s *Listener) Addr() net.Addr { return s.l.Addr() }

// Accept implements net.Listener. A peer that does not speak the protocol is rejected and not
// shown.
func (s *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-s.ready:
		<-s.places
		return c, nil
	case <-s.ctx.Done():
		return nil, &net.OpError{Op: "accept", Net: network, Addr: s.Addr(), Err: net.ErrClosed}
	}
}

// Close implements net.Listener. It closes connections that Accept has not returned.
func (s *Listener) Close() error {
	s.cancel()
	err := s.l.Close()
	s.wg.Wait()
	for {
		select {
		case c := <-s.ready:
			c.Close()
		default:
			return err
		}
	}
}

// serve starts connections side by side: one that is slow, or pretends to be, holds up no other.
func (s *Listener) serve() {
	for {
		select {
		case s.places <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		r, err := s.l.Accept(s.ctx)
		if err != nil {
			s.cancel()
			return
		}
		s.wg.Go(func() {
			if c, err := s.start(r); err == nil {
				s.ready <- c // has room: c holds a place
			} else {
				<-s.places
			}
		})
	}
}

// start answers a peer. It adopts the peer's byte order.
func (s *Listener) start(r iwarp.ConnRequest) (*Conn, error) {
	info := r.Info()
	peer, err := proto.ParseConnData(info.PrivateData)
	if err != nil {
		_ = r.Reject(nil) // or it has hung up
		return nil, err
	}
	e, err := newEndpoint(s.dev, &s.o, peer.BigEndian)
	if err != nil {
		_ = r.Reject(nil)
		return nil, err
	}
	p := s.o.Param
	p.PrivateData, p.Private = e.own.Append(nil), nil
	if err := r.Accept(s.ctx, e.qp, &p); err != nil {
		e.release()
		return nil, err
	}
	return newConn(e, &s.o, &peer, &info, false), nil
}
