//go:build ibverbs && cgo && linux

package ibverbs

// #include "shim.h"
import "C"

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/rdistcc/rdistcc/internal/spin"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// cq is a completion queue: the device's, and a ring of what was taken from it. Reaping moves the
// device's completions to the ring, in batches. It happens at every Poll, when the device notifies,
// and whenever a QP needs to know its progress.
type cq struct {
	dev    *device
	handle uintptr
	depth  int
	done   chan struct{} // closed by Close
	wake   chan struct{} // cap 1: one token wakes one waiter, which passes it on
	bell   chan struct{} // cap 1: what Events returns

	mu       sync.Mutex // guards what follows
	c        *C.struct_ibv_cq
	batch    *C.struct_shim_wc // SHIM_BATCH of them
	ring     []iwarp.WC        // head first
	head     int
	qps      map[uint32]*qp // by handle
	reserved int            // places promised to QPs
	waiters  int            // waiters for the next completion
	armed    armed          // by ReqNotify
	inEvent  bool           // reaping because the device has notified
	closed   bool
	full     bool // it has overflowed
	waiting  iwarp.Waiting
}

// armed says which completion rings the bell.
type armed uint8

const (
	notArmed armed = iota
	armedSolicited
	armedAny
)

func (d *device) CreateCQ(depth int) (iwarp.CQ, error) {
	if depth < 1 || depth > d.attr.MaxCQE {
		return nil, fmt.Errorf("%w: CQ depth %d: 1 to %d", iwarp.ErrInvalid, depth, d.attr.MaxCQE)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, iwarp.ErrClosed
	}
	c := &cq{
		dev: d, depth: depth, done: make(chan struct{}), wake: make(chan struct{}, 1), bell: make(chan struct{}, 1),
		ring: make([]iwarp.WC, 0, depth), qps: make(map[uint32]*qp),
	}
	c.handle = newHandle(c)
	var err error
	if c.c, err = C.shim_create_cq(d.ctx, C.int(depth), C.uintptr_t(c.handle), d.comp, 0); c.c == nil {
		dropHandle(c.handle)
		return nil, fmt.Errorf("ibverbs: completion queue of %d on %s: %w", depth, d.name, why(err))
	}
	c.batch = (*C.struct_shim_wc)(C.calloc(C.SHIM_BATCH, C.sizeof_struct_shim_wc))
	d.cqs[c] = struct{}{}
	return c, nil
}

// reserve promises n places to q; unreserve gives them back.
func (c *cq) reserve(q *qp, n int, overcommit bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return iwarp.ErrClosed
	}
	if c.reserved+n > c.depth && !overcommit {
		return fmt.Errorf("%w: CQ of depth %d cannot hold the %d completions that its QPs may have: make it deeper",
			iwarp.ErrLimit, c.depth, c.reserved+n)
	}
	c.reserved += n
	c.qps[uint32(q.handle)] = q
	return nil
}

// unreserve also drops q's completions.
func (c *cq) unreserve(q *qp, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reapLocked()
	c.reserved -= n
	delete(c.qps, uint32(q.handle))
	c.ring = slices.DeleteFunc(c.ring[c.head:], func(wc iwarp.WC) bool { return wc.QP == iwarp.QP(q) })
	c.head = 0
}

func (c *cq) lenLocked() int { return len(c.ring) - c.head }

// reapLocked takes all that the device has.
func (c *cq) reapLocked() {
	if c.c == nil {
		return
	}
	batch := unsafe.Slice(c.batch, C.SHIM_BATCH)
	for {
		n := int(C.shim_poll(c.c, c.batch))
		for i := range max(n, 0) {
			w := &batch[i]
			q := c.qps[uint32(w.id>>32)]
			if q == nil {
				continue // its QP is destroyed
			}
			q.completedLocked(c, w)
		}
		if n < C.SHIM_BATCH {
			return
		}
	}
}

// pushLocked adds a completion. It does not show whether the completion was solicited: a bell for
// solicited ones rings when the device notifies.
func (c *cq) pushLocked(wc iwarp.WC) {
	if c.head > 0 && len(c.ring) == cap(c.ring) {
		c.ring = c.ring[:copy(c.ring, c.ring[c.head:])]
		c.head = 0
	}
	c.ring = append(c.ring, wc)
	if c.lenLocked() > c.depth && !c.full {
		c.full = true
		go c.overflowed()
	}
	if c.armed == armedAny || c.armed == armedSolicited && (c.inEvent || wc.Status != iwarp.StatusSuccess) {
		c.armed = notArmed
		token(c.bell)
	}
	if c.waiters > 0 {
		token(c.wake)
	}
}

func token(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one is there already
	}
}

