package store

import (
	"math/bits"

	"golang.org/x/sys/unix"
)

const (
	pageSize = 4096
	// chunkPages is how many pages are mapped at a time: a mapping for each header would exceed what the
	// kernel grants a process (vm.max_map_count). A chunk takes only address space; its pages exist from
	// their first use until they are freed.
	chunkPages = 4096
	// lonePages is the size from which a content has a mapping of its own.
	lonePages = 256
)

// memory is the memory of one tenant: no page of it has been another tenant's. It is guarded by Store.mu.
type memory struct{ chunks []*chunk }

// chunk is a mapping of chunkPages.
type chunk struct {
	mem  []byte
	used [chunkPages / 64]uint64 // one bit for each page
	free int
	next int // page at which the search for room begins
}

// block is a part of a chunk, or a mapping of its own.
type block struct {
	bytes []byte // whole pages
	in    *chunk // nil: a mapping of its own
	first int    // first page
}

func (b block) size() int64 { return int64(len(b.bytes)) }

// pages returns how many pages n bytes take.
func pages(n int) int64 { return int64((n + pageSize - 1) / pageSize) }

// allocate returns memory for n bytes, all zero.
func (m *memory) allocate(n int) (block, error) {
	k := int(pages(n))
	if k >= lonePages {
		mem, err := mapped(k)
		return block{bytes: mem}, err
	}
	for i := len(m.chunks) - 1; i >= 0; i-- {
		if b, ok := m.chunks[i].take(k); ok {
			return b, nil
		}
	}
	mem, err := mapped(chunkPages)
	if err != nil {
		return block{}, err
	}
	c := &chunk{mem: mem, free: chunkPages}
	m.chunks = append(m.chunks, c)
	b, _ := c.take(k)
	return b, nil
}

// mapped returns new pages, which are allocated when they are used. They are left out of core dumps, and are
// never huge pages, or freed memory would stay.
func mapped(k int) ([]byte, error) {
	mem, err := unix.Mmap(-1, 0, k*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, err
	}
	for _, advice := range []int{unix.MADV_DONTDUMP, unix.MADV_NOHUGEPAGE} {
		_ = unix.Madvise(mem, advice) // best effort
	}
	return mem, nil
}

// free gives memory back to the kernel, which clears it.
func (m *memory) free(b block) {
	c := b.in
	if c == nil {
		_ = unix.Munmap(b.bytes) // fails for no mapping of ours
		return
	}
	if unix.Madvise(b.bytes, unix.MADV_DONTNEED) != nil {
		clear(b.bytes)
	}
	k := len(b.bytes) / pageSize
	for i := b.first; i < b.first+k; i++ {
		c.used[i/64] &^= 1 << (i % 64)
	}
	c.free += k
	if c.free < chunkPages {
		return
	}
	for i, x := range m.chunks {
		if x == c {
			m.chunks = append(m.chunks[:i], m.chunks[i+1:]...)
			break
		}
	}
	_ = unix.Munmap(c.mem)
}

// take takes k free pages in a row.
func (c *chunk) take(k int) (block, bool) {
	if c.free < k {
		return block{}, false
	}
	first, ok := c.find(k, c.next, chunkPages)
	if !ok {
		first, ok = c.find(k, 0, min(chunkPages, c.next+k))
	}
	if !ok {
		return block{}, false
	}
	for i := first; i < first+k; i++ {
		c.used[i/64] |= 1 << (i % 64)
	}
	c.free -= k
	c.next = first + k
	return block{bytes: c.mem[first*pageSize : (first+k)*pageSize : (first+k)*pageSize], in: c, first: first}, true
}

// find looks for k free pages in a row between from and to.
func (c *chunk) find(k, from, to int) (int, bool) {
	run := 0
	for i := from; i < to; {
		word := c.used[i/64] >> (i % 64)
		step := min(64-i%64, to-i)
		if word&1 != 0 {
			i += min(step, bits.TrailingZeros64(^word))
			run = 0
			continue
		}
		step = min(step, bits.TrailingZeros64(word)) // 64 of 0
		i += step
		if run += step; run >= k {
			return i - run, true
		}
	}
	return 0, false
}
