package shelf

import (
	"io"
	"sync"
)

// memory is what a Shelf is in. What a reader sees of two writes is never the later one alone.
type memory interface {
	// write writes records and entries.
	write(off uint64, b []byte) error
	read(off uint64, b []byte) error
	// keep writes the head for when the Shelf is opened again.
	keep(head []byte) error
	// show has readers see b in the first bytes, where the head and the marks are. It waits for no disk.
	show(off uint64, b []byte)
}

// ram is memory that is read while lock is held.
type ram struct {
	mem  []byte
	lock sync.Locker // held while bytes of mem change
}

func (m ram) write(off uint64, b []byte) error {
	m.show(off, b)
	return nil
}

func (m ram) read(off uint64, b []byte) error {
	copy(b, m.mem[off:]) // nobody else writes
	return nil
}

func (m ram) keep([]byte) error { return nil } // it is not opened again

func (m ram) show(off uint64, b []byte) {
	m.lock.Lock()
	defer m.lock.Unlock()
	copy(m.mem[off:], b)
}

// File is a file with a Shelf in it. Its readers see the bytes before SpareAt as they were shown last, all at once, and the
// others as they are in the file: they look at these after a head that says that they are there, and at the head again
// before they believe them.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Show has readers see p at off, which ends before SpareAt. It waits for no disk.
	Show(p []byte, off int64)
}

// inFile is a File.
type inFile struct{ f File }

func (m inFile) write(off uint64, b []byte) error {
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

func (m inFile) keep(head []byte) error { return m.write(0, head) }

func (m inFile) show(off uint64, b []byte) { m.f.Show(b, int64(off)) }
