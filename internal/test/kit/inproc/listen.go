package inproc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Time-outs of start-up, where the caller has set none.
const (
	dialTimeout   = 10 * time.Second
	decideTimeout = 30 * time.Second
)

var errRefused = fmt.Errorf("iwarp: no listener accepts the connection: %w", syscall.ECONNREFUSED)

// listener accepts connections of its network.
type listener struct {
	dev     *device
	addr    Addr
	o       iwarp.ListenOptions
	ready   chan *connRequest // cap o.MaxPending: has room for all of pending
	done    chan struct{}     // closed by close
	pending map[*connRequest]struct{}
	closed  bool
}

// connRequest is an initiator that waits for a decision.
type connRequest struct {
	l       *listener
	a       wish
	info    iwarp.ConnInfo
	decided chan struct{} // closed when the fields below are final

	over   bool           // accepted, rejected, or given up
	lost   error          // why the initiator has gone
	answer iwarp.ConnInfo // for the initiator
	err    error          // instead of answer
}

// Listen accepts connections on addr, any string; see [Addr].
func (d *device) Listen(ctx context.Context, addr string, o *iwarp.ListenOptions) (iwarp.Listener, error) {
	if o == nil {
		o = &iwarp.ListenOptions{}
	}
	if o.Listener != nil {
		return nil, fmt.Errorf("%w: this provider has no sockets", iwarp.ErrUnsupported)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.n.lock()
	defer d.n.unlock()
	if d.closed {
		return nil, iwarp.ErrClosed
	}
	a, err := d.n.listenAddr(addr)
	if err != nil {
		return nil, err
	}
	l := &listener{dev: d, addr: a, o: *o, done: make(chan struct{}), pending: make(map[*connRequest]struct{})}
	orDefault(&l.o.DecideTimeout, decideTimeout)
	orDefault(&l.o.MaxPending, 256)
	l.ready = make(chan *connRequest, l.o.MaxPending)
	d.n.listeners[a] = l
	d.listeners[l] = struct{}{}
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// Accept releases the lock while it waits.
func (l *listener) Accept(ctx context.Context) (iwarp.ConnRequest, error) {
	for {
		select {
		case <-l.done:
			return nil, iwarp.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		case r := <-l.ready:
			l.dev.n.lock()
			over := r.over
			l.dev.n.unlock()
			if !over {
				return r, nil
			}
		}
	}
}

func (l *listener) Close() error {
	l.dev.n.lock()
	defer l.dev.n.unlock()
	l.close()
	return nil
}

func (l *listener) close() {
	if l.closed {
		return
	}
	l.closed = true
	close(l.done)
	delete(l.dev.n.listeners, l.addr)
	delete(l.dev.listeners, l)
	for r := range l.pending {
		r.decide(errRefused)
	}
}

// Dial releases the lock while it waits.
func (d *device) Dial(ctx context.Context, addr string, qpair iwarp.QP, p *iwarp.ConnParam) (*iwarp.ConnInfo, error) {
	q, ok := qpair.(*qp)
	if !ok || q.dev != d {
		return nil, fmt.Errorf("%w: the QP is of another device", iwarp.ErrInvalid)
	}
	d.n.lock()
	a, err := newWish(q, p, p == nil || p.Rev != 1)
	l := d.n.listeners[Addr(addr)]
	done := q.done
	a.addr = d.n.freshAddr("dialer")
	d.n.unlock()
	if err != nil {
		return nil, err
	}
	info, err := a.dial(ctx, l, done)
	if err == nil {
		return info, nil
	}
	var rejected *iwarp.RejectedError
	if !errors.As(err, &rejected) {
		err = fmt.Errorf("iwarp: dial %s: %w", addr, err)
	}
	d.n.lock()
	defer d.n.unlock()
	q.end(err, noEvent)
	return nil, err
}

// dial asks l and waits for its decision. done is closed when a's QP ends. It takes the lock
// itself.
func (a *wish) dial(ctx context.Context, l *listener, done chan struct{}) (*iwarp.ConnInfo, error) {
	if l == nil || l.o.Admit != nil && l.o.Admit(a.addr) != nil {
		return nil, errRefused
	}
	n := l.dev.n
	r := &connRequest{l: l, a: *a, decided: make(chan struct{})}
	r.info = a.offer()
	r.info.Local = l.addr
	n.lock()
	if l.closed || len(l.pending) == l.o.MaxPending {
		n.unlock()
		return nil, errRefused
	}
	l.pending[r] = struct{}{}
	select {
	case l.ready <- r:
	default: // full of requests that were given up
		delete(l.pending, r)
		n.unlock()
		return nil, errRefused
	}
	n.unlock()
	wait := a.p.Timeout
	orDefault(&wait, dialTimeout)
	timer := time.NewTimer(min(wait, l.o.DecideTimeout))
	defer timer.Stop()
	var lost error
	select {
	case <-r.decided:
	case <-ctx.Done():
		lost = ctx.Err()
	case <-timer.C:
		lost = context.DeadlineExceeded
	case <-done:
		lost = errAborted
	}
	n.lock()
	defer n.unlock()
	if !r.over {
		r.lost = fmt.Errorf("iwarp: %s has gone: %w", a.addr, lost)
		r.decide(lost)
	}
	if r.err != nil {
		return nil, r.err
	}
	return &r.answer, nil
}

// decide ends r, with err for the initiator unless it is nil.
func (r *connRequest) decide(err error) {
	if r.over {
		return
	}
	r.over, r.err = true, err
	delete(r.l.pending, r)
	close(r.decided)
}

// gone returns the reason why r can no longer be accepted or rejected.
func (r *connRequest) gone() error {
	switch {
	case r.lost != nil:
		return r.lost
	case r.l.closed:
		return iwarp.ErrClosed
	case r.over:
		return fmt.Errorf("%w: the request from %s is already accepted or rejected", iwarp.ErrInvalid, r.a.addr)
	}
	return nil
}

func (r *connRequest) Info() iwarp.ConnInfo { return r.info }

func (r *connRequest) Accept(ctx context.Context, qpair iwarp.QP, p *iwarp.ConnParam) error {
	q, ok := qpair.(*qp)
	if !ok || q.dev != r.l.dev {
		return fmt.Errorf("%w: the QP is of another device", iwarp.ErrInvalid)
	}
	if p != nil && p.Private != nil { // there are no frames here to report
		made := *p
		made.PrivateData, made.Private = p.Private(r.info), nil
		p = &made
	}
	if err := r.accept(q, p); err != nil {
		return err
	}
	if p == nil || p.SendFirst <= 0 {
		return nil
	}
	return q.sendFirst(ctx, p.SendFirst)
}

// sendFirst opens the gate after d, even if the initiator has sent nothing. It takes the lock
// itself.
func (q *qp) sendFirst(ctx context.Context, d time.Duration) (err error) {
	q.dev.n.lock()
	opened, done := q.opened, q.done
	if q.gate {
		d = 0
	}
	q.dev.n.unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-opened:
	case <-done:
		err = fmt.Errorf("iwarp: the connection ended before this side could speak: %w", errReset)
	case <-ctx.Done():
		err = ctx.Err()
		q.Abort()
	}
	q.dev.n.lock()
	defer q.dev.n.unlock()
	q.open()
	return err
}

// accept takes the lock itself.
func (r *connRequest) accept(q *qp, p *iwarp.ConnParam) error {
	q.dev.n.lock()
	defer q.dev.n.unlock()
	b, err := newWish(q, p, r.info.Rev == 2)
	if err != nil {
		return err
	}
	b.addr = r.l.addr
	err = r.gone()
	if err == nil && r.a.q.state != iwarp.StateRTR {
		err = fmt.Errorf("iwarp: %s has gone: %w", r.a.addr, errAborted)
	}
	if err != nil {
		q.end(err, noEvent)
		return err
	}
	ai, bi, rtr := agree(&r.a, &b)
	if !rtr {
		c := code{2, 0, 7}
		r.decide(&iwarp.TerminateError{Layer: c.layer, Type: c.typ, Code: c.code, Detail: c.text()})
		err := &iwarp.TerminateError{FromPeer: true, Layer: c.layer, Type: c.typ, Code: c.code, Detail: c.text()}
		q.end(err, c.event())
		return fmt.Errorf("iwarp: %s did not open the stream: %w", r.a.addr, err)
	}
	connect(&r.a, &b, &ai, &bi)
	r.answer = ai
	r.decide(nil)
	return nil
}

func (r *connRequest) Reject(privateData []byte) error {
	r.l.dev.n.lock()
	defer r.l.dev.n.unlock()
	limit := maxPrivate
	if r.info.Rev == 2 {
		limit = maxPrivateEnhanced
	}
	if len(privateData) > limit {
		return fmt.Errorf("%w: %d bytes of private data: at most %d", iwarp.ErrInvalid, len(privateData), limit)
	}
	if err := r.gone(); err != nil {
		return err
	}
	rejected := &iwarp.RejectedError{PrivateData: append([]byte(nil), privateData...)}
	// "All ones" is answered by all ones (RFC 6581 §9.1), in a rejection too.
	if r.info.PeerIRD == iwarp.DepthAny {
		rejected.PeerORD = iwarp.DepthAny
	}
	if r.info.PeerORD == iwarp.DepthAny {
		rejected.PeerIRD = iwarp.DepthAny
	}
	r.decide(rejected)
	return nil
}
