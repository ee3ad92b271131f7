package slots

import (
	"context"
	"math/bits"
	"sync"

	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// Scratch lends memory for packed sources and results, with a bounded total size. Memory that is given back is
// used again, or freed by the garbage collector when it is idle; large memory is freed at once.
type Scratch struct {
	max   int64
	room  *semaphore.Weighted // bytes
	pools [maxScratch + 1]sync.Pool
}

// Sizes of buffers, as powers of two.
const (
	minScratch = 16 // 64 KiB
	maxScratch = 31

	maxPooled = 24 // 16 MiB: what is larger is rare, and is mapped for each use. The heap would keep its memory for minutes.

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

// Take waits for a buffer of at least n bytes. It returns nil if n is more than s can ever lend, if the system
// has no memory, or if ctx ends first.
func (s *Scratch) Take(ctx context.Context, n int) *Lent {
	size := max(bits.Len(uint(max(n, 1)-1)), minScratch)
	if size > maxScratch || int64(1)<<size > s.max || s.room.Acquire(ctx, 1<<size) != nil {
		return nil
	}
	return s.lend(size)
}

// lend makes or takes again a buffer whose room has been acquired.
func (s *Scratch) lend(size int) *Lent {
	if size <= maxPooled {
		if l, ok := s.pools[size].Get().(*Lent); ok {
			return l
		}
		return &Lent{s: s, Mem: make([]byte, 1<<size), size: size}
	}
	mem, err := unix.Mmap(-1, 0, 1<<size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		s.room.Release(1 << size)
		return nil
	}
	return &Lent{s: s, Mem: mem, size: size}
}

// Give returns l to its Scratch: nothing may use l.Mem from then on. l may be nil.
func (l *Lent) Give() {
	if l == nil {
		return
	}
	if l.size <= maxPooled {
		l.s.pools[l.size].Put(l)
	} else {
		_ = unix.Munmap(l.Mem) // fails for no mapping of ours
		l.Mem = nil
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
	small := l.s.lend(size)
	if small == nil {
		return l
	}
	copy(small.Mem, l.Mem[:n])
	l.Give()
	return small
}
