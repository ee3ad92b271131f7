package capture

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// DefaultLimit is how long a file becomes at most, in bytes, if Options does not say.
const DefaultLimit = 64 << 20

// MinLimit is the least Options.Limit: the longest FPDU fits some times.
const MinLimit = 1 << 20

// Options of a File. The zero value is usable.
type Options struct {
	Limit   int64             // bytes, at least MinLimit; 0 = DefaultLimit
	Payload bool              // record what messages carry, too
	Log     func(line string) // is told once why a file ended early, and of connections that are left out; nil: nobody is
}

// File is a capture. It is safe for concurrent use.
type File struct {
	o    Options
	name string

	mu   sync.Mutex // guards what follows
	f    *os.File   // nil: the capture has ended
	size int64      // bytes, of whole blocks
	err  error      // of writing
}

// Create makes a file, or empties one that exists, that only its owner can read.
func Create(name string, o Options) (*File, error) {
	if o.Limit == 0 {
		o.Limit = DefaultLimit
	}
	if o.Limit < MinLimit {
		return nil, fmt.Errorf("capture: a limit of %d bytes is too small: give at least %d", o.Limit, MinLimit)
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	head := fileHead()
	if _, err := f.Write(head); err != nil {
		return nil, errors.Join(fmt.Errorf("capture: %w", err), f.Close())
	}
	return &File{o: o, name: name, f: f, size: int64(len(head))}, nil
}

// Close ends the capture. Connections go on without. It returns the first error of writing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.f == nil {
		return f.err
	}
	err := f.f.Close()
	f.f = nil
	return errors.Join(f.err, err)
}

// write adds a block.
func (f *File) write(block []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.f == nil:
		return
	case f.size+int64(len(block)) > f.o.Limit:
		f.endLocked(fmt.Sprintf("the next packet would pass the limit of %d bytes", f.o.Limit))
		return
	}
	if _, err := f.f.WriteAt(block, f.size); err != nil {
		f.err = fmt.Errorf("capture: %w", err)
		f.endLocked(err.Error())
		return
	}
	f.size += int64(len(block))
}

// endLocked ends the capture behind the last whole block.
func (f *File) endLocked(why string) {
	_ = f.f.Truncate(f.size) // what is left of a block that did not fit would make the file unreadable
	_ = f.f.Close()
	f.f = nil
	f.log("capture " + f.name + " ends: " + why)
}

func (f *File) log(line string) {
	if f.o.Log != nil {
		f.o.Log(line)
	}
}

// Dial returns a function for iwarp.Config.Dial whose connections are recorded. They come from dial; nil means TCP.
func (f *File) Dial(dial func(ctx context.Context, addr string) (net.Conn, error)) func(ctx context.Context, addr string) (net.Conn, error) {
	return func(ctx context.Context, addr string) (net.Conn, error) {
		if dial == nil {
			dial = func(ctx context.Context, addr string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", addr)
			}
		}
		c, err := dial(ctx, addr)
		if err != nil {
			return nil, err
		}
		return f.wrap(c, true), nil
	}
}

// Listen returns a function for iwarp.Config.Listen whose listeners' connections are recorded. They come from listen.
func (f *File) Listen(listen func(ctx context.Context, addr string) (net.Listener, error)) func(ctx context.Context, addr string) (net.Listener, error) {
	return func(ctx context.Context, addr string) (net.Listener, error) {
		l, err := listen(ctx, addr)
		if err != nil {
			return nil, err
		}
		return &listener{Listener: l, f: f}, nil
	}
}

type listener struct {
	net.Listener
	f *File
}

func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.f.wrap(c, false), nil
}

// wrap records c from now on. Once the capture has ended it leaves c alone.
func (f *File) wrap(c net.Conn, dialled bool) net.Conn {
	f.mu.Lock()
	over := f.f == nil
	f.mu.Unlock()
	if over {
		return c
	}
	return newConn(f, c, dialled)
}
