package worker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/pkg/arena"
)

// capture holds a compiler's standard output and error.
type capture struct {
	to [2]outlet
}

// outlet is where one of them goes: fd is given to the compiler.
type outlet interface {
	fd() int
	// written is what went there, or what is kept of it with a line behind it that says so (cut).
	// It is valid until rewind or close.
	written() (b []byte, cut bool, err error)
	rewind() error // as if nothing was written
	close()
}

// newCapture makes what takes a command's words. A confined command's go to pipes that
// are emptied whatever it writes, so that a flood has no say in how the compile ends.
func (r *runner) newCapture() (*capture, error) {
	c := &capture{}
	for i := range c.to {
		var err error
		if r.s.confined {
			c.to[i], err = r.drain(i)
		} else {
			c.to[i], err = r.newFileOutlet()
		}
		if err != nil {
			c.close()
			return nil, err
		}
	}
	return c, nil
}

func (c *capture) close() {
	for _, o := range c.to {
		if o != nil {
			o.close()
		}
	}
}

// rewind makes as if nothing was written.
func (c *capture) rewind() error { return errors.Join(c.to[0].rewind(), c.to[1].rewind()) }

// written is what went to output i.
func (c *capture) written(i int) ([]byte, error) {
	b, _, err := c.to[i].written()
	return b, err
}

// cut says whether there was more than is kept.
func (c *capture) cut() bool {
	for _, o := range c.to {
		if _, cut, err := o.written(); err == nil && cut {
			return true
		}
	}
	return false
}

// outNote stands behind what is kept of a flood.
func outNote(kept int64) string {
	return fmt.Sprintf("\nrdistccd: the compiler wrote more than %d KiB here; the rest is cut\n", kept>>10)
}

// fileOutlet is a memfd of a fixed size, opened anew for each command, so that its offset tells how
// much was written, and writing past the end fails. No goroutine has to empty it.
type fileOutlet struct {
	buf  *arena.Buffer
	file int
	kept int64
}

func (r *runner) newFileOutlet() (outlet, error) {
	buf, err := r.s.outputs.Get(r.s.ctx, 0)
	if err != nil {
		return nil, err
	}
	fd, err := buf.OpenWriter()
	if err != nil {
		buf.Put()
		return nil, err
	}
	return &fileOutlet{buf, fd, r.s.o.Output}, nil
}

func (f *fileOutlet) fd() int { return f.file }

func (f *fileOutlet) written() ([]byte, bool, error) {
	n, err := unix.Seek(f.file, 0, io.SeekCurrent)
	if err != nil {
		return nil, false, err
	}
	b := f.buf.Bytes()
	if n <= f.kept {
		return b[:n], false, nil
	}
	return append(b[:f.kept], outNote(f.kept)...), true, nil // in place
}

func (f *fileOutlet) rewind() error {
	_, err := unix.Seek(f.file, 0, io.SeekStart)
	return err
}

func (f *fileOutlet) close() {
	unix.Close(f.file)
	f.buf.Put()
}

// drain is a pipe of a runner's, for one command after the other: no process of the
// last one lives when the next begins. A goroutine empties it while a command writes more
// than a pipe holds; as long as there is nothing, it costs nothing.
type drain struct {
	in      *os.File
	out     int // the commands' end
	flags   int // of it, as it was made
	size    int // of the pipe
	kept    int64
	stopped sync.WaitGroup

	mu      sync.Mutex
	b       []byte // guarded by mu: what is kept
	lost    bool   // guarded by mu: there was more
	scratch []byte // guarded by mu
}

// drain is the runner's pipe for output i, empty and as it was made.
func (r *runner) drain(i int) (outlet, error) {
	if d := r.drains[i]; d != nil {
		if d.untouched() {
			return d, d.rewind()
		}
		// A command has changed it for those that come after.
		d.end()
		r.drains[i] = nil
	}
	d, err := newDrain(r.s.o.Output)
	if err != nil {
		return nil, err // not a nil *drain
	}
	r.drains[i] = d
	return d, nil
}

func newDrain(kept int64) (*drain, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	d := &drain{out: p[1], kept: kept}
	var err error
	if err = unix.SetNonblock(p[0], true); err == nil { // for the netpoller; the other end waits
		d.flags, err = unix.FcntlInt(uintptr(p[1]), unix.F_GETFL, 0)
	}
	if err == nil {
		d.size, err = unix.FcntlInt(uintptr(p[1]), unix.F_GETPIPE_SZ, 0)
	}
	if err != nil {
		unix.Close(p[0])
		unix.Close(p[1])
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	d.in = os.NewFile(uintptr(p[0]), "compiler's words")
	rc, err := d.in.SyscallConn()
	if err != nil {
		d.in.Close()
		unix.Close(p[1])
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	d.stopped.Go(func() {
		_ = rc.Read(func(fd uintptr) bool { // until end
			d.mu.Lock()
			defer d.mu.Unlock()
			d.emptyLocked(int(fd))
			return false
		})
	})
	return d, nil
}

func (d *drain) untouched() bool {
	flags, err := unix.FcntlInt(uintptr(d.out), unix.F_GETFL, 0)
	size, serr := unix.FcntlInt(uintptr(d.out), unix.F_GETPIPE_SZ, 0)
	return err == nil && serr == nil && flags == d.flags && size == d.size
}

// emptyLocked takes all that is in the pipe.
func (d *drain) emptyLocked(fd int) {
	for {
		if d.scratch == nil {
			d.scratch = make([]byte, 64<<10)
		}
		n, err := unix.Read(fd, d.scratch)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return
		}
		room := int(d.kept) - len(d.b)
		if n > room {
			d.lost = true
		}
		d.b = append(d.b, d.scratch[:min(n, room)]...)
	}
}

func (d *drain) fd() int { return d.out }

func (d *drain) written() ([]byte, bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rc, err := d.in.SyscallConn()
	if err == nil {
		err = rc.Control(func(fd uintptr) { d.emptyLocked(int(fd)) })
	}
	if d.lost {
		return append(d.b[:len(d.b):len(d.b)], outNote(d.kept)...), true, err
	}
	return d.b, false, err
}

func (d *drain) rewind() error {
	if _, _, err := d.written(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.b, d.lost = d.b[:0], false; cap(d.b) > 64<<10 {
		d.b, d.scratch = nil, nil
	}
	return nil
}

// close is the command's end; the pipe stays.
func (d *drain) close() {}

// end is the pipe's.
func (d *drain) end() {
	d.in.Close()
	d.stopped.Wait()
	unix.Close(d.out)
}
