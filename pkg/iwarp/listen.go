package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp/mpa"
)

// defaultPending bounds half-open start-ups, each of which costs a goroutine, a
// descriptor and about 1 KiB.
const defaultPending = 256

// leastPerHost is the least that a host gets of the half-open start-ups by default:
// a machine may well open a dozen connections at a time.
const leastPerHost = 16

// listener takes connections of the software device.
type listener struct {
	dev   *soft
	ln    net.Listener
	o     ListenOptions
	ready chan *connRequest // cap MaxPending: never blocks
	done  chan struct{}
	wg    sync.WaitGroup // of accept loop and start-ups

	mu      sync.Mutex // guards what follows
	closed  bool
	pending map[net.Conn]netip.Addr // by whom
	hosts   map[netip.Addr]int      // how many of them
}

func (d *soft) Listen(ctx context.Context, addr string, o *ListenOptions) (Listener, error) {
	if o == nil {
		o = &ListenOptions{}
	}
	l := &listener{dev: d, o: *o, ln: o.Listener, done: make(chan struct{}),
		pending: make(map[net.Conn]netip.Addr), hosts: make(map[netip.Addr]int)}
	if o.RequestTimeout < 0 || o.DecideTimeout < 0 || o.MaxPending < 0 || o.MaxPendingPerHost < 0 {
		return nil, fmt.Errorf("%w: negative limit in ListenOptions", ErrInvalid)
	}
	orDefault(&l.o.RequestTimeout, defaultRequest)
	orDefault(&l.o.DecideTimeout, defaultDecide)
	orDefault(&l.o.MaxPending, defaultPending)
	orDefault(&l.o.MaxPendingPerHost, max(l.o.MaxPending/4, leastPerHost))
	if l.ln == nil {
		ln, err := d.cfg.Listen(ctx, addr)
		if err != nil {
			return nil, fmt.Errorf("iwarp: listen on %s: %w", addr, err)
		}
		l.ln = ln
	}
	l.ready = make(chan *connRequest, l.o.MaxPending)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = l.ln.Close() // nobody has used it
		return nil, ErrClosed
	}
	d.listeners[l] = struct{}{}
	d.mu.Unlock()
	l.wg.Add(1)
	go l.acceptLoop()
	return l, nil
}

func (l *listener) Addr() net.Addr { return l.ln.Addr() }

// acceptLoop admits connections until the listener is closed.
func (l *listener) acceptLoop() {
	defer l.wg.Done()
	for {
		c, err := l.ln.Accept()
		if err != nil {
			if l.isClosed() || errors.Is(err, net.ErrClosed) {
				return
			}
			// Out of descriptors or the like: others must close some first.
			select {
			case <-time.After(50 * time.Millisecond):
			case <-l.done:
				return
			}
			continue
		}
		if !l.admit(c) {
			_ = c.Close() // turned away
			continue
		}
		l.wg.Add(1)
		go l.startUp(c)
	}
}

// hostOf is whom the start-ups of a are counted for: an IPv6 host has a whole /64 of
// addresses to come from.
func hostOf(a net.Addr) netip.Addr {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	ip := t.AddrPort().Addr().Unmap().WithZone("")
	if ip.Is6() {
		p, _ := ip.Prefix(64) // never fails: 64 bits are there
		ip = p.Addr()
	}
	return ip
}

// halfOpen is the number of start-ups that are not decided about.
func (l *listener) halfOpen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// admit takes a place for c among the half-open start-ups.
func (l *listener) admit(c net.Conn) bool {
	if l.o.Admit != nil && l.o.Admit(c.RemoteAddr()) != nil {
		return false
	}
	host := hostOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.pending) >= l.o.MaxPending || l.hosts[host] >= l.o.MaxPendingPerHost {
		return false
	}
	l.pending[c] = host
	l.hosts[host]++
	return true
}

