// Package streams has the experiments about streams of bytes over verbs: where they go, by what rule, and what the sender's
// memory costs.
package streams

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/stream"
)

// hello is what a sender says first, in the request's private data: what its receiver does.
type hello struct {
	Size    int `json:"s"`           // bytes of a message, and of a receive
	Recvs   int `json:"r"`           // that are posted at a time
	Ring    int `json:"g,omitempty"` // bytes of the hidden ring; 0: package stream's default
	Warm    int `json:"w"`           // messages after which the receiver says so
	Each    int `json:"e,omitempty"` // messages after which it says so each time; 0: never
	ThinkUS int `json:"t,omitempty"` // time between a message and the next receive

	Read      bool `json:"d,omitempty"` // it has no receives, but Reads
	DirectMin int  `json:"m,omitempty"` // from which these are offered; 0: package stream's default
}

// report is what a receiver says at the end.
type report struct{ Bytes, Direct uint64 }

// Handlers returns what a peer does for the experiments of this package.
func Handlers() map[string]peer.Handler {
	return map[string]peer.Handler{"streams.serve": func(ctx context.Context, arg json.RawMessage) (any, error) {
		var addr string
		if err := json.Unmarshal(arg, &addr); err != nil {
			return nil, err
		}
		return serve(ctx, addr)
	}}
}

// serve receives streams on an address until ctx ends. It returns where it listens.
func serve(ctx context.Context, addr string) (string, error) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		return "", err
	}
	ln, err := dev.Listen(ctx, net.JoinHostPort(addr, "0"), nil)
	if err != nil {
		return "", err
	}
	go func() {
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			go accept(ctx, dev, req)
		}
	}()
	return ln.Addr().String(), nil
}

// accept receives one stream. The sender finds out about errors, by the stream's end.
func accept(ctx context.Context, dev iwarp.Device, req iwarp.ConnRequest) {
	var h hello
	if err := json.Unmarshal(req.Info().PrivateData, &h); err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	c, err := stream.Accept(ctx, dev, req, nil, stream.Config{Ring: h.Ring, DirectMin: h.DirectMin})
	if err != nil {
		return
	}
	defer c.Close()
	how := receive
	if h.Read {
		how = read
	}
	if err := how(c, &h); err != nil {
		return
	}
	s := c.Stats()
	_ = json.NewEncoder(c).Encode(report{s.Received, s.ReceivedDirect})
}

// receive receives to the end of the stream, with receives posted ahead.
func receive(c *stream.Conn, h *hello) error {
	buf := make([]byte, h.Recvs*h.Size)
	for i := 0; i < len(buf); i += 4096 {
		buf[i] = 1
	}
	ops := make([]*stream.Op, h.Recvs)
	post := func(i int) (err error) {
		ops[i], err = c.PostRecv(buf[i*h.Size:][:h.Size:h.Size], true)
		return err
	}
	for i := range ops {
		if err := post(i); err != nil {
			return err
		}
	}
	for n := 1; ; n++ {
		i := (n - 1) % len(ops)
		if ops[i] == nil { // it could not be posted any more
			return nil
		}
		_, err := ops[i].Wait()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			think(h.ThinkUS)
			err = post(i)
		}
		if errors.Is(err, io.EOF) { // those that are posted are complete
			continue
		}
		if err == nil && (n == h.Warm || h.Each > 0 && n > h.Warm && (n-h.Warm)%h.Each == 0) {
			_, err = c.Write([]byte{1})
		}
		if err != nil {
			return err
		}
	}
}

// think lets time pass: by the system call, as Go's own timers have milliseconds.
func think(us int) {
	if us > 0 {
		t := unix.NsecToTimespec(int64(us) * 1000)
		_ = unix.Nanosleep(&t, nil)
	}
}

// sides are a sender in this process and receivers in another.
type sides struct {
	dev  iwarp.Device
	proc *peer.Process
	addr string
}

// place is where the two sides are.
type place struct {
	addr  string // of the receivers
	dial  func(ctx context.Context, addr string) (net.Conn, error)
	start func(*exec.Cmd) error // nil: as processes start
}

var loopback = place{addr: "127.0.0.1"}

func start(p place, say func(string)) (s *sides, err error) {
	s = &sides{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.dev, err = iwarp.Open(iwarp.Config{Dial: p.dial}); err != nil {
		return s, err
	}
	if s.proc, err = peer.Start(p.start); err != nil {
		return s, err
	}
	if say != nil {
		say(s.proc.Source())
	}
	return s, s.proc.Call("streams.serve", p.addr, &s.addr)
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

// dial makes a stream.
func (s *sides) dial(ctx context.Context, h *hello, c stream.Config) (*stream.Conn, error) {
	b, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	c.Linger = 2 * time.Second
	return stream.Dial(ctx, s.dev, s.addr, &iwarp.ConnParam{PrivateData: b}, c)
}

// answer waits for the receiver's word about messages that it has.
func answer(c *stream.Conn) error {
	var b [1]byte
	_, err := c.Read(b[:])
	return err
}

// finish ends the stream, and returns what the receiver says.
func finish(c *stream.Conn) (r report, err error) {
	if err = c.CloseWrite(); err != nil {
		return r, err
	}
	if err = json.NewDecoder(struct{ io.Reader }{c}).Decode(&r); err != nil {
		err = fmt.Errorf("the receiver's report: %w", err)
	}
	return r, err
}

// end gives everything back.
func end(c *stream.Conn) {
	_ = c.Close()
	<-c.Done()
}

// cost is what a stretch of work has taken.
type cost struct{ wall, sender, receiver time.Duration }

// clock measures f.
func (s *sides) clock(f func() error) (c cost, err error) {
	c.wall, c.sender, c.receiver, err = s.proc.Clock(f)
	return c, err
}

// gbps returns a rate in Gb/s.
func (c *cost) gbps(bytes int64) float64 { return float64(bytes) * 8 / float64(c.wall.Nanoseconds()) }

// perGB returns CPU seconds for a GB.
func perGB(cpu time.Duration, bytes int64) float64 { return cpu.Seconds() / (float64(bytes) / 1e9) }
