package jobs

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// sides are a client in this process and a host in another.
type sides struct {
	client
	proc *peer.Process
}

// place is where the two sides are: on loopback, or on hosts of a network.
type place struct {
	addr  string // of the host
	dial  func(ctx context.Context, addr string) (net.Conn, error)
	start func(*exec.Cmd) error // nil: as processes start

	control string // TCP's congestion control at the host; empty: the kernel's choice
}

// loopback has both sides on this machine.
var loopback = place{addr: "127.0.0.1", dial: func(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}}

// start starts both sides. dir is for the host's compiles.
func start(p place, dir string, cached [][]byte, say func(string)) (s *sides, err error) {
	s = &sides{client: client{dial: p.dial}}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.dev, err = iwarp.Open(iwarp.Config{Dial: p.dial}); err != nil {
		return s, err
	}
	if s.mem, err = newMemories(s.dev); err != nil {
		return s, err
	}
	if s.proc, err = peer.Start(p.start); err != nil {
		return s, err
	}
	if say != nil {
		say(s.proc.Source())
	}
	dir = filepath.Join(dir, "host")
	if err = os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	return s, s.proc.Call("jobs.serve", &wants{Addr: p.addr, Control: p.control, Dir: dir, Cached: cached}, &s.at)
}

// Close ends both.
func (s *sides) Close() (err error) {
	if s.dev != nil {
		err = s.dev.Close()
	}
	if s.proc != nil {
		err = errors.Join(err, s.proc.Close())
	}
	return err
}

// cost is what a stretch of work has taken.
type cost struct{ wall, client, host time.Duration }

// clock measures f.
func (s *sides) clock(f func() error) (c cost, err error) {
	c.wall, c.client, c.host, err = s.proc.Clock(f)
	return c, err
}

// ms returns a duration in milliseconds.
func ms(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// What is kept between jobs.
const (
	cold = "cold" // nothing: a connection for each job
	warm = "warm" // the connection
)