// release gives c's place back; the connection is decided about or dead.
func (l *listener) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if host, ok := l.pending[c]; ok {
		delete(l.pending, c)
		if l.hosts[host]--; l.hosts[host] == 0 {
			delete(l.hosts, host)
		}
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// startUp reads the Request of c, offers it to Accept, and watches c until the
// decision: the initiator has nothing to say before our Reply.
func (l *listener) startUp(c net.Conn) {
	defer l.wg.Done()
	tuneConn(c, l.dev.cfg.StallTimeout)
	_ = c.SetDeadline(time.Now().Add(l.o.RequestTimeout))
	var fr frameReader
	f, rest, err := fr.read(c, false)
	if err != nil || len(rest) > 0 {
		l.release(c)
		_ = c.Close() // malformed, late or gone: no reply (RFC 5044 §7.1.2, rule 5)
		return
	}
	r := &connRequest{l: l, c: c, frame: f, info: infoOf(&f, c, nil), watched: make(chan struct{})}
	_ = c.SetDeadline(time.Now().Add(l.o.DecideTimeout))
	select {
	case l.ready <- r:
	default: // full of requests that died waiting
		l.release(c)
		_ = c.Close()
		return
	}
	var b [1]byte
	_, err = c.Read(b[:])
	r.mu.Lock()
	if !r.decided {
		r.lost = err
		if err == nil {
			r.lost = errors.New("sent data before the Reply")
		}
		_ = c.Close() // nobody will use it
		l.release(c)
	} else if err == nil {
		r.early = true
	}
	r.mu.Unlock()
	close(r.watched)
}

func (l *listener) Accept(ctx context.Context) (ConnRequest, error) {
	for {
		select {
		case r := <-l.ready:
			if r.isLost() {
				continue
			}
			return r, nil
		case <-l.done:
			return nil, ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Close ends the listener and the start-ups that are not decided about.
func (l *listener) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	conns := keys(l.pending)
	l.mu.Unlock()
	close(l.done)
	err := l.ln.Close()
	for _, c := range conns {
		_ = c.Close() // its start-up ends
	}
	l.wg.Wait()
	l.dev.mu.Lock()
	delete(l.dev.listeners, l)
	l.dev.mu.Unlock()
	return err
}

// connRequest is a peer that waits for a decision.
type connRequest struct {
	l       *listener
	c       net.Conn
	frame   mpa.Frame
	info    ConnInfo
	watched chan struct{} // closed when startUp no longer reads

	mu      sync.Mutex // guards what follows
	decided bool
	early   bool  // a byte came before the Reply
	lost    error // the peer went away, or broke a rule, before the decision
}

func (r *connRequest) Info() ConnInfo { return r.info }

func (r *connRequest) isLost() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost != nil
}

// decide takes the connection from startUp.
func (r *connRequest) decide() error {
	r.mu.Lock()
	if r.decided {
		r.mu.Unlock()
		return fmt.Errorf("%w: the request from %s is decided about already", ErrInvalid, r.info.Remote)
	}
	r.decided = true
	lost := r.lost
	_ = r.c.SetReadDeadline(past) // startUp stops watching
	r.mu.Unlock()
	<-r.watched
	if r.early {
		lost = errors.New("sent data before the Reply")
	}
	if lost != nil {
		_ = r.c.Close() // closed already, or to be closed for its early data
		r.l.release(r.c)
		return fmt.Errorf("iwarp: %s: %w", r.info.Remote, lost)
	}
	r.l.release(r.c)
	return nil
}

func (r *connRequest) Accept(ctx context.Context, qpair QP, p *ConnParam) error {
	q, ok := qpair.(*qp)
	if !ok || q.dev != r.l.dev {
		return fmt.Errorf("%w: the QP is of another device", ErrInvalid)
	}
	if p == nil {
		p = &ConnParam{}
	}
	if err := p.check(q.dev.depths()); err != nil {
		return err
	}
	if err := private(p, r.frame.Enhanced != nil); err != nil {
		return err
	}
	if e := r.frame.Enhanced; e != nil && e.IRD < p.MinORD {
		// "the Reply MUST contain the ORD that is required" (after RFC 6581 §9.1).
		if err := r.reject(p, p.MinORD); err != nil {
			return err
		}
		return fmt.Errorf("iwarp: %s holds %d Reads, fewer than MinORD %d: rejected", r.info.Remote, e.IRD, p.MinORD)
	}
	if err := q.begin(); err != nil {
		return err
	}
	limitUnsent(r.c, p.Unsent)
	if err := r.accept(ctx, q, p); err != nil {
		return err
	}
	return nil
}

// accept answers and starts q, which is in state RTR.
func (r *connRequest) accept(ctx context.Context, q *qp, p *ConnParam) error {
	err := r.decide()
	if err == nil {
		if err = q.attach(r.c); err != nil {
			_ = r.c.Close() // nobody will use it
		}
	}
	if err != nil {
		q.startFailed(err)
		return err
	}
	step := p.Timeout
	orDefault(&step, defaultStep)
	reply, t := r.answer(p)
	frame, err := reply.Append(nil)
	if err == nil {
		_ = r.c.SetDeadline(time.Time{})
		// Armed before the Reply: what answers it finds the receiver ready.
		err = q.start(startParam{
			link: newLink(r.c, p, &t), responder: true, enhanced: reply.Enhanced != nil,
			ord: t.ord, ird: t.ird, extensions: p.Extensions, rtr: t.rtr,
		})
	}
	if err != nil {
		_ = r.c.Close() // no goroutine of q has it
		q.startFailed(err)
		return err
	}
	_ = r.c.SetWriteDeadline(time.Now().Add(step))
	if _, err := r.c.Write(frame); err != nil {
		q.Abort()
		return fmt.Errorf("iwarp: reply to %s: %w", r.info.Remote, err)
	}
	// The write deadline stays: the sending side sets its own when it writes.
	peerToPeer := reply.Enhanced != nil && reply.Enhanced.PeerToPeer
	if !peerToPeer {
		if p.SendFirst <= 0 {
			return nil
		}
		step = p.SendFirst
	}
	timer := time.NewTimer(step)
	defer timer.Stop()
	select {
	case <-q.rx.first:
		return nil
	case <-q.done:
		if err = q.Err(); err == nil {
			err = errors.New("closed the connection")
		}
	case <-timer.C:
		if !peerToPeer {
			q.openGate()
			return nil
		}
		err = context.DeadlineExceeded
	case <-ctx.Done():
		err = ctx.Err()
	}
	q.Abort()
	return fmt.Errorf("iwarp: %s did not open the stream after our Reply: %w", r.info.Remote, err)
}

// answer is the accepting Reply, and what is in force here with it.
func (r *connRequest) answer(p *ConnParam) (reply mpa.Frame, t terms) {
	dev := r.l.dev.depths()
	t = terms{ord: min(p.ORD, dev.ord), ird: min(p.IRD, dev.ird)}
	reply = mpa.Frame{
		Reply: true, Rev: r.frame.Rev, Private: p.PrivateData, Markers: p.Markers,
		CRC: r.frame.CRC || p.CRC == CRCRequired,
	}
	if e := r.frame.Enhanced; e != nil {
		var a mpa.Enhanced
		a, t = answerEnhanced(e, p, dev)
		reply.Enhanced = &a
	}
	t.crc, t.in, t.out = reply.CRC, p.Markers, r.frame.Markers
	return reply, t
}

func (r *connRequest) Reject(privateData []byte) error {
	return r.reject(&ConnParam{PrivateData: privateData}, 0)
}

// reject answers with R=1. ord is what the initiator would have to hold, or 0.
func (r *connRequest) reject(p *ConnParam, ord uint16) error {
	if err := private(p, r.frame.Enhanced != nil); err != nil {
		return err
	}
	if err := r.decide(); err != nil {
		return err
	}
	reply, _ := r.answer(p)
	reply.Reject, reply.CRC, reply.Markers = true, false, false
	if ord > 0 {
		reply.Enhanced.ORD = ord
	}
	frame, err := reply.Append(nil)
	if err != nil {
		return err
	}
	defer r.c.Close()
	_ = r.c.SetDeadline(time.Now().Add(r.l.dev.cfg.LingerTimeout))
	if _, err := r.c.Write(frame); err != nil {
		return fmt.Errorf("iwarp: reject %s: %w", r.info.Remote, err)
	}
	// The initiator is to close first: siw takes a FIN that it sees before it has
	// read the Reply for a reset, and its program never hears of a rejection. One
	// that waits for our FIN gets it soon.
	_ = r.c.SetReadDeadline(time.Now().Add(min(rejectGrace, r.l.dev.cfg.LingerTimeout)))
	if discard(r.c) {
		closeWrite(r.c)
		_ = r.c.SetReadDeadline(time.Now().Add(r.l.dev.cfg.LingerTimeout))
		discard(r.c) // closing now could reset the Reply away
	}
	return nil
}

// rejectGrace is how long a rejected initiator has to close first.
const rejectGrace = 500 * time.Millisecond

// discard reads c until it ends, or its deadline passes, which it reports.
func discard(c net.Conn) (late bool) {
	var b [64]byte
	for {
		if _, err := c.Read(b[:]); err != nil {
			return errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}
