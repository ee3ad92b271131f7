package slots

import (
	"context"
	"math/bits"
	"runtime/debug"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Scratch lends memory for packed sources and results, with a bounded total size. Memory that is given back is
// used again, or freed by the garbage collector when it is idle.
type Scratch struct {
	max   int64
	room  *semaphore.Weighted // bytes
	pools [maxScratch + 1]sync.Pool
}

// Sizes of buffers, as powers of two.
const (
	minScratch = 16 // 64 KiB
	maxScratch = 31

	maxPooled = 25 // 32 MiB: what is larger is freed at once

	maxScratchKept = 26 // 64 MiB: the least total size of a Memory's Scratch
)

// NewScratch returns a Scratch that lends up to n bytes at a time. It allocates none of them yet.
func NewScratch(n int64) *Scratch { return &Scratch{max: n, room: semaphore.NewWeighted(n)} }

// Lent is memory lent by a Scratch until Give.
type Lent struct {
	Mem  []byte // its length is the next power of two, at least 64 KiB
	s    *Scratch
	size int
}

// Take waits for a buffer of at least n bytes. It returns nil if n is more than s can ever lend, or if ctx
// ends first.
func (s *Scratch) Take(ctx context.Context, n int) *Lent {
	size := max(bits.Len(uint(max(n, 1)-1)), minScratch)
	if size > maxScratch || int64(1)<<size > s.max || s.room.Acquire(ctx, 1<<size) != nil {
		return nil
	}
	if l, ok := s.pools[size].Get().(*Lent); ok {
		return l
	}
	return &Lent{s: s, Mem: make([]byte, 1<<size), size: size}
}

// Give returns l to its Scratch. l may be nil.
func (l *Lent) Give() {
	if l == nil {
		return
	}
	if l.size <= maxPooled {
		l.s.pools[l.size].Put(l)
	} else {
		l.Mem = nil
		go debug.FreeOSMemory() // few jobs are that large, and the collector would take minutes
	}
	l.s.room.Release(1 << l.size)
}

// Fit copies the first n bytes to a smaller buffer and gives l back, if a smaller size is enough and
// available at once. It returns the buffer that holds them then, which may be l.
func (l *Lent) Fit(n int) *Lent {
	size := max(bits.Len(uint(max(n, 1)-1)), minScratch)
	if size >= l.size || !l.s.room.TryAcquire(1<<size) {
		return l
	}
	small, ok := l.s.pools[size].Get().(*Lent)
	if !ok {
		small = &Lent{s: l.s, Mem: make([]byte, 1<<size), size: size}
	}
	copy(small.Mem, l.Mem[:n])
	l.Give()
	return small
}
