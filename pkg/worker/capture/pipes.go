package capture

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Pipes is a pair of pipes that commands use one after another. No process of a command may be alive when the
// next one begins. The pipes are made on first use. A Pipes belongs to one goroutine.
type Pipes struct {
	kept   int64     // bytes of each output
	drains [2]*drain // nil: not made yet
}

// NewPipes returns Pipes that keep that many bytes of each output. Close ends them.
func NewPipes(kept int64) *Pipes { return &Pipes{kept: kept} }

// Capture returns a Capture for the next command. The previous command and its Capture must have ended.
func (p *Pipes) Capture() (*Capture, error) {
	c := &Capture{}
	for i := range c.to {
		var err error
		if c.to[i], err = p.drain(i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Joined is like Capture, but both outputs are one, in the order in which they were written.
func (p *Pipes) Joined() (*Capture, error) {
	o, err := p.drain(0)
	if err != nil {
		return nil, err
	}
	return &Capture{to: [2]outlet{o, o}}, nil
}

// Close closes the pipes.
func (p *Pipes) Close() {
	for _, d := range p.drains {
		if d != nil {
			d.end()
		}
	}
}

// drain returns the pipe for output i, empty and with its original settings.
func (p *Pipes) drain(i int) (outlet, error) {
	if d := p.drains[i]; d != nil {
		if d.untouched() {
			return d, d.rewind()
		}
		// A command has changed the pipe's settings, which later commands would inherit.
		d.end()
		p.drains[i] = nil
	}
	d, err := newDrain(p.kept)
	if err != nil {
		return nil, err // not a nil *drain
	}
	p.drains[i] = d
	return d, nil
}

// drain is one pipe with a goroutine that empties it, in case a command writes more than a pipe holds. The
// goroutine costs nothing while the pipe is empty.
type drain struct {
	in      *os.File
	out     int // the commands' end
	flags   int // original flags of out
	size    int // original size of the pipe
	kept    int64
	stopped sync.WaitGroup

	mu      sync.Mutex
	b       []byte // what is kept; guarded by mu
	lost    bool   // there was more; guarded by mu
	scratch []byte // guarded by mu
}

func newDrain(kept int64) (*drain, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	d := &drain{out: p[1], kept: kept}
	var err error
	if err = unix.SetNonblock(p[0], true); err == nil { // for the netpoller; the commands' end stays blocking
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

// untouched reports whether the pipe still has its original flags and size.
func (d *drain) untouched() bool {
	flags, err := unix.FcntlInt(uintptr(d.out), unix.F_GETFL, 0)
	size, serr := unix.FcntlInt(uintptr(d.out), unix.F_GETPIPE_SZ, 0)
	return err == nil && serr == nil && flags == d.flags && size == d.size
}

// emptyLocked reads everything that is in the pipe.
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
		return append(d.b[:len(d.b):len(d.b)], Note(d.kept)...), true, err
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

// close ends the use by a command. The pipe stays.
func (d *drain) close() {}

// end closes the pipe.
func (d *drain) end() {
	d.in.Close()
	d.stopped.Wait()
	unix.Close(d.out)
}
