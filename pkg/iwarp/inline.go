package iwarp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/rdistcc/rdistcc/internal/spin"
)

// A completion that rx delivers to a blocked Wait costs a switch of goroutines, for which
// the runtime wakes one more thread: a ping-pong of 64 bytes on loopback took 1.48 times
// as long as with raw TCP, and takes 1.16 times without the switch. So rx lends its side:
// after a streak of small messages that each met a waiter, the next Wait on that CQ reads
// the connection itself, in the waiter's goroutine. It may be the CQ of the receives, or that
// of the sends, for a program that waits for one RDMA Read after the other. rx takes its side
// back when the program does something else for lendTime, when it waits on the QP's other CQ,
// and when the stream ends. Only TCP connections are lent: the gain comes from avoiding the
// scheduler and the netpoller.

const (
	// lendTime is how long bytes may stay in the socket because the program that waited has
	// stopped waiting. With a timer of 1 ms nothing was gained, as the runtime's threads wake
	// for it.
	lendTime = 10 * time.Millisecond
	// lendMax is the largest read, in bytes, that counts as a lone message: as much as a poster sends itself. In a
	// stream of data it is better for rx and the program to work side by side.
	lendMax = directMessage
	// lendAfter is the length of the streak that shows that a program waits for each message;
	// lendPenalty is added after a loan whose borrower did not come back.
	lendAfter   = 16
	lendPenalty = 4096
)

// loan is the state of a CQ's borrowed receiving side. It is guarded by cq.mu.
type loan struct {
	from   *qp  // whose receiving side a Wait may drive; nil = none
	driven bool // a Wait is reading
	taken  int  // number of Waits that drove it
	armed  bool // rx's watch is running
	kicked *qp  // whose reads have a past deadline, to wake the reader; nil = none

	done  <-chan struct{} // of the context that will kick
	unset func() bool     // cancels that
}

// lend offers the receiving side to c's waiters and returns when rx owns it again: with the
// reason, if the stream has ended meanwhile.
func (q *qp) lend(c *cq) error {
	x, o := &q.rx, q.otherCQ(c)
	if o != nil && o.wanted.Load() > 0 {
		x.streak = 0
		return nil
	}
	if x.watch == nil {
		x.watch = time.NewTimer(q.dev.lendTime)
		x.back = make(chan error, 1)
	} else {
		x.watch.Reset(q.dev.lendTime)
	}
	c.mu.Lock()
	if !c.lendableLocked(q) {
		c.mu.Unlock()
		x.watch.Stop()
		x.streak = -lendPenalty
		return nil
	}
	q.lent.Store(c)
	c.loan.from, c.loan.armed = q, true
	taken := c.loan.taken
	// A Wait that began this moment has not seen the loan: it looks again.
	if c.spinning > 0 {
		c.news.Add(1)
	}
	if c.waiters > 0 {
		c.signal()
	}
	c.mu.Unlock()
	if o != nil {
		o.send(q)
		defer o.home(q)
	}
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
			c.loan.armed = false // the driving Wait sets the watch when it stops
		case c.loan.taken != taken:
			taken = c.loan.taken
			x.watch.Reset(q.dev.lendTime)
		default:
			c.loan.from = nil
			c.mu.Unlock()
			x.streak = -lendPenalty
			return nil
		}
		c.mu.Unlock()
	}
}

// lendableLocked reports whether a waiter of c may read q's connection: what it waits for must
// come from there.
func (c *cq) lendableLocked(q *qp) bool {
	if c.closed || c.waiting.Mode == WaitEvent {
		return false
	}
	if c == q.recvCQ {
		return c.receivers == 1
	}
	return len(c.users) == 1
}

// otherCQ returns the CQ of q that is not c, or nil if q has only one.
func (q *qp) otherCQ(c *cq) *cq {
	switch {
	case q.sendCQ == q.recvCQ:
		return nil
	case c == q.sendCQ:
		return q.recvCQ
	}
	return q.sendCQ
}

// A completion of the QP's other CQ arrives only while somebody reads the connection. So whoever waits
// there must end the loan, or see to it that the borrower does: q is in its list away, and the borrower
// looks at its count wanted when it stops reading. Each side makes its own mark before it looks at the
// other's.

// send adds q to c.away, and ends the loan if c is waited for already.
func (c *cq) send(q *qp) {
	c.mu.Lock()
	c.away = append(c.away, q)
	c.mu.Unlock()
	if c.wanted.Load() > 0 {
		q.recall()
	}
}

