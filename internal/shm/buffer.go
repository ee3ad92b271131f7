package shm

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Buffer is one memfd and its mapping. It has one user at a time: Get gives it out, Put or Discard ends
// that, after which neither it nor its Bytes may be touched. A memory registration of Bytes must have ended
// before.
type Buffer struct {
	pool  *Pool
	owner uint32
	fd    int
	mem   []byte
	whole []byte // of Extend: a second mapping, for the current user only
}

// newBuffer makes, seals, maps and pre-faults a memfd.
func newBuffer(p *Pool, owner uint32) (*Buffer, error) {
	fd, err := unix.MemfdCreate(p.o.Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(p.o.Name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	b := &Buffer{pool: p, owner: owner, fd: fd}
	if err := b.fill(); err != nil {
		b.destroy()
		return nil, err
	}
	return b, nil
}

// fill gives the new memfd its size, seals, mapping and first pages.
func (b *Buffer) fill() (err error) {
	o := &b.pool.o
	if err := unix.Ftruncate(b.fd, o.Size); err != nil {
		return fmt.Errorf("memfd of %d bytes: %w", o.Size, err)
	}
	// Sealed against shrinking: another process holds this file, and a truncated
	// mapping would turn the peer's next RDMA Write into a SIGBUS here.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(b.fd), unix.F_ADD_SEALS, seals); err != nil {
		return fmt.Errorf("seal memfd: %w", err)
	}
	b.mem, err = unix.Mmap(b.fd, 0, int(o.Map), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", o.Map, err)
	}
	if o.Prefault == 0 {
		return nil
	}
	// Allocated first: a lack of memory is then an error here and not a SIGBUS at
	// some later access.
	if err := allocate(b.fd, o.Prefault); err != nil {
		return fmt.Errorf("allocate %d bytes: %w", o.Prefault, err)
	}
	err = unix.Madvise(b.mem[:o.Prefault], unix.MADV_POPULATE_WRITE)
	if err != nil && !errors.Is(err, unix.EINVAL) { // EINVAL: before Linux 5.14, the pages fault in one by one
		return fmt.Errorf("populate %d bytes: %w", o.Prefault, err)
	}
	return nil
}

// Bytes returns the permanent mapping, Options.Map bytes long.
func (b *Buffer) Bytes() []byte { return b.mem }

// Extend allocates and maps the first n bytes, which may be more than Options.Map, until Put or Discard. It
// is for the few jobs that need so much, as address space and page tables are not free either. A second
// call ends the mapping of the first one. A lack of memory is an error here, not a signal at some later
// access.
func (b *Buffer) Extend(n int64) ([]byte, error) {
	if n <= 0 || n > b.pool.o.Size {
		return nil, fmt.Errorf("arena %s: map %d bytes of a buffer of %d", b.pool.o.Name, n, b.pool.o.Size)
	}
	b.shrink()
	if err := allocate(b.fd, n); err != nil {
		return nil, fmt.Errorf("arena %s: allocate %d bytes: %w", b.pool.o.Name, n, err)
	}
	if n <= int64(len(b.mem)) {
		return b.mem[:n], nil
	}
	var err error
	if b.whole, err = unix.Mmap(b.fd, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		b.whole = nil
		return nil, fmt.Errorf("arena %s: map %d bytes: %w", b.pool.o.Name, n, err)
	}
	return b.whole, nil
}

// shrink undoes Extend.
func (b *Buffer) shrink() {
	if b.whole != nil {
		_ = unix.Munmap(b.whole) // fails only for a range that is not mapped
		b.whole = nil
	}
}

// OpenWriter opens the buffer's file again for writing, and for reading what was written: with an offset of
// its own at 0, without O_APPEND, so that a program can use it as its standard output. The descriptor is
// close-on-exec, and the caller must close it.
func (b *Buffer) OpenWriter() (fd int, err error) { return b.open(unix.O_RDWR) }

// OpenReader is OpenWriter for reading.
func (b *Buffer) OpenReader() (fd int, err error) { return b.open(unix.O_RDONLY) }

func (b *Buffer) open(flags int) (int, error) {
	fd, err := unix.Open("/proc/self/fd/"+strconv.Itoa(b.fd), flags|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("arena %s: open: %w", b.pool.o.Name, err)
	}
	return fd, nil
}

// Put returns the buffer for the next Get of the same owner. No other process may still be able to write to
// it: one that kept a descriptor of OpenWriter would write into a later job's memory.
func (b *Buffer) Put() {
	b.shrink()
	b.pool.put(b, b.punch() == nil)
}

// Discard gives the buffer up: its memory is freed when the last descriptor of it is closed, in whichever process.
func (b *Buffer) Discard() { b.pool.put(b, false) }

// punch frees the pages after the pre-faulted part, if any were touched.
func (b *Buffer) punch() error {
	o := &b.pool.o
	if b.Touched() == 0 {
		return nil
	}
	return fallocate(b.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, o.Prefault, o.Size-o.Prefault)
}

// allocateStep is how many bytes are allocated at a time. The kernel gives all of a call's back if a signal
// interrupts it, and the Go runtime sends itself many: on a slow machine a longer call may never end.
const allocateStep = 1 << 20

// allocate allocates the first n bytes of a file.
func allocate(fd int, n int64) error {
	for off := int64(0); off < n; off += allocateStep {
		if err := fallocate(fd, 0, off, min(allocateStep, n-off)); err != nil {
			return err
		}
	}
	return nil
}

// fallocate is unix.Fallocate, and tries again if a signal interrupts it.
func fallocate(fd int, mode uint32, off, n int64) error {
	for {
		if err := unix.Fallocate(fd, mode, off, n); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Touched returns how many bytes of memory the buffer has beyond those that stay pre-faulted: what has been
// written there since it was given out.
func (b *Buffer) Touched() int64 {
	var st unix.Stat_t
	if err := unix.Fstat(b.fd, &st); err != nil {
		return 0
	}
	return max(0, st.Blocks*512-b.pool.o.Prefault)
}

// wipe gives a free buffer to another owner, zeroing what Put has left of it, the part that stays allocated.
func (b *Buffer) wipe(owner uint32) {
	clear(b.mem[:b.pool.o.Prefault])
	b.owner = owner
}

// destroy unmaps and closes the buffer.
func (b *Buffer) destroy() {
	b.shrink()
	if b.mem != nil {
		_ = unix.Munmap(b.mem) // fails only for a range that is not mapped
		b.mem = nil
	}
	_ = unix.Close(b.fd)
	b.fd = -1
}

func wholePages(n int64) int64 {
	page := int64(os.Getpagesize())
	return (n + page - 1) / page * page
}
