// Package relay forwards TCP connections to a target and does to them, while they live, what networks do:
// resets, cuts, bit flips, silence, delay, a low rate.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// chunk is the most that is forwarded at a time; depth of them may be on the way in one direction of a
// connection, as in a network's buffers.
const (
	chunk = 16 << 10 // bytes
	depth = 64
)

// Direction is a direction of bytes.
type Direction int

// Directions: Out is from the connecting side to the target.
const (
	Out Direction = iota
	Back
)

// Relay listens for connections to one target. Its methods may be called concurrently.
type Relay struct {
	target   string
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup

	delay atomic.Int64 // nanoseconds
	rate  atomic.Int64 // bytes per second; 0 = no limit
	moved atomic.Int64 // bytes forwarded

	mu    sync.Mutex
	conns map[*conn]bool
	armed [2]*armed     // by direction
	held  chan struct{} // closed when forwarding resumes; nil while it is not held
}

// armed is a fault that waits for its byte.
type armed struct {
	after int // bytes still to pass before it
	flip  bool
	hit   chan struct{}
}

// conn is one connection of two sockets.
type conn struct {
	near, far *net.TCPConn
	lost      chan struct{} // closed once nothing is forwarded any more, not even an end
}

// New starts a relay on a loopback port of its own. Close ends it.
func New(target string) (*Relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Relay{target: target, listener: l, conns: make(map[*conn]bool)}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.running.Go(r.accept)
	return r, nil
}

// Addr returns the address on which the relay listens, host:port.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Close ends all connections and waits for the relay's goroutines.
func (r *Relay) Close() {
	r.cancel()
	r.listener.Close()
	r.Reset()
	r.running.Wait()
}

// Moved returns how many bytes have passed.
func (r *Relay) Moved() int64 { return r.moved.Load() }

// Conns returns how many connections there are.
func (r *Relay) Conns() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns)
}

// SetDelay makes bytes take d each way from now on.
func (r *Relay) SetDelay(d time.Duration) { r.delay.Store(int64(d)) }

// SetRate limits each direction of each connection to a number of bytes per second; 0 is no limit.
func (r *Relay) SetRate(bytes int) { r.rate.Store(int64(bytes)) }

// Reset ends all connections by RST and returns how many there were.
func (r *Relay) Reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.conns)
	for c := range r.conns {
		c.reset()
	}
	return n
}

// Hold stops all forwarding, including that of new connections, until Release; then it continues as if it
// had only been slow.
func (r *Relay) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
}

// Release ends Hold.
func (r *Relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// Strand makes the existing connections half-open for good: neither side hears from the other again. New
// ones work normally. It returns how many it affected.
func (r *Relay) Strand() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for c := range r.conns {
		select {
		case <-c.lost:
		default:
			close(c.lost)
			n++
		}
	}
	return n
}

// Cut lets after more bytes pass in direction d, of any connections, and then resets the connection of the
// next byte. The channel is closed when that happens. It replaces what was armed in that direction before.
func (r *Relay) Cut(d Direction, after int) <-chan struct{} { return r.arm(d, after, false) }

// Flip is Cut, except that it flips a bit of the byte.
func (r *Relay) Flip(d Direction, after int) <-chan struct{} { return r.arm(d, after, true) }

func (r *Relay) arm(d Direction, after int, flip bool) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &armed{after: after, flip: flip, hit: make(chan struct{})}
	r.armed[d] = a
	return a.hit
}

// Disarm cancels what has not happened yet.
func (r *Relay) Disarm() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.armed = [2]*armed{}
}

func (r *Relay) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.running.Go(func() { r.serve(near.(*net.TCPConn)) })
	}
}

func (r *Relay) serve(near *net.TCPConn) {
	defer near.Close()
	c := &conn{near: near, lost: make(chan struct{})}
	if !r.passes(c) {
		return
	}
	far, err := net.Dial("tcp", r.target)
	if err != nil {
		resetTCP(near) // as the target's own system would
		return
	}
	c.far = far.(*net.TCPConn)
	defer far.Close()
	r.mu.Lock()
	if r.ctx.Err() != nil {
		r.mu.Unlock()
		return
	}
	r.conns[c] = true
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.pass(c, Out, c.far, c.near) })
	both.Go(func() { r.pass(c, Back, c.near, c.far) })
	both.Wait()
	r.mu.Lock()
	delete(r.conns, c)
	r.mu.Unlock()
}

// passes waits while forwarding is held; it returns false if c is lost.
func (r *Relay) passes(c *conn) bool {
	for {
		r.mu.Lock()
		held := r.held
		r.mu.Unlock()
		select {
		case <-c.lost:
			<-r.ctx.Done()
			return false
		case <-r.ctx.Done():
			return false
		default:
		}
		if held == nil {
			return true
		}
		select {
		case <-held:
		case <-c.lost:
		case <-r.ctx.Done():
		}
	}
}

// parcel is the data of one read.
type parcel struct {
	data []byte
	due  time.Time
	err  error // error of the read; io.EOF is the connection's orderly end
}

// pass forwards one direction until its end.
func (r *Relay) pass(c *conn, d Direction, dst, src *net.TCPConn) {
	way := make(chan parcel, depth)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(way)
		for {
			p := parcel{data: make([]byte, chunk)}
			var n int
			n, p.err = src.Read(p.data)
			p.data, p.due = p.data[:n], time.Now().Add(time.Duration(r.delay.Load()))
			select {
			case way <- p:
			case <-r.ctx.Done():
				return
			}
			if p.err != nil {
				return
			}
		}
	})
	defer reader.Wait()
	for p := range way {
		r.sleep(time.Until(p.due))
		if rate := r.rate.Load(); rate > 0 {
			r.sleep(time.Duration(len(p.data)) * time.Second / time.Duration(rate))
		}
		if !r.passes(c) {
			c.reset()
			return
		}
		data, whole := r.bend(d, p.data)
		if _, err := dst.Write(data); err != nil || !whole {
			c.reset()
			return
		}
		r.moved.Add(int64(len(data)))
		switch {
		case errors.Is(p.err, io.EOF):
			_ = dst.CloseWrite() // the other side may have ended first
		case p.err != nil:
			c.reset()
		}
	}
}

// bend applies what is armed to data that passes; ok is false if the connection is cut after the returned data.
func (r *Relay) bend(d Direction, data []byte) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.armed[d]
	if a == nil {
		return data, true
	}
	if a.after >= len(data) {
		a.after -= len(data)
		return data, true
	}
	r.armed[d] = nil
	close(a.hit)
	if !a.flip {
		return data[:a.after], false
	}
	data[a.after] ^= 1 << (a.after % 8)
	return data, true
}

func (r *Relay) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.ctx.Done():
	}
}

func (c *conn) reset() {
	resetTCP(c.near)
	if c.far != nil {
		resetTCP(c.far)
	}
}

// resetTCP ends a socket by RST. One that is closed already stays so.
func resetTCP(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}
