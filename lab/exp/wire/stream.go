package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// stream is what moving messages in one direction has cost.
type stream struct {
	cost
	bytes int64
}

// gbps returns the rate in Gb/s.
func (s *stream) gbps() float64 { return float64(s.bytes) * 8 / float64(s.wall.Nanoseconds()) }

// perGB returns CPU seconds for a GB.
func (s *stream) perGB(cpu time.Duration) float64 { return cpu.Seconds() / (float64(s.bytes) / 1e9) }

// inFlight returns how many messages of a size are under way at a time: enough to keep both sides busy, in 8 MiB.
func inFlight(size int) int { return min(depth, max(2, (8<<20)/size)) }

// push moves messages as fast as possible for a time, over a new connection that is warm.
func (s *server) push(ctx context.Context, h hello, w iwarp.Waiting, d time.Duration) (st stream, err error) {
	if h.Op == opTCP {
		return s.pushTCP(ctx, h, d)
	}
	if h.Op == opSend {
		h.Recvs = inFlight(h.Size)
	}
	e, err := s.dial(ctx, &h, w)
	if err != nil {
		return st, err
	}
	defer e.Close()
	p := pusher{e: e, h: &h}
	if err := p.run(ctx, d/4); err != nil { // TCP's windows open, the processes wake up
		return st, err
	}
	p.sent = 0
	st.cost, err = s.clock(func() error { return p.run(ctx, d) })
	st.bytes = p.sent * int64(h.Size)
	if err != nil {
		err = fmt.Errorf("%s of %d bytes: %w", h.Op, h.Size, err)
	}
	return st, err
}

// pusher sends a stream.
type pusher struct {
	e     *end.End
	h     *hello
	sent  int64
	under int // Sends that the receiver has not reported
}

// run sends for a time and returns when all has arrived.
func (p *pusher) run(ctx context.Context, d time.Duration) error {
	most := inFlight(p.h.Size)
	for end := time.Now().Add(d); time.Now().Before(end); {
		var err error
		switch p.h.Op {
		case opWrite:
			err = p.e.Write(ctx, 0, p.h.Size, 0)
		case opRead:
			err = p.e.Read(ctx, 0, p.h.Size)
		default:
			err = p.send(ctx)
		}
		if err != nil {
			return err
		}
		p.sent++
		if err := p.e.Reap(ctx, most-1); err != nil {
			return err
		}
	}
	if p.h.Op == opRead {
		return p.e.Reap(ctx, 0)
	}
	// The last message is answered when all before it has been placed.
	if err := p.e.Send(ctx, []byte{1}); err != nil {
		return err
	}
	for last := false; !last; {
		var err error
		if last, err = p.hear(ctx); err != nil {
			return err
		}
	}
	return p.e.Reap(ctx, 0)
}

// send posts a Send when the peer has a receive for it.
func (p *pusher) send(ctx context.Context) error {
	for p.under >= p.h.Recvs {
		if _, err := p.hear(ctx); err != nil {
			return err
		}
	}
	p.under++
	return p.e.SendPart(ctx, 0, p.h.Size)
}

// hear takes a message of the receiver's: a report of Sends, or the answer to the last message.
func (p *pusher) hear(ctx context.Context) (last bool, err error) {
	m, err := p.e.Receive(ctx)
	if err != nil {
		return false, err
	}
	if len(m) == 1 {
		return true, nil
	}
	p.under -= ackEvery(p.h.Recvs)
	return false, nil
}

// pushTCP does the same over TCP alone.
func (s *server) pushTCP(ctx context.Context, h hello, d time.Duration) (st stream, err error) {
	run := func(d time.Duration) (int64, error) {
		c, err := dialTCP(ctx, s.at.TCP, &h)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return writeFor(c, h.Size, d)
	}
	if _, err := run(d / 4); err != nil {
		return st, err
	}
	st.cost, err = s.clock(func() error {
		st.bytes, err = run(d)
		return err
	})
	return st, err
}

// writeFor writes messages for a time, and returns how many bytes the other side has read.
func writeFor(c net.Conn, size int, d time.Duration) (n int64, err error) {
	buf := end.Filled(size)
	for end := time.Now().Add(d); time.Now().Before(end); n += int64(size) {
		if _, err := c.Write(buf); err != nil {
			return n, err
		}
	}
	t, ok := c.(*net.TCPConn)
	if !ok {
		return n, errors.New("this is no TCP")
	}
	if err := t.CloseWrite(); err != nil {
		return n, err
	}
	_, err = io.ReadFull(c, buf[:1])
	return n, err
}

// ping measures round trips, one after the other, over a connection of their own: in microseconds.
func (s *server) ping(ctx context.Context, h hello, w iwarp.Waiting, d time.Duration) (us []float64, c cost, err error) {
	h.Echo = true
	var once func() error
	if h.Op == opTCP {
		conn, err := dialTCP(ctx, s.at.TCP, &h)
		if err != nil {
			return nil, c, err
		}
		defer conn.Close()
		buf := end.Filled(h.Size)
		once = func() error {
			if _, err := conn.Write(buf); err != nil {
				return err
			}
			_, err := io.ReadFull(conn, buf)
			return err
		}
	} else {
		e, err := s.dial(ctx, &h, w)
		if err != nil {
			return nil, c, err
		}
		defer e.Close()
		once = func() error { return trip(ctx, e, &h) }
	}
	for range 5 {
		if err := once(); err != nil {
			return nil, c, err
		}
	}
	c, err = s.clock(func() error {
		for end := time.Now().Add(d); time.Now().Before(end) || len(us) == 0; {
			start := time.Now()
			if err := once(); err != nil {
				return err
			}
			us = append(us, float64(time.Since(start).Nanoseconds())/1e3)
		}
		return nil
	})
	return us, c, err
}

// trip makes one round trip.
func trip(ctx context.Context, e *end.End, h *hello) error {
	if h.Op == opRead {
		return errors.Join(e.Read(ctx, 0, h.Size), e.Reap(ctx, 0))
	}
	if err := pass(ctx, e, h); err != nil {
		return err
	}
	_, err := e.Receive(ctx)
	return err
}
