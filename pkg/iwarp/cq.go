package iwarp

import (
	"context"
	"fmt"
	"sync"
)

// cq is a completion queue of the software device: a ring that cannot overflow, because
// every place in a QP's queues has one here (RFC 5042 §6.4.3.2), unless
// QPInitAttr.Overcommit was set.
type cq struct {
	dev    *soft
	done   chan struct{} // closed by Close
	failed chan struct{} // closed when the queue has overflowed
	wake   chan struct{} // cap 1: one token wakes one waiter, which passes it on
	bell   chan struct{} // cap 1: what Events returns
	depth  int
	ending sync.WaitGroup

	mu        sync.Mutex // guards what follows
	ring      []WC       // depth entries; that of a queue that is not shared is allocated at the first completion
	head, n   int
	waiters   int
	reserved  int         // places promised to QPs
	users     map[*qp]int // how often each QP uses the queue, for sends and for receives
	closed    bool
	broken    bool // overflowed: accepts nothing more
	armed     armed
	receivers int // QPs whose receives complete here
	loan      loan
}

// armed says which completions put a token into Events.
type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedAny
)

// sharedDepth is the depth from which a queue is assumed to be shared by many QPs. Such a queue
// is made once and allocated at once, so that no connection's memory grows by it.
const sharedDepth = 4096

func newCQ(d *soft, depth int) *cq {
	c := &cq{
		dev: d, depth: depth, users: make(map[*qp]int),
		done: make(chan struct{}), failed: make(chan struct{}),
		wake: make(chan struct{}, 1), bell: make(chan struct{}, 1),
	}
	if depth >= sharedDepth {
		c.ring = make([]WC, depth)
	}
	return c
}

// reserve promises n places to q; unreserve returns them. receives says that they are for q's
// receives.
func (c *cq) reserve(q *qp, n int, receives, overcommit bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.broken:
		return c.overflow()
	case !overcommit && c.reserved+n > c.depth:
		return fmt.Errorf("%w: CQ of depth %d cannot hold the %d completions that its QPs may have: make it deeper",
			ErrLimit, c.depth, c.reserved+n)
	}
	c.reserved += n
	c.users[q]++
	if receives {
		c.receivers++
	}
	return nil
}

func (c *cq) unreserve(q *qp, n int, receives bool) {
	c.mu.Lock()
	c.reserved -= n
	if c.users[q]--; c.users[q] == 0 {
		delete(c.users, q)
	}
	if receives {
		c.receivers--
	}
	c.mu.Unlock()
}

// overflow returns the error with which the QPs of an overflowed queue end.
func (c *cq) overflow() error {
	return fmt.Errorf("%w: a CQ of depth %d has overflowed: poll it sooner, or make it deeper", ErrLimit, c.depth)
}

// push adds a completion. It never blocks. by is the QP whose receiving side pushes, or nil.
// It reports whether a Wait was blocked. The caller holds the QP's lock.
func (c *cq) push(wc *WC, by *qp) bool {
	c.mu.Lock()
	if c.broken || c.n == c.depth {
		c.dropLocked(wc)
		c.mu.Unlock()
		return false
	}
	if c.ring == nil {
		c.ring = make([]WC, c.depth)
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
	if c.armed == armedAny || c.armed == armedSolicited && (wc.Solicited || wc.Status != StatusSuccess) {
		c.armed = armedNot
		ring(c.bell)
	}
	c.mu.Unlock()
	if waiting {
		c.signal()
	}
	return waiting
}

// ring puts a token into bell, unless there is one already.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// dropLocked drops wc for want of room. Only QPs that were allowed to overcommit can cause
// that, and "an overflow must not harm" the others (RFC 5040 §8.1.1, item 10): those that use
// the queue end.
func (c *cq) dropLocked(wc *WC) {
	if q, ok := wc.QP.(*qp); ok {
		q.polled(wc.Op)
	}
	if c.broken {
		return
	}
	c.broken = true
	close(c.failed)
	if c.loan.driven {
		c.kickLocked()
	}
	ring(c.bell)
	users := make([]*qp, 0, len(c.users))
	for q := range c.users {
		users = append(users, q)
	}
	c.dev.emit(AsyncEvent{Kind: EventCQErr, CQ: c, Err: c.overflow()})
	c.ending.Go(func() { // not here: the lock of one of them is held
		for _, q := range users {
			q.fail(c.overflow())
		}
	})
}

func (c *cq) signal() { ring(c.wake) }

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

// Wait does not spin: experiment E4 (docs/experiments.md) says what that would gain and cost.
func (c *cq) Wait(ctx context.Context) error {
	c.mu.Lock()
	for c.n == 0 && !c.closed && !c.broken {
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
		case <-c.failed:
		case <-ctx.Done():
			err = ctx.Err()
		}
		c.mu.Lock()
		c.waiters--
		if err != nil {
			// The token may have been meant for this waiter: let another one look.
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
	if c.n == 0 {
		return c.overflow()
	}
	if c.n > 1 && c.waiters > 0 {
		c.signal()
	}
	return nil
}

// remove drops q's completions when q is destroyed, and returns how many were receives.
func (c *cq) remove(q *qp) (receives int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := 0
	for i := range c.n {
		e := c.ring[(c.head+i)%len(c.ring)]
		if e.QP == QP(q) {
			if isReceive(e.Op) {
				receives++
			}
			continue
		}
		c.ring[(c.head+kept)%len(c.ring)] = e
		kept++
	}
	for i := kept; i < c.n; i++ {
		c.ring[(c.head+i)%len(c.ring)] = WC{}
	}
	c.n = kept
	return receives
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return ErrClosed
	case c.broken:
		return c.overflow()
	}
	// The program asks for a token, so it no longer waits: take back what was lent to it.
	if q := c.loan.from; q != nil && !c.loan.driven {
		c.loan.from = nil
		q.rx.back <- nil
	}
	if !solicitedOnly {
		c.armed = armedAny
	} else if c.armed == armedNot {
		c.armed = armedSolicited
	}
	return nil
}

func (c *cq) Events() <-chan struct{} { return c.bell }

// Close fails while QPs use the queue.
func (c *cq) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	if n := len(c.users); n > 0 {
		c.mu.Unlock()
		return fmt.Errorf("%w: CQ is still used by %d QPs: destroy them first", ErrInvalid, n)
	}
	c.closed = true
	if c.loan.unset != nil {
		c.loan.unset()
	}
	close(c.done)
	c.mu.Unlock()
	c.ending.Wait()
	c.dev.mu.Lock()
	delete(c.dev.cqs, c)
	c.dev.mu.Unlock()
	return nil
}