// armLocked makes the device notify of the next completion, if there is a waiter. What it has by
// then is reaped.
func (c *cq) armLocked() {
	if c.c == nil {
		return
	}
	switch {
	case c.waiters > 0 || c.armed == armedAny:
		C.shim_arm(c.c, 0)
	case c.armed == armedSolicited:
		C.shim_arm(c.c, 1)
	default:
		return
	}
	c.reapLocked()
}

// drainCompletions handles the notifications of all CQs.
func (d *device) drainCompletions() {
	for {
		h := C.shim_cq_event(d.comp)
		if h == 0 {
			return
		}
		if c := byHandle[*cq](uintptr(h)); c != nil {
			c.mu.Lock()
			c.inEvent = true
			c.reapLocked()
			c.inEvent = false
			c.armLocked()
			c.mu.Unlock()
		}
	}
}

// watch keeps the queue reaped until unwatch, while a caller waits for a QP's progress.
func (c *cq) watch() {
	c.mu.Lock()
	c.waiters++
	c.armLocked()
	c.mu.Unlock()
}

func (c *cq) unwatch() {
	c.mu.Lock()
	c.waiters--
	if c.lenLocked() > 0 && c.waiters > 0 {
		token(c.wake)
	}
	c.mu.Unlock()
}

func (c *cq) reap() {
	c.mu.Lock()
	c.reapLocked()
	c.mu.Unlock()
}

func (c *cq) Poll(dst []iwarp.WC) int {
	c.mu.Lock()
	if c.lenLocked() < len(dst) {
		c.reapLocked()
	}
	n := copy(dst, c.ring[c.head:])
	clear(c.ring[c.head : c.head+n])
	if c.head += n; c.head == len(c.ring) {
		c.ring, c.head = c.ring[:0], 0
	}
	c.mu.Unlock()
	for i := range dst[:n] {
		dst[i].QP.(*qp).polled(dst[i].Op)
	}
	return n
}

func (c *cq) SetWaiting(w iwarp.Waiting) error {
	if err := w.Valid(); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return iwarp.ErrClosed
	}
	c.waiting = w
	return nil
}

// spinLocked takes what the device has until there is a completion, the queue is closed, or it is time to
// block. It needs no notification.
func (c *cq) spinLocked(ctx context.Context) {
	var s spin.Wait
	s.Begin(c.waiting.SpinFor(), true)
	for c.lenLocked() == 0 && !c.closed && s.More(ctx) {
		c.mu.Unlock()
		c.mu.Lock()
		c.reapLocked()
	}
	s.End()
}

func (c *cq) Wait(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lenLocked() == 0 {
		c.reapLocked()
	}
	c.spinLocked(ctx)
	for c.lenLocked() == 0 && !c.closed {
		c.waiters++
		c.armLocked()
		if c.lenLocked() == 0 {
			c.mu.Unlock()
			select {
			case <-c.wake:
			case <-c.done:
			case <-ctx.Done():
			}
			c.mu.Lock()
		}
		c.waiters--
		if err := ctx.Err(); err != nil && c.lenLocked() == 0 {
			return err
		}
	}
	if c.closed {
		return iwarp.ErrClosed
	}
	if c.waiters > 0 {
		token(c.wake) // it may concern them too
	}
	return nil
}

func (c *cq) ReqNotify(solicitedOnly bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return iwarp.ErrClosed
	}
	c.reapLocked() // what is there already makes no token
	switch {
	case !solicitedOnly, !c.dev.attr.SolicitedOnly:
		c.armed = armedAny
	case c.armed == notArmed:
		c.armed = armedSolicited
	}
	c.armLocked()
	return nil
}

func (c *cq) Events() <-chan struct{} { return c.bell }

// overflowed ends the QPs of a queue that has lost completions, or would have.
func (c *cq) overflowed() {
	c.mu.Lock()
	qps := make([]*qp, 0, len(c.qps))
	for _, q := range c.qps {
		qps = append(qps, q)
	}
	c.mu.Unlock()
	err := fmt.Errorf("ibverbs: completion queue of %d overflowed", c.depth)
	c.dev.emit(iwarp.AsyncEvent{Kind: iwarp.EventCQErr, CQ: c, Err: err})
	for _, q := range qps {
		q.end(iwarp.EventQPFatal, err)
	}
}

// Close fails while QPs use the queue.
func (c *cq) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if len(c.qps) > 0 {
		return fmt.Errorf("%w: %d QPs use the completion queue", iwarp.ErrInvalid, len(c.qps))
	}
	if rc := C.ibv_destroy_cq(c.c); rc != 0 {
		return sysErr("ibv_destroy_cq", rc)
	}
	C.free(unsafe.Pointer(c.batch))
	c.closed, c.c = true, nil
	close(c.done)
	dropHandle(c.handle)
	c.dev.mu.Lock()
	delete(c.dev.cqs, c)
	c.dev.mu.Unlock()
	return nil
}
