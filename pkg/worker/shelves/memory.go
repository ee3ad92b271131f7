package shelves

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/resultcache/shelf"
)

// dataOf returns how many bytes of data a shelf has that takes a whole budget.
func dataOf(budget int64) uint64 {
	n := uint64(budget)
	over := shelf.Size(n) - n
	return (n - over) &^ (page - 1)
}

// openMemory maps the memory of a shelf. It takes memory only as far as it is written.
func (s *Shelves) openMemory(name string) (*Tenant, error) {
	data := dataOf(s.o.Budget)
	mem, err := unix.Mmap(-1, 0, int(shelf.Size(data)), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map memory for results: %w", err)
	}
	t := &Tenant{name: name, mem: mem}
	if t.Shelf, err = shelf.New(mem, data, &t.guard); err != nil {
		_ = unix.Munmap(mem) // ours and whole: cannot fail
		return nil, err
	}
	return t, nil
}

// Mem returns the memory, for as long as the caller has joined; nil: see Source.
func (t *Tenant) Mem() []byte { return t.mem }

// Guard is held while the memory changes.
func (t *Tenant) Guard() sync.Locker { return &t.guard }

// limitMemory makes the shelf take no more than part, and frees the rest.
func (t *Tenant) limitMemory(part uint64) {
	over := uint64(len(t.mem)) - t.Head().Data // head and records
	t.Limit(part - min(part, over))
	if from := (t.Data() + page - 1) &^ (page - 1); from < uint64(len(t.mem)) {
		_ = unix.Madvise(t.mem[from:], unix.MADV_DONTNEED) // an error leaves the memory in use
	}
}

func (t *Tenant) freeMemory() {
	_ = unix.Munmap(t.mem) // ours and whole: cannot fail
	t.mem = nil
}
