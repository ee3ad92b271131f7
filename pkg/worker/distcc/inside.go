package distcc

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/rawjob"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Inside connects this process to its own worker. Each connection is a pair of sockets, one of which the worker accepts from
// Inside as from any listener: so what comes through here is bounded, queued, confined and counted like everything else.
type Inside struct {
	dev  iwarp.Device // of the dialling ends
	came chan net.Conn
	once sync.Once
	done chan struct{}
}

// NewInside returns an Inside that the caller has to close.
func NewInside() (*Inside, error) {
	in := &Inside{came: make(chan net.Conn), done: make(chan struct{})}
	var err error
	in.dev, err = iwarp.Open(iwarp.Config{Dial: in.dial})
	return in, err
}

// Dial connects to the worker on behalf of a client at remote.
func (in *Inside) Dial(ctx context.Context, remote netip.AddrPort, boot [16]byte) (*rawjob.Client, error) {
	return rawjob.DialWith(ctx, in.dev, remote.String(), rawjob.Options{Want: 1, Name: "distcc", Boot: boot})
}

// dial makes a pair of sockets and hands one of them to Accept.
func (in *Inside) dial(ctx context.Context, addr string) (net.Conn, error) {
	remote, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a pair of sockets: %w", err)
	}
	ours, err := connOf(fds[0])
	if err != nil {
		_ = unix.Close(fds[1])
		return nil, err
	}
	theirs, err := connOf(fds[1])
	if err != nil {
		_ = ours.Close()
		return nil, err
	}
	select {
	case in.came <- &end{theirs, net.TCPAddrFromAddrPort(remote)}:
		return ours, nil
	case <-in.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = ours.Close()
	_ = theirs.Close()
	return nil, err
}

// connOf returns a connection in place of a descriptor, which it closes.
func connOf(fd int) (net.Conn, error) {
	f := os.NewFile(uintptr(fd), "inside")
	defer f.Close()
	return net.FileConn(f)
}

// end is the worker's end of a connection, which has the address of the client that it is for.
type end struct {
	net.Conn
	remote net.Addr
}

func (e *end) RemoteAddr() net.Addr { return e.remote }

// Accept returns the next connection of Dial.
func (in *Inside) Accept() (net.Conn, error) {
	select {
	case c := <-in.came:
		return c, nil
	case <-in.done:
		return nil, net.ErrClosed
	}
}

// Close ends Accept and Dial, and what Dial has connected. It may be called several times.
func (in *Inside) Close() error {
	in.once.Do(func() { close(in.done) })
	return nil
}

// End releases what Close has left, once no connection is in use.
func (in *Inside) End() error { return in.dev.Close() }

// Addr returns an address for messages.
func (in *Inside) Addr() net.Addr { return &net.UnixAddr{Name: "distcc", Net: "unix"} }
