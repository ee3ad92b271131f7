package capture

import (
	"context"
	"io"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/shm"
)

// file is a memfd of a fixed size. It is opened anew for each command, so that the offset tells how much was
// written. Writing past the end fails. It needs no goroutine to empty it.
type file struct {
	buf  *shm.Buffer
	out  int   // the command's descriptor
	kept int64 // bytes
}

func newFile(ctx context.Context, pool *shm.Pool, kept int64) (outlet, error) {
	buf, err := pool.Get(ctx, 0)
	if err != nil {
		return nil, err
	}
	fd, err := buf.OpenWriter()
	if err != nil {
		buf.Put()
		return nil, err
	}
	return &file{buf, fd, kept}, nil
}

func (f *file) fd() int { return f.out }

func (f *file) written() ([]byte, bool, error) {
	n, err := unix.Seek(f.out, 0, io.SeekCurrent)
	if err != nil {
		return nil, false, err
	}
	b := f.buf.Bytes()
	if n <= f.kept {
		return b[:n], false, nil
	}
	return append(b[:f.kept], Note(f.kept)...), true, nil // in place
}

func (f *file) rewind() error {
	_, err := unix.Seek(f.out, 0, io.SeekStart)
	return err
}

func (f *file) close() {
	unix.Close(f.out)
	f.buf.Put()
}
