package slots

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Scratch lends memory for packed sources and results: of bounded size together,
// used again, and the garbage collector's when it is idle.
type Scratch struct {
	max   int64
	room  *semaphore.Weighted // bytes
	pools [maxScratch + 1]sync.Pool
}

// Sizes are powers of two.
const (
	minScratch = 16 // 64 KiB
	maxScratch = 31

	maxScratchKept = 26 // 64 MiB are lent at a time at least
)

// NewScratch returns n bytes to be lent, none of which is allocated yet.
func NewScratch(n int64) *Scratch { return &Scratch{max: n, room: semaphore.NewWeighted(n)} }

// Lent is memory of a Scratch's, until Give.
type Lent struct {
	Mem  []byte // as long as the next power of two, whatever was asked for
	s    *Scratch
	size int
}

// Take waits for n bytes; nil says that there will never be so many, or that ctx
// has ended.
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

// Give ends l's use; nil is allowed.
func (l *Lent) Give() {
	if l != nil {
		l.s.pools[l.size].Put(l)
		l.s.room.Release(1 << l.size)
	}
}

// Fit moves the first n bytes, if a much smaller buffer has room for them and is to
// be had at once, and gives the large one back.
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