// home removes q from c.away.
func (c *cq) home(q *qp) {
	c.mu.Lock()
	c.away = slices.DeleteFunc(c.away, func(x *qp) bool { return x == q })
	c.mu.Unlock()
}

// callHomeLocked ends the loans to other queues. It releases c.mu meanwhile: the lock of another queue is
// never taken under it.
func (c *cq) callHomeLocked() {
	away := slices.Clone(c.away)
	c.mu.Unlock()
	for _, q := range away {
		q.recall()
	}
	c.mu.Lock()
}

// recall ends a loan that no Wait is using at the moment: rx must see what happens on the
// connection, or that it was closed.
func (q *qp) recall() {
	if c := q.lent.Load(); c != nil {
		c.mu.Lock()
		if c.loan.from == q {
			c.returnLocked()
		}
		c.mu.Unlock()
	}
}

// returnLocked ends the loan to c, unless a Wait is using it.
func (c *cq) returnLocked() {
	if q := c.loan.from; q != nil && !c.loan.driven {
		c.loan.from = nil
		q.rx.back <- nil
	}
}

// waitInlineLocked reads the lent connection until there is a completion, ctx ends, or the
// loan is over. It does not block while s spins. c.mu is held on entry and return.
func (c *cq) waitInlineLocked(ctx context.Context, s *spin.Wait) {
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
	s.Begin(c.waiting.SpinFor(), true)
	var err error
	for err == nil && c.n == 0 && ctx.Err() == nil {
		c.mu.Unlock()
		if s.Spins() {
			got := false
			for err == nil && !got && s.More(ctx) {
				got, err = q.receiveNow()
			}
			if !got {
				s.End()
			}
		} else {
			err = q.receiveOnce()
		}
		c.mu.Lock()
	}
	s.End()
	c.loan.driven = false
	if err != nil {
		c.loan.from = nil
		q.rx.back <- err // rx takes the QP down
		return
	}
	if o := q.otherCQ(c); o != nil && o.wanted.Load() > 0 {
		c.returnLocked()
		return
	}
	if !c.loan.armed {
		c.loan.armed = true
		q.rx.watch.Reset(lendTime)
	}
}

// kick wakes a Wait that reads, so that it sees some other change.
func (c *cq) kick() {
	c.mu.Lock()
	c.kickLocked()
	c.mu.Unlock()
}

func (c *cq) kickLocked() {
	if c.loan.driven && c.loan.kicked != c.loan.from {
		c.loan.kicked = c.loan.from
		_ = c.loan.from.conn.SetReadDeadline(past) // a closed connection has woken it already
	}
}

// kicked reports whether a read's time-out was a kick, and if so resets the deadline.
func (q *qp) kicked() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := q.lent.Load()
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.loan.kicked != q || q.sends == sendLast {
		return false
	}
	c.loan.kicked = nil
	var d time.Time
	if q.sends == sendRest {
		d = time.Now().Add(q.dev.cfg.StallTimeout)
	}
	_ = q.conn.SetReadDeadline(d)
	return true
}

// receiveOnce reads the connection once and feeds the engine. It returns the reason if the stream
// has ended: io.EOF only where a stream may end.
func (q *qp) receiveOnce() error {
	n, err := q.conn.Read(q.rx.r.Want())
	return q.received(n, err)
}

// receiveNow is receiveOnce for a TCP connection, but it does not block. It reports whether there was
// anything.
func (q *qp) receiveNow() (got bool, err error) {
	x := &q.rx
	err = q.tx.raw.Read(x.read)
	if err == nil {
		switch {
		case errors.Is(x.readErr, syscall.EAGAIN) || errors.Is(x.readErr, syscall.EINTR):
			return false, nil
		case x.readErr != nil:
			err = os.NewSyscallError("read", x.readErr)
		case x.readN == 0:
			err = io.EOF
		}
	} else {
		x.readN = 0
	}
	return true, q.received(x.readN, err)
}

// initRead makes the function that receiveNow calls.
func (x *rxState) initRead() {
	x.read = func(fd uintptr) bool {
		n, err := syscall.Read(int(fd), x.r.Want())
		x.readN, x.readErr = max(n, 0), err
		return true
	}
}

// received feeds the engine with n bytes, behind which reading failed with err if that is not nil.
func (q *qp) received(n int, err error) error {
	x := &q.rx
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
