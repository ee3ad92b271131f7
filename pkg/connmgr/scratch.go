package connmgr

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
)

// scratch lends memory for packed sources and results: of bounded size together,
// used again, and the garbage collector's when it is idle.
type scratch struct {
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

func newScratch(n int64) *scratch { return &scratch{max: n, room: semaphore.NewWeighted(n)} }

// lent is memory of scratch's, until give.
type lent struct {
	s    *scratch
	mem  []byte // as long as the next power of two, whatever was asked for
	size int
}

// take waits for n bytes; nil says that there will never be so many, or that ctx
// has ended.
func (s *scratch) take(ctx context.Context, n int) *lent {
	size := max(bits.Len(uint(max(n, 1)-1)), minScratch)
	if size > maxScratch || int64(1)<<size > s.max || s.room.Acquire(ctx, 1<<size) != nil {
		return nil
	}
	if l, ok := s.pools[size].Get().(*lent); ok {
		return l
	}
	return &lent{s: s, mem: make([]byte, 1<<size), size: size}
}

// give ends l's use; nil is allowed.
func (l *lent) give() {
	if l != nil {
		l.s.pools[l.size].Put(l)
		l.s.room.Release(1 << l.size)
	}
}

// fit moves the first n bytes, if a much smaller buffer has room for them and is to
// be had at once, and gives the large one back.
func (l *lent) fit(n int) *lent {
	size := max(bits.Len(uint(max(n, 1)-1)), minScratch)
	if size >= l.size || !l.s.room.TryAcquire(1<<size) {
		return l
	}
	small, ok := l.s.pools[size].Get().(*lent)
	if !ok {
		small = &lent{s: l.s, mem: make([]byte, 1<<size), size: size}
	}
	copy(small.mem, l.mem[:n])
	l.give()
	return small
}
