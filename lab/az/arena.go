package az

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Arena is memory with two views: buffers for an application, and what the library sends from. It may be used with several
// connections. Its methods may be called concurrently, except Close.
type Arena struct {
	pages   Pages
	size    int // bytes of a buffer
	fd      int
	room    []byte // address space for both views
	shared  []byte
	app     []byte
	buffers []Buffer
	costs   Costs

	mu    sync.Mutex // guards what follows
	dirt  *dirt
	spans []span
}

// NewArena makes n buffers of at least size bytes, a multiple of the page's, and measures what they cost. The memory is there when it
// returns: n*size bytes. It returns ErrNoHugePages if there are none; with an arena of Small pages a Conn then copies all. An application's page that is written to
// while it is sent takes another 4 KiB.
func NewArena(n, size int, p Pages) (*Arena, error) {
	if n <= 0 || size <= 0 || p > Small || size > math.MaxInt/n/4 {
		return nil, fmt.Errorf("az: %d buffers of %d bytes, pages %d", n, size, p)
	}
	a := &Arena{pages: p, size: (size + p.size() - 1) / p.size() * p.size(), fd: -1, buffers: make([]Buffer, n)}
	if err := a.make(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	for i := range a.buffers {
		a.buffers[i] = Buffer{a: a, off: i * a.size, app: a.app[i*a.size:][:a.size:a.size], shared: a.shared[i*a.size:][:a.size:a.size]}
	}
	if err := a.measure(); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

// make makes the file and its views.
func (a *Arena) make() (err error) {
	if a.dirt, err = newDirt(); err != nil {
		return err
	}
	total, align := len(a.buffers)*a.size, a.pages.size()
	if a.fd, err = file(a.pages, total); err != nil {
		return err
	}
	room, err := unix.MmapPtr(-1, 0, nil, uintptr(2*total+align), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("az: reserve %d bytes of addresses: %w", 2*total+align, err)
	}
	a.room = unsafe.Slice((*byte)(room), 2*total+align)
	skip := -int(uintptr(room)) & (align - 1) // huge pages are mapped at multiples of their size
	a.shared, a.app = a.room[skip:][:total:total], a.room[skip+total:][:total:total]
	for _, m := range [][]byte{a.shared, a.app} {
		if err := a.remap(m, 0, unix.MAP_SHARED); err != nil {
			return err
		}
		if a.pages == Huge {
			_ = unix.Madvise(m, unix.MADV_HUGEPAGE) // where the system's policy is "advise"
		}
		if err := unix.Madvise(m, unix.MADV_POPULATE_WRITE); err != nil {
			return fmt.Errorf("az: get %d bytes of memory: %w", total, err)
		}
	}
	if a.pages == Huge {
		huge, err := isHuge(a.shared)
		if err != nil {
			return err
		}
		if !huge {
			return ErrNoHugePages
		}
	}
	return nil
}

// remap maps m, which is part of a view, to the file from off on. What is written to m with MAP_PRIVATE does not come to the file.
// The old mapping is replaced at once: who reads or writes meanwhile gets either.
func (a *Arena) remap(m []byte, off, how int) error {
	_, err := unix.MmapPtr(a.fd, int64(off), unsafe.Pointer(unsafe.SliceData(m)), uintptr(len(m)),
		unix.PROT_READ|unix.PROT_WRITE, how|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return fmt.Errorf("az: map %d bytes: %w", len(m), err)
	}
	return nil
}

// Buffers returns how many there are.
func (a *Arena) Buffers() int { return len(a.buffers) }

// Buffer returns the i-th buffer, the application's view.
func (a *Arena) Buffer(i int) []byte { return a.buffers[i].app }

// Pages returns what the memory is made of.
func (a *Arena) Pages() Pages { return a.pages }

// find returns the buffer that p begins in, and where; or nil.
func (a *Arena) find(p []byte) (b *Buffer, off int) {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	base := uintptr(unsafe.Pointer(unsafe.SliceData(a.app)))
	if len(p) == 0 || at < base || at-base >= uintptr(len(a.app)) {
		return nil, 0
	}
	i := int(at - base)
	return &a.buffers[i/a.size], i % a.size
}

// Close waits until nothing is sent any more and unmaps everything. The connections that it was used with must be closed, so
// that this is bounded, and its buffers must not be used any more.
func (a *Arena) Close() (err error) {
	for i := range a.buffers {
		if b := &a.buffers[i]; b.op != nil {
			_, _ = b.op.Wait() // an error is its connection's
			b.op = nil
		}
	}
	if a.room != nil {
		err = unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(a.room)), uintptr(len(a.room)))
		a.room, a.shared, a.app, a.buffers = nil, nil, nil, nil
	}
	if a.fd >= 0 {
		err = errors.Join(err, unix.Close(a.fd))
		a.fd = -1
	}
	if a.dirt != nil {
		err = errors.Join(err, a.dirt.pagemap.Close())
		a.dirt = nil
	}
	return err
}
