package shelf

import (
	"io"
	"sync"
)

// memory is what a Shelf is in. What a reader sees of two writes is never the later one alone.
type memory interface {
	write(off uint64, b []byte) error
	read(off uint64, b []byte) error
}

// ram is memory that is read while lock is held.
type ram struct {
	mem  []byte
	lock sync.Locker // held while bytes of mem change
}

func (m ram) write(off uint64, b []byte) error {
	m.lock.Lock()
	defer m.lock.Unlock()
	copy(m.mem[off:], b)
	return nil
}

func (m ram) read(off uint64, b []byte) error {
	copy(b, m.mem[off:]) // nobody else writes
	return nil
}

// File is a file with a Shelf in it.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// inFile is a File whose head is read while lock is held. For the rest, no lock is needed: a reader looks at
// it after it has seen a head that says that it is there, and looks at the head again before it believes it.
type inFile struct {
	f    File
	lock sync.Locker
}

func (m inFile) write(off uint64, b []byte) error {
	if off < HeadLen {
		m.lock.Lock()
		defer m.lock.Unlock()
	}
	_, err := m.f.WriteAt(b, int64(off))
	return err
}

func (m inFile) read(off uint64, b []byte) error {
	n, err := m.f.ReadAt(b, int64(off))
	if n == len(b) {
		return nil
	}
	return err
}
