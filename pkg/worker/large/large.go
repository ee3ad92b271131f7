// Package large provides memory for sources that are too big for a slot, and for results that are too big for
// a slot or a sink. It is bounded in total and per tenant.
package large

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/shm"
)

// Memory is the memory that all large sources and results share. Its methods may be called at any time.
type Memory struct {
	max  int64 // largest part, in bytes; 0 = no parts: such jobs are refused
	most int64 // bytes that all parts may have together
	room *semaphore.Weighted
	pool *shm.Pool
	used atomic.Int64 // bytes

	mu      sync.Mutex
	allowed map[string]*Allowance // by name, of tenants with connections; guarded by mu
}

// Allowance is how much of a Memory one tenant may have. All its connections share it.
type Allowance struct {
	room  *semaphore.Weighted
	most  int64 // bytes in total
	conns int   // connections that have joined; guarded by Memory.mu
}

// Part is a piece of a Memory. It counts against the bounds until Free.
type Part struct {
	Mem []byte // its user may shorten it

	from *Memory
	buf  *shm.Buffer
	n    int64               // bytes counted against Memory.room
	room *semaphore.Weighted // the tenant's
	part int64               // bytes counted against the tenant's room
}

// New makes a Memory of maximum bytes. A part has at most biggest bytes, and at most count parts exist at a
// time. Close ends it.
func New(maximum, biggest int64, count int) (*Memory, error) {
	m := &Memory{max: max(min(maximum, biggest), 0), most: maximum, room: semaphore.NewWeighted(maximum), allowed: make(map[string]*Allowance)}
	if m.max == 0 {
		return m, nil
	}
	var err error
	// Large sources are rare, so nothing stays mapped or allocated between uses.
	m.pool, err = shm.NewPool(shm.Options{Name: "rdistccd-large", Size: m.max, Map: 1, Max: count})
	return m, err
}

// Max returns how many bytes one part may have; 0 if there are no parts.
func (m *Memory) Max() int64 { return m.max }

// Used returns how many bytes all parts have.
func (m *Memory) Used() int64 { return m.used.Load() }

// Whole reports whether every part and its buffer have been freed.
func (m *Memory) Whole() bool {
	if !m.room.TryAcquire(m.most) {
		return false
	}
	m.room.Release(m.most)
	if m.pool == nil {
		return true
	}
	s := m.pool.Stats()
	return s.Total == s.Free
}

// Join returns the allowance of a tenant, which has most bytes. Each connection calls it once, and Leave when
// it ends.
func (m *Memory) Join(tenant string, most int64) *Allowance {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.allowed[tenant]
	if p == nil {
		p = &Allowance{room: semaphore.NewWeighted(most), most: most}
		m.allowed[tenant] = p
	}
	p.conns++
	return p
}

// Leave undoes Join for a connection that has freed all its parts.
func (m *Memory) Leave(tenant string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.allowed[tenant]
	if p.conns--; p.conns == 0 {
		delete(m.allowed, tenant)
	}
}

// Get returns a part of n bytes, and waits for room until ctx ends. A tenant that has used up its allowance
// waits for its own parts to be freed, and does not delay other tenants.
func (m *Memory) Get(ctx context.Context, t *Allowance, n int64) (*Part, error) {
	if n > m.max {
		return nil, job.Refuse(job.CauseTooBig, "%d bytes are more than buffers.large and buffers.source or buffers.result allow here (%d)", n, m.max)
	}
	part := min(t.most, n)
	if err := t.room.Acquire(ctx, part); err != nil {
		return nil, err
	}
	if err := m.room.Acquire(ctx, n); err != nil {
		t.room.Release(part)
		return nil, err
	}
	return m.take(t, part, n, job.CauseFull)
}

// TryGet is Get without waiting. It refuses with the cause no if there is no room now.
func (m *Memory) TryGet(t *Allowance, n int64, no job.Cause) (*Part, error) {
	part := min(t.most, n) // a part that is larger than the allowance takes all of it
	if n > m.max || !t.room.TryAcquire(part) {
		return nil, job.Refuse(no, "no room for a source or result of %d bytes (buffers.large, limits.client-bytes)", n)
	}
	if !m.room.TryAcquire(n) {
		t.room.Release(part)
		return nil, job.Refuse(no, "no room for a source or result of %d bytes (buffers.large)", n)
	}
	return m.take(t, part, n, no)
}

// take makes a part after its bytes were acquired. It refuses with the cause no if the system has no memory.
func (m *Memory) take(t *Allowance, part, n int64, no job.Cause) (*Part, error) {
	l := &Part{from: m, n: n, room: t.room, part: part}
	m.used.Add(n)
	var err error
	if l.buf, err = m.pool.TryGet(0); l.buf == nil && err == nil {
		err = errors.New("too many at a time")
	}
	if err == nil {
		l.Mem, err = l.buf.Extend(n)
	}
	if err != nil {
		l.Free()
		return nil, job.Refuse(no, "memory for a source or result of %d bytes: %v", n, err)
	}
	return l, nil
}

// Free releases the memory, which must not be registered any more. It does nothing for a nil part.
func (l *Part) Free() {
	if l == nil {
		return
	}
	if l.buf != nil {
		l.buf.Put()
	}
	l.from.used.Add(-l.n)
	l.from.room.Release(l.n)
	l.room.Release(l.part)
}

// Taken returns how many bytes the part counts for, which may be more than the length of Mem.
func (l *Part) Taken() int64 { return l.n }

// Trim gives unused memory back to the system.
func (m *Memory) Trim() {
	if m.pool != nil {
		m.pool.Trim(0)
	}
}

// Close ends a Memory whose parts have all been freed. It does nothing for a nil Memory.
func (m *Memory) Close() {
	if m != nil && m.pool != nil {
		m.pool.Close()
	}
}
