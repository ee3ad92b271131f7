package regcache

import (
	"context"
	"errors"
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Invalidate ends all regions that have a byte of buf, and returns when none of it is registered any more.
// It waits for those in use until ctx ends; after an error buf must stay mapped. A Get of the same memory
// meanwhile registers it anew: the caller has to see that there is none.
func (c *Cache) Invalidate(ctx context.Context, buf []byte) error {
	lo, hi := span(buf)
	var waits, over []*entry
	c.mu.Lock()
	for e := range c.leaving {
		if e.lo < hi && e.hi > lo {
			waits = append(waits, e)
		}
	}
	for _, e := range c.table.overlapping(lo, hi) {
		c.stats.Ended++
		over = c.dropLocked(e, over)
		waits = append(waits, e)
	}
	c.mu.Unlock()
	_ = c.end(over) // errors: below
	var errs []error
	for _, e := range waits {
		if !e.ended(ctx) {
			return fmt.Errorf("regcache: memory is still in use: %w", ctx.Err())
		}
		errs = append(errs, e.goneAs)
	}
	return errors.Join(errs...)
}

// ended waits until e is deregistered. It returns false if ctx ends first.
func (e *entry) ended(ctx context.Context) bool {
	select {
	case <-e.gone:
		return true
	default:
	}
	select {
	case <-e.gone:
		return true
	case <-ctx.Done():
		return false
	}
}

// Mapping is memory that can go away while the program runs: from mmap, or from C. It is registered only
// through its own Get, and unmapped only by Close, after its registrations.
type Mapping struct {
	c      *Cache
	mem    []byte
	unmap  func([]byte) error
	closed bool // guarded by c.mu
}

// Map takes mem into the care of a Mapping. From now on only its Close may unmap mem, which it does by calling
// unmap. mem must not overlap another Mapping's.
func (c *Cache) Map(mem []byte, unmap func([]byte) error) (*Mapping, error) {
	if len(mem) == 0 || unmap == nil {
		return nil, fmt.Errorf("%w: a mapping of %d bytes", iwarp.ErrInvalid, len(mem))
	}
	lo, hi := span(mem)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, ErrClosed
	case c.foreignLocked(mem):
		return nil, fmt.Errorf("%w: memory that is of a Mapping already", iwarp.ErrInvalid)
	case len(c.table.overlapping(lo, hi)) > 0:
		return nil, fmt.Errorf("%w: memory that was registered before it became a Mapping", iwarp.ErrInvalid)
	}
	m := &Mapping{c: c, mem: mem, unmap: unmap}
	c.mappings[m] = struct{}{}
	return m, nil
}

// foreignLocked reports whether a Mapping has a byte of buf.
func (c *Cache) foreignLocked(buf []byte) bool {
	lo, hi := span(buf)
	for m := range c.mappings {
		if l, h := span(m.mem); lo < h && l < hi {
			return true
		}
	}
	return false
}

// Bytes returns the memory. It must not be used once Close is called.
func (m *Mapping) Bytes() []byte { return m.mem }

// Get is Cache.Get for the n bytes of the mapping from byte from on.
func (m *Mapping) Get(from, n int, a iwarp.Access) (*Ref, error) {
	if from < 0 || n < 0 || n > len(m.mem)-from {
		return nil, fmt.Errorf("%w: %d bytes at %d of a mapping of %d", iwarp.ErrInvalid, n, from, len(m.mem))
	}
	m.c.mu.Lock()
	if m.closed {
		m.c.mu.Unlock()
		return nil, ErrClosed
	}
	return m.c.get(m.mem[from:from+n:from+n], a)
}

// Close ends the registrations of the mapping's memory, and then unmaps it. If a region is still in use when
// ctx ends, or cannot be ended, the memory stays mapped, Close returns an error, and may be called again.
// Gets fail from the first Close on.
func (m *Mapping) Close(ctx context.Context) error {
	m.c.mu.Lock()
	m.closed = true
	_, open := m.c.mappings[m]
	m.c.mu.Unlock()
	if !open {
		return nil
	}
	if err := m.c.Invalidate(ctx, m.mem); err != nil {
		return err
	}
	m.c.mu.Lock()
	_, open = m.c.mappings[m]
	delete(m.c.mappings, m)
	m.c.mu.Unlock()
	if !open {
		return nil // another Close was faster
	}
	return m.unmap(m.mem)
}
