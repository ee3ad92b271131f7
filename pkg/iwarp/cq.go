package iwarp

import (
	"context"
	"fmt"
	"sync"
)

// cq is a completion queue of the software device: a ring that cannot overflow,
// because every place in a QP's queues has one here (RFC 5042 §6.4.3.2).
type cq struct {
	dev  *soft
	done chan struct{} // closed by Close
	wake chan struct{} // cap 1: one token wakes one waiter, who passes it on
	bell chan struct{} // cap 1: what Events returns

	mu        sync.Mutex // guards what follows
	ring      []WC
	head, n   int
	waiters   int
	reserved  int // places promised to QPs
	closed    bool
	receivers int // QPs whose receives complete here
	loan      loan
}

func newCQ(d *soft, depth int) *cq {
	return &cq{dev: d, done: make(chan struct{}), wake: make(chan struct{}, 1), bell: make(chan struct{}, 1), ring: make([]WC, depth)}
}

// reserve promises n places to a QP; unreserve gives them back. receives says
// that they are for its receives.
func (c *cq) reserve(n int, receives bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if c.reserved+n > len(c.ring) {
		return fmt.Errorf("%w: CQ of depth %d cannot hold the %d completions that its QPs may have: make it deeper",
			ErrLimit, len(c.ring), c.reserved+n)
	}
	c.reserved += n
	if receives {
		c.receivers++
	}
	return nil
}

func (c *cq) unreserve(n int, receives bool) {
	c.mu.Lock()
	c.reserved -= n
	if receives {
		c.receivers--
	}
	c.mu.Unlock()
}

// push adds a completion. It never blocks and always has room. by is the QP whose
// receiving side pushes, or nil. It returns whether somebody was waiting.
func (c *cq) push(wc *WC, by *qp) bool {
	c.mu.Lock()
	if c.n == len(c.ring) {
		c.mu.Unlock()
		panic("iwarp: more completions than places were reserved")
	}
	i := c.head + c.n
	if i >= len(c.ring) {
		i -= len(c.ring)
	}
	c.ring[i] = *wc
	c.n++
	waiting := c.waiters > 0
	if c.loan.driven && c.loan.from != by {
		c.kickLocked()
	}
	c.mu.Unlock()
	if waiting {
		c.signal()
	}
	return waiting
}

func (c *cq) signal() {
	select {
	case c.wake <- struct{}{}:
	default: // a token is there already
	}
}

func (c *cq) Poll(dst []WC) int {
	c.mu.Lock()
	n := min(len(dst), c.n)
	for i := range dst[:n] {
		e := &c.ring[c.head]
		dst[i] = *e
		e.QP = nil
		if c.head++; c.head == len(c.ring) {
			c.head = 0
		}
	}
	c.n -= n
	c.mu.Unlock()
	for i := range dst[:n] {
		dst[i].QP.(*qp).polled(dst[i].Op)
	}
	return n
}

func (c *cq) Wait(ctx context.Context) error {
	c.mu.Lock()
	for c.n == 0 && !c.closed {
		if c.loan.from != nil && !c.loan.driven {
			c.waitInlineLocked(ctx)
			if err := ctx.Err(); err != nil && c.n == 0 {
				c.mu.Unlock()
				return err
			}
			continue
		}
		c.waiters++
		c.mu.Unlock()
		var err error
		select {
		case <-c.wake:
		case <-c.done:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		c.waiters--
		if err != nil {
			// The token may have been meant for us: let another waiter look.
			if c.n > 0 && c.waiters > 0 {
				c.signal()
			}
			c.mu.Unlock()
			return err
		}
	}
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	if c.n > 1 && c.waiters > 0 {
		c.signal()
	}
	return nil
}

// remove drops q's completions: q is being destroyed.
func (c *cq) remove(q *qp) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := 0
	for i := range c.n {
		e := c.ring[(c.head+i)%len(c.ring)]
		if e.QP == QP(q) {
			continue
		}
		c.ring[(c.head+kept)%len(c.ring)] = e
		kept++
	}
	for i := kept; i < c.n; i++ {
		c.ring[(c.head+i)%len(c.ring)] = WC{}
	}
	c.n = kept
}

// Close refuses while QPs use the queue.
func (c *cq) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	if c.reserved > 0 {
		c.mu.Unlock()
		return fmt.Errorf("%w: CQ is still used by QPs: destroy them first", ErrInvalid)
	}
	c.closed = true
	if c.loan.unset != nil {
		c.loan.unset()
	}
	close(c.done)
	c.mu.Unlock()
	c.dev.mu.Lock()
	delete(c.dev.cqs, c)
	c.dev.mu.Unlock()
	return nil
}

func (c *cq) ReqNotify(bool) error    { return ErrUnsupported }
func (c *cq) Events() <-chan struct{} { return c.bell }
