package iwarp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"
)

// defaultPending bounds half-open start-ups, each of which costs a goroutine, a descriptor
// and about 1 KiB.
const defaultPending = 256

// leastPerHost is the default minimum of half-open start-ups that a host may have: a machine
// may well open a dozen connections at a time.
const leastPerHost = 16

// listener accepts connections of the software device.
type listener struct {
	dev   *soft
	ln    net.Listener
	o     ListenOptions
	ready chan *connRequest // cap MaxPending: never blocks
	done  chan struct{}
	wg    sync.WaitGroup // of accept loop and start-ups

	mu      sync.Mutex // guards what follows
	closed  bool
	pending map[net.Conn]pending
	hosts   map[netip.Addr]int // how many of them
	arrived uint64             // connections so far
}

// pending is a start-up that is not yet accepted or rejected.
type pending struct {
	host  netip.Addr // where it comes from
	age   uint64     // listener.arrived when it came
	asked bool       // its Request is complete
}

func (d *soft) Listen(ctx context.Context, addr string, o *ListenOptions) (Listener, error) {
	if o == nil {
		o = &ListenOptions{}
	}
	l := &listener{dev: d, o: *o, ln: o.Listener, done: make(chan struct{}),
		pending: make(map[net.Conn]pending), hosts: make(map[netip.Addr]int)}
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
			return nil, fmt.Errorf("iwarp: listen on %s: %w", addr, unaddressed(err))
		}
		l.ln = ln
	}
	l.ready = make(chan *connRequest, l.o.MaxPending)
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		_ = l.ln.Close() // it has not been used
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

// hostOf returns the address that the start-ups of a are counted under. An IPv6 host has a
// whole /64 of addresses.
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

// halfOpen returns the number of start-ups that are not yet accepted or rejected.
func (l *listener) halfOpen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pending)
}

// admit takes a place for c among the half-open start-ups.
func (l *listener) admit(c net.Conn) bool {
	refused := &l.dev.refused
	if l.o.Admit != nil && l.o.Admit(c.RemoteAddr()) != nil {
		refused.add(RefusedAdmit)
		return false
	}
	host := hostOf(c.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return false
	case l.hosts[host] >= l.o.MaxPendingPerHost:
		refused.add(RefusedHost)
		return false
	case len(l.pending) >= l.o.MaxPending:
		refused.add(RefusedPlaces)
		if !l.makeRoomLocked(host) {
			return false
		}
	}
	l.arrived++
	l.pending[c] = pending{host: host, age: l.arrived}
	l.hosts[host]++
	return true
}

// makeRoomLocked ends one start-up in favour of host if another host has more of them: that
// host's oldest one whose Request has not arrived, which an honest peer sends at once.
// Otherwise a few silent hosts would keep all others out.
func (l *listener) makeRoomLocked(host netip.Addr) bool {
	most := netip.Addr{}
	for h, n := range l.hosts {
		if n > l.hosts[most] {
			most = h
		}
	}
	if l.hosts[most] <= l.hosts[host] {
		return false
	}
	var oldest net.Conn
	for c, p := range l.pending {
		if p.host == most && !p.asked && (oldest == nil || p.age < l.pending[oldest].age) {
			oldest = c
		}
	}
	if oldest == nil {
		return false
	}
	l.releaseLocked(oldest)
	_ = oldest.Close() // its start-up ends, and is counted already
	return true
}

// requested records that the Request of c is complete. It returns false if c has been given up.
func (l *listener) requested(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.pending[c]
	if ok {
		p.asked = true
		l.pending[c] = p
	}
	return ok
}

// release gives c's place back once the connection has been accepted, rejected or lost.
func (l *listener) release(c net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releaseLocked(c)
}

func (l *listener) releaseLocked(c net.Conn) {
	if p, ok := l.pending[c]; ok {
		delete(l.pending, c)
		if l.hosts[p.host]--; l.hosts[p.host] == 0 {
			delete(l.hosts, p.host)
		}
	}
}

// refuse counts a start-up that ended with err, unless this side ended it.
func (l *listener) refuse(err error) {
	if !errors.Is(err, net.ErrClosed) && !l.isClosed() && !errors.Is(err, context.Canceled) {
		l.dev.refused.add(startupRefusal(err))
	}
}

func (l *listener) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// startUp reads the Request of c, offers it to Accept, and watches c until the decision: the
// initiator must not send anything before our Reply.
func (l *listener) startUp(c net.Conn) {
	defer l.wg.Done()
	tuneConn(c, l.dev.cfg.StallTimeout)
	_ = c.SetDeadline(time.Now().Add(l.o.RequestTimeout))
	var fr frameReader
	f, rest, err := fr.read(c, false)
	if err == nil && len(rest) > 0 {
		err = errEarly
	}
	if err == nil && !l.requested(c) {
		err = net.ErrClosed
	}
	if err != nil {
		l.refuse(err)
		l.release(c)
		_ = c.Close() // malformed, late or gone: no reply (RFC 5044 §7.1.2, rule 5)
		return
	}
	r := &connRequest{l: l, c: c, frame: f, info: infoOf(&f, c, nil), watched: make(chan struct{})}
	r.info.Request = f.Head()
	_ = c.SetDeadline(time.Now().Add(l.o.DecideTimeout))
	select {
	case l.ready <- r:
	default: // full of requests that died waiting
		l.dev.refused.add(RefusedPlaces)
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
			r.lost = errEarly
		}
		l.refuse(r.lost)
		_ = c.Close() // it will not be used
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

// Close ends the listener and the start-ups that are not yet accepted or rejected.
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
