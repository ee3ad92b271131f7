package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// ptSettle is the default of --settle: perftest's peers are usually the kernel's.
const ptSettle = 20 * time.Millisecond

// ptSession is one run of a test with perftest on the other side.
type ptSession struct {
	o      *options
	client bool
	talk   ptTalk
	ctl    *endpoint   // the first connection
	ends   []*endpoint // the others
	dests  []ptDest    // their descriptions
}

// ptControl returns the endpoint of the first connection.
func ptControl(dev iwarp.Device, o *options) (*endpoint, error) {
	return newEndpoint(dev, o, shape{sends: 8, recvs: 4, recvLen: ptMaxMessage, window: ptMaxMessage})
}

func newPTSession(o *options, client bool, ctl *endpoint) *ptSession {
	s := &ptSession{o: o, client: client, ctl: ctl}
	s.talk = ptTalk{x: s, t: o.t, qps: o.qps}
	return s
}

// exchange implements exchanger: the client sends first.
func (s *ptSession) exchange(ctx context.Context, mine []byte) (theirs []byte, err error) {
	say := func() error {
		err := s.ctl.post(ctx, &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline, Data: mine})
		if err == nil {
			err = s.ctl.drain(ctx)
		}
		return err
	}
	if s.client {
		if err := say(); err != nil {
			return nil, err
		}
	}
	err = s.ctl.receive(ctx, func(wc *iwarp.WC) bool {
		theirs = append([]byte(nil), s.ctl.recvBuf[:wc.ByteLen]...)
		return true
	})
	if err == nil && !s.client {
		err = say()
	}
	return theirs, err
}

// ptAlign separates what is sent from what the peer writes.
const ptAlign = 64

// ptOffset returns where the peer's window begins in an endpoint's data.
func (o *options) ptOffset() int { return (int(o.size) + ptAlign - 1) &^ (ptAlign - 1) }

// newEnd returns the endpoint of a measured connection. In the window after the data to send, the peer
// writes, counts our credit, or reads. All share a protection domain: perftest connects several at a time,
// and their order in the list of descriptions is not known in advance.
func (s *ptSession) newEnd(dev iwarp.Device) (*endpoint, error) {
	o := s.o
	window := max(int(o.size), ptPage)
	if !s.client {
		window = max(window, ptWindow)
	}
	h := shape{pd: s.ctl.pd, sends: o.depth + ctlRecvs, recvs: 2, recvLen: ptMaxMessage, window: o.ptOffset() + window}
	if o.t.id == testSendBW || o.t.id == testSendLat {
		h.recvs, h.recvLen = max(o.ptRecvs(), ptMaxRecvs)+1, int(o.size)
	}
	return newEndpoint(dev, o, h)
}

// add adds a connected endpoint to the session.
func (s *ptSession) add(e *endpoint) {
	if s.o.t.read {
		fill(e.dataBuf[s.o.ptOffset():][:s.o.size])
	}
	s.ends = append(s.ends, e)
	d := ptDest{OutReads: 1, QPN: e.qp.Num() & 0xffffff, RKey: uint32(e.data.STag()), VAddr: e.data.Base() + uint64(s.o.ptOffset())}
	if s.o.t.read {
		d.OutReads = uint32(max(e.info.ORD, 1))
	}
	s.dests = append(s.dests, d)
}

// setUp prepares everything up to the point where the measurement starts. connect makes the measured connections.
func (s *ptSession) setUp(ctx context.Context, connect func(context.Context) error) error {
	if err := s.talk.hello(ctx); err != nil {
		return err
	}
	if _, err := s.talk.shake(ctx, ptDest{}); err != nil {
		return err
	}
	if err := connect(ctx); err != nil {
		return err
	}
	if _, err := s.talk.shake(ctx, ptDest{}); err != nil {
		return err
	}
	theirs, err := s.talk.setUp(ctx, s.dests)
	if err != nil {
		return err
	}
	for i, e := range s.ends {
		e.peer, e.peerTO = iwarp.STag(theirs[i].RKey), theirs[i].VAddr
	}
	return nil
}

