package jobs

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// memories hands out registered memory of slotLen bytes, all in one protection domain. It keeps what comes back.
type memories struct {
	pd   iwarp.PD
	free chan *end.Memory
	text sync.Pool // of *[]byte, not registered: for TCP, and for what two-sided texts are put together in
}

// maxFree bounds the memory that is kept: as many as there are clients at a time.
const maxFree = 64

func newMemories(dev iwarp.Device) (*memories, error) {
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	m := &memories{pd: pd, free: make(chan *end.Memory, maxFree)}
	m.text.New = func() any { b := make([]byte, slotLen); return &b }
	return m, nil
}

// get returns memory from the pool, or new one.
func (m *memories) get() (*end.Memory, error) {
	select {
	case x := <-m.free:
		return x, nil
	default:
		return m.fresh(slotLen)
	}
}

func (m *memories) put(x *end.Memory) {
	select {
	case m.free <- x:
	default:
		_ = drop(x)
	}
}

// fresh returns new memory that is registered.
func (m *memories) fresh(n int) (*end.Memory, error) {
	buf, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", n, err)
	}
	mr, err := m.pd.RegMR(buf, end.Rights, nil)
	if err != nil {
		_ = unix.Munmap(buf)
		return nil, err
	}
	return &end.Memory{PD: m.pd, MR: mr, Buf: buf}, nil
}

// drop ends the registration and unmaps the memory.
func drop(x *end.Memory) error {
	if err := x.MR.Dereg(); err != nil {
		return err
	}
	return unix.Munmap(x.Buf)
}

// part names n bytes of registered memory from off on.
func part(x *end.Memory, off, n int) []iwarp.SGE {
	return []iwarp.SGE{{Addr: x.MR.Base() + uint64(off), Length: uint32(n), LKey: x.MR.STag()}}
}

// monotonic returns the machine's monotonic clock in ns: the same for all its processes.
func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}
