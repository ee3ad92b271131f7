package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/internal/tcpaddr"
)

// The raw TCP tests send: parameters; a count of messages and the messages (or, with a duration, messages
// until the client's FIN); the server's byte count and CPU time. Reads and Writes are as long as a message,
// as in a simple program. Both sides ask for the congestion control that the stack would ask for, so that what is compared is
// the price of RDMA.

// tcpStats is the server's final message.
type tcpStats struct{ Bytes, CPU uint64 }

func dialTCP(ctx context.Context, o *options) (*net.TCPConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", o.client)
	if err != nil {
		return nil, &exitError{exitConnect, err}
	}
	likeOurs(c.(*net.TCPConn))
	if _, err := c.Write(o.params()); err != nil {
		_ = c.Close()
		return nil, &exitError{exitConnect, err}
	}
	return c.(*net.TCPConn), nil
}

// likeOurs sets the congestion control of c.
func likeOurs(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, tcpaddr.Control(c)) // where the kernel has it
		})
	}
}

func measureTCP(ctx context.Context, o *options) (*result, error) {
	if err := noAuth(ctx, o); err != nil {
		return nil, err
	}
	conns := make([]*net.TCPConn, o.qps)
	for i := range conns {
		c, err := dialTCP(ctx, o)
		if err != nil {
			return nil, err
		}
		defer c.Close()
		defer context.AfterFunc(ctx, func() { _ = c.Close() })()
		conns[i] = c
	}
	r := newResult(o, nil)
	cpu0, t0 := cpuTime(), time.Now()
	if o.t.latency {
		d, err := pingTCP(ctx, conns[0], o)
		if err != nil {
			return nil, &exitError{exitIO, err}
		}
		r.Messages = int64(len(d))
		r.latency(d)
	} else {
		n, err := parallel(o.qps, func(i int) (int64, error) { return pushTCP(ctx, conns[i], o) })
		if err != nil {
			return nil, &exitError{exitIO, err}
		}
		r.Messages = n
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, c := range conns {
		if err := c.CloseWrite(); err != nil {
			return nil, &exitError{exitIO, err}
		}
	}
	for _, c := range conns {
		var s tcpStats
		if err := binary.Read(c, binary.BigEndian, &s); err != nil {
			return nil, &exitError{exitIO, fmt.Errorf("server's figures: %w", err)}
		}
		r.ServerCPU = max(r.ServerCPU, time.Duration(s.CPU).Seconds())
		r.Bytes += int64(s.Bytes)
	}
	r.Seconds = time.Since(t0).Seconds()
	r.ClientCPU = (cpuTime() - cpu0).Seconds()
	r.rates(o)
	if want := r.Messages * int64(o.size); r.Bytes != want {
		return nil, fmt.Errorf("%d bytes sent, %d arrived", want, r.Bytes)
	}
	return r, nil
}

func pushTCP(ctx context.Context, c net.Conn, o *options) (int64, error) {
	buf := filled(int(o.size))
	var n int64
	for more := o.pace(ctx); more(n); n++ {
		if _, err := c.Write(buf); err != nil {
			return n, err
		}
	}
	return n, nil
}

func pingTCP(ctx context.Context, c net.Conn, o *options) ([]time.Duration, error) {
	buf := filled(int(o.size))
	var d []time.Duration
	for more := o.pace(ctx); more(int64(len(d))); {
		t := time.Now()
		if _, err := c.Write(buf); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			return nil, err
		}
		d = append(d, time.Since(t))
	}
	return d, nil
}

// serveTCP answers one client. more reports that it will connect again.
func serveTCP(c *net.TCPConn, t *test) (more bool, err error) {
	likeOurs(c)
	hello := make([]byte, paramsSize)
	if _, err := io.ReadFull(c, hello); err != nil {
		return false, err
	}
	o, err := parseParams(hello, t)
	if err != nil {
		return false, err
	}
	buf := filled(int(o.size))
	cpu0 := cpuTime()
	var s tcpStats
	for {
		var n int
		if t.latency {
			n, err = io.ReadFull(c, buf)
			if err == nil {
				_, err = c.Write(buf)
			}
		} else {
			n, err = c.Read(buf)
		}
		s.Bytes += uint64(n)
		if err == io.EOF {
			break
		}
		if err != nil {
			return false, err
		}
	}
	s.CPU = uint64(cpuTime() - cpu0)
	return o.more, binary.Write(c, binary.BigEndian, &s)
}

// filled returns a buffer whose pages are allocated and not zero.
func filled(n int) []byte {
	b := make([]byte, n)
	fill(b)
	return b
}

func fill(b []byte) {
	for i := range b {
		b[i] = byte(i >> 3)
	}
}

// pace returns a function that reports whether another message should be sent after n.
func (o *options) pace(ctx context.Context) func(n int64) bool {
	if o.iters > 0 {
		limit := int64(o.iters)
		return func(n int64) bool { return n < limit && ctx.Err() == nil }
	}
	end := time.Now().Add(o.duration)
	return func(int64) bool { return time.Now().Before(end) && ctx.Err() == nil }
}

// parallel runs f(0) to f(n-1) in parallel and adds their results.
func parallel(n int, f func(i int) (int64, error)) (int64, error) {
	type part struct {
		n   int64
		err error
	}
	parts := make(chan part, n)
	for i := range n {
		go func() {
			k, err := f(i)
			parts <- part{k, err}
		}()
	}
	var sum int64
	var first error
	for range n {
		p := <-parts
		sum += p.n
		if p.err != nil && first == nil {
			first = p.err
		}
	}
	return sum, first
}

// say writes one line for a person.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintf(w, "rdistcc-perf: "+format+"\n", args...)
}