// disconnectTime is how long a peer has to close too.
const disconnectTime = 2 * time.Second

// The side that has sent the last message lets the other one close, for this long: siw flushes its own last
// message if a FIN arrives before that has completed, and the program fails. perftest's two sides both
// close, each after a while.
var ( // shorter in tests
	ptClientStays = 2 * time.Second
	ptServerStays = 4 * time.Second
)

// close ends all connections gracefully: the peer may still wait for our last message.
func (s *ptSession) close() {
	stay := ptServerStays
	if s.client {
		stay = ptClientStays
	}
	select {
	case <-s.ctl.qp.Done():
	case <-time.After(stay):
	}
	ctx, cancel := context.WithTimeout(context.Background(), disconnectTime)
	defer cancel()
	for _, e := range append(s.ends, s.ctl) {
		_ = e.qp.Disconnect(ctx) // it has already ended, or is aborted when the time is up
		e.close()
	}
	s.ends = nil
}

// window returns the memory where the peer of e writes.
func (e *endpoint) window() []byte { return e.dataBuf[e.o.ptOffset():] }

// pushCredited sends like push, but determines the room for Sends from the number that the peer writes into
// the window: how many it has received so far.
func (e *endpoint) pushCredited(ctx context.Context) (int64, error) {
	var n int64
	for more := e.o.pace(ctx); more(n); n++ {
		if err := e.reap(ctx, e.posted >= e.o.depth); err != nil {
			return n, err
		}
		room := func() bool { return uint32(n)+1-peek32(e.window()) < uint32(e.o.ptRecvs()) }
		if err := e.poll(ctx, room); err != nil {
			return n, err
		}
		if err := e.send(ctx, false); err != nil {
			return n, err
		}
	}
	e.sent = n
	return n, e.drain(ctx)
}

