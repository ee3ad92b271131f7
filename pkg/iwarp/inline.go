package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// A completion that rx delivers to a blocked Wait costs a change of goroutine, and
// the runtime wakes one more thread for it: a ping-pong of 64 bytes on loopback
// took 1.48 times that of raw TCP, and takes 1.16 times without. So rx lends its
// side: after a streak of small messages that each met a waiter, the next Wait on
// that CQ reads the connection itself, in the waiter's goroutine. rx takes its
// side back when the program does something else for lendTime, and when the stream
// ends. Only TCP connections are lent: the gain is the scheduler's and netpoll's.

const (
	// lendTime is how long bytes may lie in the socket because the program that
	// waited does not wait any more. With a timer of 1 ms nothing was gained: the
	// runtime's threads wake for it.
	lendTime = 10 * time.Millisecond
	// lendMax is the largest read, in bytes, that is taken for a lone message. In
	// a stream of data rx and the program had better work side by side.
	lendMax = 4 << 10
	// lendAfter is the streak of messages that shows a program which waits for
	// each; lendPenalty is added after one that did not come back.
	lendAfter   = 16
	lendPenalty = 4096
)

// loan is the state of a CQ's borrowed receiving side, guarded by cq.mu.
type loan struct {
	from   *qp  // whose receiving side may be driven by Wait; nil = nobody's
	driven bool // a Wait is reading
	taken  int  // number of Waits that did
	armed  bool // rx's watch is running
	kicked bool // a past deadline was set to wake the reader

	done  <-chan struct{} // of the context that will kick
	unset func() bool     // takes that back
}

// lend offers the receiving side to q.recvCQ's waiters and returns when it is
// rx's again: with the reason, if the stream has ended meanwhile.
func (q *qp) lend() error {
	c, x := q.recvCQ, &q.rx
	if x.watch == nil {
		x.watch = time.NewTimer(lendTime)
		x.back = make(chan error, 1)
	} else {
		x.watch.Reset(lendTime)
	}
	c.mu.Lock()
	if c.receivers != 1 || c.closed {
		c.mu.Unlock()
		x.watch.Stop()
		x.streak = -lendPenalty
		return nil
	}
	c.loan.from, c.loan.armed = q, true
	taken := c.loan.taken
	c.mu.Unlock()
	for {
		select {
		case err := <-x.back:
			x.watch.Stop()
			return err
		case <-x.watch.C:
		}
		c.mu.Lock()
		switch {
		case c.loan.from != q: // given back this moment
		case c.loan.driven:
			c.loan.armed = false // who drives sets the watch when it stops
		case c.loan.taken != taken:
			taken = c.loan.taken
			x.watch.Reset(lendTime)
		default:
			c.loan.from = nil
			c.mu.Unlock()
			x.streak = -lendPenalty
			return nil
		}
		c.mu.Unlock()
	}
}

// recall ends a loan that nobody uses at the moment: rx must see that the
// connection was closed.
func (q *qp) recall() {
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loan.from == q && !c.loan.driven {
		c.loan.from = nil
		q.rx.back <- nil
	}
}

// waitInlineLocked reads the lent connection until there is a completion, ctx
// ends, or the loan is over. c.mu is held on entry and return.
func (c *cq) waitInlineLocked(ctx context.Context) {
	q := c.loan.from
	c.loan.driven = true
	c.loan.taken++
	if done := ctx.Done(); done != c.loan.done {
		if c.loan.unset != nil {
			c.loan.unset()
		}
		c.loan.done, c.loan.unset = done, nil
		if done != nil {
			c.loan.unset = context.AfterFunc(ctx, c.kick)
		}
	}
	var err error
	for err == nil && c.n == 0 && ctx.Err() == nil {
		c.mu.Unlock()
		err = q.receiveOnce()
		c.mu.Lock()
	}
	c.loan.driven = false
	if err != nil {
		c.loan.from = nil
		q.rx.back <- err // rx takes the QP down
		return
	}
	if !c.loan.armed {
		c.loan.armed = true
		q.rx.watch.Reset(lendTime)
	}
}

// kick wakes a Wait that reads: there is something else to see.
func (c *cq) kick() {
	c.mu.Lock()
	c.kickLocked()
	c.mu.Unlock()
}

func (c *cq) kickLocked() {
	if c.loan.driven && !c.loan.kicked {
		c.loan.kicked = true
		_ = c.loan.from.conn.SetReadDeadline(past) // a closed connection has woken it already
	}
}

// kicked says whether a read's time-out was a kick, and then undoes that.
func (q *qp) kicked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.recvCQ
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loan.kicked || q.sends == sendLast {
		return false
	}
	c.loan.kicked = false
	var d time.Time
	if q.sends == sendRest {
		d = time.Now().Add(q.dev.cfg.StallTimeout)
	}
	_ = q.conn.SetReadDeadline(d)
	return true
}

// receiveOnce reads the connection once and feeds the engine. It returns why the
// stream has ended: io.EOF only where a stream may end.
func (q *qp) receiveOnce() error {
	x := &q.rx
	n, err := q.conn.Read(x.r.Want())
	x.small = n < lendMax
	if n > 0 {
		if verr := q.filled(n); verr != nil {
			return verr
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, io.EOF) && x.r.Boundary():
		return io.EOF
	case errors.Is(err, io.EOF):
		return fmt.Errorf("iwarp: %s closed the connection inside a message", q.conn.RemoteAddr())
	case errors.Is(err, os.ErrDeadlineExceeded) && (q.kicked() || q.lookAgain()):
		return nil
	}
	return fmt.Errorf("iwarp: receive from %s: %w", q.conn.RemoteAddr(), err)
}
