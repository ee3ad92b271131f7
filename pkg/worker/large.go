package worker

import (
	"context"
	"errors"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/shm"
)

// largeMemory is what sources too big for a slot, and results too big for slot or
// sink, may take together.
type largeMemory struct {
	max  int64 // bytes; 0 = there is none: such jobs are refused
	room *semaphore.Weighted
	pool *shm.Pool
	used atomic.Int64 // bytes

	allowed map[string]*allowance // of tenants with connections, by name; guarded by Server.mu
}

// allowance is a tenant's, which all its connections part.
type allowance struct {
	room  *semaphore.Weighted
	most  int64 // bytes of it
	conns int   // that have joined
}

// large is a part of it: n bytes, counted until free.
type large struct {
	from *largeMemory
	buf  *shm.Buffer
	mem  []byte
	n    int64
	room *semaphore.Weighted // of the tenant, and how much of it
	part int64
}

// newLargeMemory makes room for max bytes, of which one source or result may take
// at most biggest, and count of them may exist.
func newLargeMemory(maximum, biggest int64, count int) (*largeMemory, error) {
	m := &largeMemory{max: min(maximum, biggest), room: semaphore.NewWeighted(maximum), allowed: make(map[string]*allowance)}
	if m.max <= 0 {
		m.max = 0
		return m, nil
	}
	var err error
	// Nothing stays mapped or allocated between uses: they are rare.
	m.pool, err = shm.NewPool(shm.Options{Name: "rdistccd-large", Size: m.max, Map: 1, Max: count})
	return m, err
}

// join returns the allowance of a tenant, which is of most bytes; leave follows.
func (m *largeMemory) join(tenant string, most int64) *allowance {
	p := m.allowed[tenant]
	if p == nil {
		p = &allowance{room: semaphore.NewWeighted(most), most: most}
		m.allowed[tenant] = p
	}
	p.conns++
	return p
}

// leave ends join for a connection that has given back all that it had.
func (m *largeMemory) leave(tenant string) {
	p := m.allowed[tenant]
	if p.conns--; p.conns == 0 {
		delete(m.allowed, tenant)
	}
}

// get waits for n bytes of a tenant's; ctx bounds that. Who has had its part waits for
// itself, and in nobody's way.
func (m *largeMemory) get(ctx context.Context, t *allowance, n int64) (*large, error) {
	if n > m.max {
		return nil, refuse(job.CauseTooBig, "%d bytes are more than buffers.large and buffers.source or buffers.result allow here (%d)", n, m.max)
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

// tryGet is get that does not wait; no is the cause when there is no room now.
func (m *largeMemory) tryGet(t *allowance, n int64, no job.Cause) (*large, error) {
	part := min(t.most, n) // what is larger than a tenant's part takes all of that
	if n > m.max || !t.room.TryAcquire(part) {
		return nil, refuse(no, "no room for a source or result of %d bytes (buffers.large, limits.client-bytes)", n)
	}
	if !m.room.TryAcquire(n) {
		t.room.Release(part)
		return nil, refuse(no, "no room for a source or result of %d bytes (buffers.large)", n)
	}
	return m.take(t, part, n, no)
}

// take makes a part whose bytes have been acquired; no is the cause when the
// system has not got them.
func (m *largeMemory) take(t *allowance, part, n int64, no job.Cause) (*large, error) {
	l := &large{from: m, n: n, room: t.room, part: part}
	m.used.Add(n)
	var err error
	if l.buf, err = m.pool.TryGet(0); l.buf == nil && err == nil {
		err = errors.New("too many at a time")
	}
	if err == nil {
		l.mem, err = l.buf.Extend(n)
	}
	if err != nil {
		l.free()
		return nil, refuse(no, "memory for a source or result of %d bytes: %v", n, err)
	}
	return l, nil
}

// free gives the memory back; its registration has ended. A nil part has none.
func (l *large) free() {
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

func (m *largeMemory) trim() {
	if m.pool != nil {
		m.pool.Trim(0)
	}
}

func (m *largeMemory) close() {
	if m != nil && m.pool != nil {
		m.pool.Close()
	}
}