// takeCredited receives limit Sends, and writes their number to the peer.
func (e *endpoint) takeCredited(ctx context.Context, limit int64) error {
	n, told, every := int64(0), int64(0), max(1, int64(e.o.ptRecvs()/3))
	for n < limit {
		k, err := e.takeSome(limit - n)
		if err != nil {
			return err
		}
		n += k
		switch {
		case n-told >= every || k == 0 && n > told:
			if err := e.credit(ctx, n); err != nil {
				return err
			}
			told = n
		case k == 0:
			if err := e.rcq.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// takeAllCredited is takeCredited for several connections. perftest counts credits by the order of its
// connections, which is not guaranteed, and hangs if a count is ahead of what it has sent. So each is told
// the smallest number that any has sent.
func (s *ptSession) takeAllCredited(ctx context.Context) error {
	limit, every := int64(s.o.iters), max(1, int64(s.o.ptRecvs()/3))
	counts, told := make([]int64, len(s.ends)), int64(0)
	for quiet := 0; told < limit; quiet++ {
		least := limit
		for i, e := range s.ends {
			n, err := e.takeSome(limit - counts[i])
			if err != nil {
				return err
			}
			if counts[i] += n; n > 0 {
				quiet = 0
			}
			least = min(least, counts[i])
		}
		if least-told >= every || least > told && quiet > 0 || least == limit {
			for _, e := range s.ends {
				if err := e.credit(ctx, least); err != nil {
					return err
				}
			}
			told = least
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case quiet > 1024:
			time.Sleep(50 * time.Microsecond)
		case quiet > 0:
			runtime.Gosched()
		}
	}
	return nil
}

// takeSome takes what has arrived, up to limit Sends: only the end of the connection follows the last one.
func (e *endpoint) takeSome(limit int64) (n int64, err error) {
	if limit == 0 {
		return 0, nil
	}
	for _, wc := range e.wcs[:e.rcq.Poll(e.wcs)] {
		if wc.Status != iwarp.StatusSuccess {
			return n, e.failure("receive", wc.Status)
		}
		n++
		err := e.postRecv()
		if n == limit {
			break
		}
		if err != nil {
			return n, e.failure("post a receive", iwarp.StatusWRFlushErr)
		}
	}
	return n, nil
}

// credit writes to the peer how many Sends have arrived.
func (e *endpoint) credit(ctx context.Context, n int64) error {
	if err := e.reap(ctx, false); err != nil {
		return err
	}
	m := binary.NativeEndian.AppendUint32(nil, uint32(n))
	return e.post(ctx, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: m, STag: e.peer, TO: e.peerTO})
}

// pongWrites does write_lat in perftest's way: the server begins, and each side writes when the last byte
// of its window has changed to the number of the round.
func (e *endpoint) pongWrites(ctx context.Context, client bool) ([]time.Duration, error) {
	last := int(e.o.size) - 1
	var d []time.Duration
	var before time.Time
	await := func(round int) error {
		return e.poll(ctx, func() bool { return peek8(e.window()[last:]) == byte(round) })
	}
	for round := 1; round <= e.o.iters; round++ {
		if client {
			if err := await(round); err != nil {
				return d, err
			}
		}
		if now := time.Now(); before.IsZero() {
			before = now
		} else {
			d = append(d, now.Sub(before))
			before = now
		}
		e.dataBuf[last] = byte(round)
		if err := e.write(ctx, 0); err != nil {
			return d, err
		}
		if err := e.drain(ctx); err != nil {
			return d, err
		}
		if !client {
			if err := await(round); err != nil {
				return d, err
			}
		}
	}
	return d, nil
}

// poll waits for a change in the window: perftest signals by memory what other programs would signal by a message.
func (e *endpoint) poll(ctx context.Context, ok func() bool) error {
	for i := 1; !ok(); i++ {
		if i%64 != 0 {
			runtime.Gosched()
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-e.qp.Done():
			if ok() {
				return nil
			}
			return e.failure("waiting for the peer's Write", iwarp.StatusWRFlushErr)
		default:
		}
		if i >= 4096 {
			time.Sleep(50 * time.Microsecond) // the peer is slow: leave it the core
		}
	}
	return nil
}

// peek8 reads memory that the peer may be writing: an old value will do.
//
//go:norace
//go:noinline
func peek8(b []byte) byte { return b[0] }

// peek32 is peek8 for a number that is written as a whole.
//
//go:norace
//go:noinline
func peek32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

var errPeerLeft = errors.New("the peer has closed the first connection: look at its own messages")

// guarded returns a context that ends with ctx or with the first connection.
func (s *ptSession) guarded(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-s.ctl.qp.Done():
			cancel(errPeerLeft)
		case <-stopped:
		}
	}()
	return ctx, func() {
		close(stopped)
		<-ended
		cancel(nil)
	}
}

// faultPatience is how long explain waits for the end of measured connections.
const faultPatience = time.Second

// explain prefers the reason of a cancelled wait to the cancellation, and to both that a measured
// connection was ended by a fault: after that perftest closes the first one without a message.
func (s *ptSession) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	// If the peer has already closed the first one, it may not have closed the others yet, and one that a
	// fault has ended may only end then.
	patience := time.Duration(0)
	select {
	case <-s.ctl.qp.Done():
		patience = faultPatience
	default:
	}
	late, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for i, e := range s.ends {
		select {
		case <-e.qp.Done():
		case <-late.Done():
		}
		select {
		case <-e.qp.Done():
			if why := e.qp.Err(); why != nil && !errors.Is(err, why) {
				return &exitError{exitIO, fmt.Errorf("measured connection %d of %d: %w", i+1, len(s.ends), why)}
			}
		default:
		}
	}
	if errors.Is(err, context.Canceled) {
		if cause := context.Cause(ctx); errors.Is(cause, errPeerLeft) {
			return &exitError{exitIO, cause}
		}
	}
	return err
}

func (r *ptReport) String() string {
	return fmt.Sprintf("%d messages of %d bytes, %.2f MiB/s on average", r.Iters, r.Size, r.Avg)
}
