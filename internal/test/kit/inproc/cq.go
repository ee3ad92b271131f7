package inproc

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/internal/spin"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// overflow returns the error with which the QPs of an overflowed queue end.
func (c *cq) overflow() error {
	return fmt.Errorf("%w: a CQ of depth %d has overflowed: poll it sooner, or make it deeper", iwarp.ErrLimit, c.depth)
}

// armed is what ReqNotify asked a CQ to report.
type armed uint8

const (
	armedNot armed = iota
	armedSolicited
	armedAll
)

// entry is a completion, together with the place that it holds.
type entry struct {
	wc   iwarp.WC
	q    *qp
	recv bool // a place of the RQ or SRQ
}

// cq is a completion queue.
type cq struct {
	dev    *device
	depth  int
	events chan struct{} // cap 1

	queue    []entry       // oldest first
	arrived  chan struct{} // made by a waiter, closed by the next completion
	armed    armed
	reserved int // places promised to QPs
	users    int // QPs, each counted once for sends and once for receives
	broken   bool
	closed   bool
	waiting  iwarp.Waiting

	news atomic.Uint32 // counts what wakes waiters, for those that spin
}

// reserve promises n places to a QP.
func (c *cq) reserve(n int, overcommit bool) error {
	switch {
	case c.closed:
		return iwarp.ErrClosed
	case c.broken:
		return c.overflow()
	}
	if c.reserved+n > c.depth && !overcommit {
		return fmt.Errorf("%w: CQ of depth %d cannot hold the %d completions that its QPs may have: make it deeper",
			iwarp.ErrLimit, c.depth, c.reserved+n)
	}
	c.reserved += n
	c.users++
	return nil
}

func (c *cq) unreserve(n int) {
	c.reserved -= n
	c.users--
}

// push adds a completion. If there is no room, which only Overcommit allows, the completion is lost,
// and every QP that uses the queue ends.
func (c *cq) push(e entry) {
	if len(c.queue) == c.depth && !c.broken {
		c.broken = true
		c.dev.n.broken = append(c.dev.n.broken, c)
		c.wakeWaiters()
		c.token()
	}
	if c.broken {
		e.free()
		return
	}
	c.queue = append(c.queue, e)
	c.wakeWaiters()
	// "Failed completions always count as solicited."
	if c.armed == armedAll || c.armed == armedSolicited && (e.wc.Solicited || e.wc.Status != iwarp.StatusSuccess) {
		c.armed = armedNot
		c.token()
	}
}

func (c *cq) token() {
	select {
	case c.events <- struct{}{}:
	default: // one is there already
	}
}

func (c *cq) wakeWaiters() {
	c.news.Add(1)
	if c.arrived != nil {
		close(c.arrived)
		c.arrived = nil
	}
}

// free releases the place of e.
func (e *entry) free() {
	switch {
	case !e.recv:
		e.q.sqHeld--
	default:
		e.q.rqHeld--
		if e.q.srq != nil {
			e.q.srq.held--
		}
	}
}

// endUsers ends every QP that uses c, which has overflowed.
func (c *cq) endUsers() {
	c.dev.tell(iwarp.AsyncEvent{Kind: iwarp.EventCQErr, CQ: c, Err: c.overflow()})
	for q := range c.dev.qps {
		if q.sendCQ == c || q.recvCQ == c {
			q.abort(c.overflow())
		}
	}
}

func (c *cq) Poll(dst []iwarp.WC) int {
	c.dev.n.lock()
	defer c.dev.n.unlock()
	n := min(len(dst), len(c.queue))
	for i := range n {
		dst[i] = c.queue[i].wc
		c.queue[i].free()
	}
	c.queue = c.queue[n:]
	return n
}

func (c *cq) SetWaiting(w iwarp.Waiting) error {
	if err := w.Valid(); err != nil {
		return err
	}
	c.dev.n.lock()
	defer c.dev.n.unlock()
	if c.closed {
		return iwarp.ErrClosed
	}
	c.waiting = w
	return nil
}

// Wait releases the lock while it waits.
func (c *cq) Wait(ctx context.Context) error {
	var s spin.Wait
	c.dev.n.lock()
	for len(c.queue) == 0 && !c.closed && !c.broken {
		if err := c.await(ctx, &s); err != nil {
			return err
		}
		c.dev.n.lock()
	}
	defer c.dev.n.unlock()
	switch {
	case c.closed:
		return iwarp.ErrClosed
	case len(c.queue) == 0:
		return c.overflow()
	}
	return nil
}

// await waits until something may have changed for a waiter, by spinning or by blocking. It releases the
// lock.
func (c *cq) await(ctx context.Context, s *spin.Wait) error {
	if s.Begin(c.waiting.SpinFor(), false); s.Spins() {
		seen := c.news.Load()
		c.dev.n.unlock()
		for c.news.Load() == seen && s.More(ctx) {
		}
		s.End()
		return ctx.Err()
	}
	if c.arrived == nil {
		c.arrived = make(chan struct{})
	}
	arrived := c.arrived
	c.dev.n.unlock()
	select {
	case <-arrived:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.dev.n.lock()
	defer c.dev.n.unlock()
	switch {
	case c.closed:
		return iwarp.ErrClosed
	case c.broken:
		return c.overflow()
	case solicitedOnly && !c.dev.attr.SolicitedOnly:
		return iwarp.ErrUnsupported
	case !solicitedOnly:
		c.armed = armedAll
	case c.armed == armedNot: // the broader request stays
		c.armed = armedSolicited
	}
	return nil
}

func (c *cq) Events() <-chan struct{} { return c.events }

// forget drops the completions of q.
func (c *cq) forget(q *qp) {
	var kept []entry
	for _, e := range c.queue {
		if e.q == q {
			e.free()
		} else {
			kept = append(kept, e)
		}
	}
	c.queue = kept
}

func (c *cq) Close() error {
	c.dev.n.lock()
	defer c.dev.n.unlock()
	if c.users > 0 {
		return fmt.Errorf("%w: CQ is still used by QPs: destroy them first", iwarp.ErrInvalid)
	}
	c.close()
	return nil
}

func (c *cq) close() {
	c.closed = true
	c.wakeWaiters()
	delete(c.dev.cqs, c)
}
