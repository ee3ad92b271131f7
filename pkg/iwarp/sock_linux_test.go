package iwarp

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSocketOptions looks at both ends of a connection as the kernel has them.
func TestSocketOptions(t *testing.T) {
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	cfg := dev.(*soft).cfg
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	l, err := cfg.Listen(ctx, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := cfg.Dial(ctx, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for _, c := range []net.Conn{a, b} {
		tuneConn(c, 7*time.Second)
		control(c.(*net.TCPConn), func(fd int) {
			for name, x := range map[string]struct{ level, opt, want int }{
				"TCP_NODELAY":      {unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
				"TCP_USER_TIMEOUT": {unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 7000},
				"SO_PROTOCOL":      {unix.SOL_SOCKET, unix.SO_PROTOCOL, unix.IPPROTO_TCP},
				"SO_KEEPALIVE":     {unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
			} {
				if got, err := unix.GetsockoptInt(fd, x.level, x.opt); err != nil || got != x.want {
					t.Errorf("%s = %d, %v; want %d", name, got, err, x.want)
				}
			}
		})
		control(c.(*net.TCPConn), func(fd int) {
			if got, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil || got != "reno" {
				t.Errorf("TCP_CONGESTION = %q, %v; want reno, as on each connection of loopback", got, err)
			}
		})
		limitUnsent(c, 0)
		limitUnsent(c, 128<<10)
		control(c.(*net.TCPConn), func(fd int) {
			if got, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT); err != nil || got != 128<<10 {
				t.Errorf("TCP_NOTSENT_LOWAT = %d, %v; want %d", got, err, 128<<10)
			}
		})
		if n := segmentSize(c); n < 500 || n > 65535 {
			t.Errorf("segment size %d", n)
		}
	}
}

// TestPathStats: what the kernel says of a connection that has moved a few megabytes.
func TestPathStats(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if s := pathStats(a); s != (PathStats{}) {
		t.Errorf("of a pipe: %+v, want nothing", s)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, far)
		far.Close()
	}()
	go func() {
		_, _ = c.Write(make([]byte, 8<<20))
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	n, err := io.Copy(io.Discard, c)
	<-done
	if s := pathStats(c); n != 8<<20 || err != nil || s.RTT <= 0 || s.RTT > time.Second || s.Window < 1000 || s.Rate == 0 || s.Acked < 8<<20 || s.Acked > 8<<20+2 {
		t.Errorf("%d bytes, %v: %+v", n, err, s)
	}
}

func TestChooseMULPDU(t *testing.T) {
	for wish, want := range map[int]int{0: targetULPDU, 1454: 1454, 60000: 60000, 70000: 64768, 5: 128} {
		if got := chooseMULPDU(0, wish, false); got != want {
			t.Errorf("MaxULPDU %d: %d, want %d", wish, got, want)
		}
	}
}
