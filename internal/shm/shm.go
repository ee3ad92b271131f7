// Package shm keeps recycled shared memory: sparse memfds, one for each buffer, mapped
// and pre-faulted, whose descriptors can be handed to another process.
//
// A Pool makes buffers as they are needed, up to a bound, and keeps them when
// they come back: fresh shared memory costs about 565 ns/KiB, recycled mapped
// memory 64. Only the first part of a buffer stays allocated between uses; what
// a large job touched beyond it is punched out again. Experiments E1 and E3 (lab/experiments.md)
// compare pooled memory with fresh memory.
package shm

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Options configures a Pool.
type Options struct {
	Name     string // of the memfds, as /proc/PID/maps shows it
	Size     int64  // bytes of a buffer, rounded up to whole pages
	Map      int64  // bytes at the start that stay mapped, rounded up to whole pages; 0 = all
	Prefault int64  // bytes at the start that stay allocated; at most Map
	Max      int    // most buffers in existence; Get waits beyond that
	// Wipe lets a returned buffer serve another owner too, zeroed: for buffers whose descriptors were
	// given to no other process. Without it each owner has buffers of its own.
	Wipe bool
}

// ErrClosed is returned by Get once the pool is closed.
var ErrClosed = errors.New("arena: closed")

// Stats holds a pool's gauges.
type Stats struct {
	Max   int // bound of Total
	Total int // in existence
	Free  int // part of Total that waits for the next Get
}

// Pool is a bounded set of buffers of one size. It is safe for concurrent use.
type Pool struct {
	o    Options
	turn *semaphore.Weighted // one unit for each buffer given out

	mu     sync.Mutex
	free   []*Buffer // the most recently used last: its pages are the most likely to be cached
	out    int       // buffers given out
	closed bool
}

// NewPool returns an empty pool; Get allocates the memory.
func NewPool(o Options) (*Pool, error) {
	if o.Map == 0 {
		o.Map = o.Size
	}
	if o.Size <= 0 || o.Max <= 0 || o.Prefault < 0 || o.Map < o.Prefault || o.Map > o.Size {
		return nil, fmt.Errorf("arena %s: size %d, map %d, prefault %d, max %d make no sense", o.Name, o.Size, o.Map, o.Prefault, o.Max)
	}
	o.Size, o.Map, o.Prefault = wholePages(o.Size), wholePages(o.Map), wholePages(o.Prefault)
	return &Pool{o: o, turn: semaphore.NewWeighted(int64(o.Max))}, nil
}

// Size returns the length of every buffer, in bytes.
func (p *Pool) Size() int64 { return p.o.Size }

// Get returns a buffer for owner, waiting in order of arrival while Max are in use. Its content is whatever
// the same owner left there. What was given to one owner is never given to another, or with Options.Wipe
// only after zeroing. Errors are ctx's, ErrClosed, or the kernel's refusal of memory or descriptors, which
// leaves the pool as it was.
func (p *Pool) Get(ctx context.Context, owner uint32) (*Buffer, error) {
	if err := p.turn.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("arena %s: %w", p.o.Name, err)
	}
	return p.take(owner)
}

// TryGet is Get without waiting: nil without an error means that all are in use.
func (p *Pool) TryGet(owner uint32) (*Buffer, error) {
	if !p.turn.TryAcquire(1) {
		return nil, nil
	}
	return p.take(owner)
}

// take finds or makes a buffer. The caller holds a unit of turn, which take releases on error.
func (p *Pool) take(owner uint32) (*Buffer, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.turn.Release(1)
		return nil, fmt.Errorf("arena %s: %w", p.o.Name, ErrClosed)
	}
	var b, evicted *Buffer
	for i := len(p.free) - 1; i >= 0; i-- {
		if p.free[i].owner == owner {
			b = p.removeLocked(i)
			break
		}
	}
	wipe := b == nil && p.o.Wipe && len(p.free) > 0
	if wipe {
		b = p.removeLocked(0) // its owner's least recently used one
	}
	if b == nil && len(p.free)+p.out >= p.o.Max {
		evicted = p.removeLocked(0) // another owner's: it makes room and is not reused
	}
	p.out++
	p.mu.Unlock()
	if evicted != nil {
		evicted.destroy()
	}
	if wipe {
		b.wipe(owner)
	}
	if b != nil {
		return b, nil
	}
	b, err := newBuffer(p, owner)
	if err != nil {
		p.mu.Lock()
		p.out--
		p.mu.Unlock()
		p.turn.Release(1)
		return nil, fmt.Errorf("arena %s: %w", p.o.Name, err)
	}
	return b, nil
}

// removeLocked removes entry i from the free list.
func (p *Pool) removeLocked(i int) *Buffer {
	b := p.free[i]
	n := len(p.free)
	copy(p.free[i:], p.free[i+1:])
	p.free[n-1] = nil
	p.free = p.free[:n-1]
	return b
}

// put takes a buffer back; keep is false if it must not be reused.
func (p *Pool) put(b *Buffer, keep bool) {
	p.mu.Lock()
	p.out--
	keep = keep && !p.closed
	if keep {
		p.free = append(p.free, b)
	}
	p.mu.Unlock()
	if !keep {
		b.destroy()
	}
	p.turn.Release(1)
}

// Trim destroys free buffers until at most keep are left. It is called when a build is over, so that an
// idle process does not hold on to the memory of the peak.
func (p *Pool) Trim(keep int) {
	p.mu.Lock()
	n := max(0, len(p.free)-keep)
	drop := append([]*Buffer(nil), p.free[:n]...)
	left := copy(p.free, p.free[n:])
	clear(p.free[left:])
	p.free = p.free[:left]
	p.mu.Unlock()
	for _, b := range drop {
		b.destroy()
	}
}

// Stats returns the current gauges.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Max: p.o.Max, Total: len(p.free) + p.out, Free: len(p.free)}
}

// Close destroys the free buffers; those in use are destroyed when they come back.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.Trim(0)
}
