// Package wire has the experiments about messages: what they take in time and CPU, by transport, framing and way of
// waiting, and how they fare beside each other. Both processes are on this machine, and loopback is between them.
package wire

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// Operations.
const (
	opTCP     = "tcp"
	opSend    = "send"
	opWrite   = "write"
	opRead    = "read"
	opReflect = "reflect" // the peer answers with the message itself
)

// hello is what a client says first: what the connection is for. It is the private data of a QP's request.
type hello struct {
	Echo    bool   `json:"e,omitempty"` // each message is answered, else the stream is
	Op      string `json:"o"`
	Size    int    `json:"s"`           // bytes of a message
	Recvs   int    `json:"r,omitempty"` // receives of the server, of Size bytes each if Op is send
	Window  int    `json:"w,omitempty"` // bytes that the client may write; 0: Size
	ThinkUS int    `json:"t,omitempty"` // time before an answer
	NoCRC   bool   `json:"c,omitempty"`
	Markers bool   `json:"m,omitempty"`
	Payload int    `json:"p,omitempty"` // of an FPDU, at most; 0: the stack's own choice
}

// depth is how many Reads may be outstanding, and messages of a stream at most.
const depth = 16

// untaggedHeader is the longer of the two headers of a DDP segment, in bytes.
const untaggedHeader = 18

// options returns what both ends of a connection are made with.
func (h *hello) options(w iwarp.Waiting) end.Options {
	o := end.Options{Window: max(h.Size, h.Window, 64), Wait: w, Conn: iwarp.ConnParam{ORD: depth, IRD: depth, Markers: h.Markers}}
	if h.NoCRC {
		o.Conn.CRC = iwarp.CRCOffIfAgreed
	}
	if h.Payload > 0 {
		o.Conn.MaxULPDU = h.Payload + untaggedHeader
	}
	if h.Echo && h.Op != opWrite { // the messages, and the answers
		o.Recvs, o.RecvLen = 4, h.Size
	}
	return o
}

// addresses are where a server listens.
type addresses struct{ Verbs, TCP string }

// Handlers returns what a peer does for the experiments of this package.
func Handlers() map[string]peer.Handler {
	return map[string]peer.Handler{"wire.serve": func(ctx context.Context, _ json.RawMessage) (any, error) { return serve(ctx) }}
}

// serve serves until ctx ends.
func serve(ctx context.Context) (a addresses, err error) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		return a, err
	}
	ln, err := dev.Listen(ctx, "127.0.0.1:0", nil)
	if err != nil {
		return a, err
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return a, err
	}
	go func() {
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			go serveVerbs(ctx, dev, req)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go serveTCP(c)
		}
	}()
	return addresses{ln.Addr().String(), tcp.Addr().String()}, nil
}

// serveVerbs serves one connection. The client finds out about errors, by the connection's end.
func serveVerbs(ctx context.Context, dev iwarp.Device, req iwarp.ConnRequest) {
	var h hello
	if err := json.Unmarshal(req.Info().PrivateData, &h); err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	o := h.options(iwarp.Waiting{})
	if h.Recvs > 0 {
		o.Recvs, o.RecvLen = h.Recvs+2, h.Size
	}
	e, err := end.New(dev, o)
	if err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	defer e.Close()
	if e.Accept(ctx, req) != nil {
		return
	}
	if h.Echo {
		_ = echo(ctx, e, &h)
	} else {
		_ = sink(ctx, e, &h)
	}
}

// echo answers each message.
func echo(ctx context.Context, e *end.End, h *hello) error {
	for {
		m, err := e.Receive(ctx)
		if err != nil {
			return err
		}
		think(h.ThinkUS)
		if h.Op == opReflect {
			err = e.Send(ctx, m)
		} else {
			err = pass(ctx, e, h)
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

// pass sends a message by Send, or by a Write with a short Send behind it.
func pass(ctx context.Context, e *end.End, h *hello) error {
	if h.Op == opSend {
		return e.SendPart(ctx, 0, h.Size)
	}
	return errors.Join(e.Write(ctx, 0, h.Size, iwarp.More), e.Send(ctx, []byte{0}))
}

// sink takes a stream. A message of one byte ends it, and is answered by one. Sends of the stream are reported, half
// of the receives at a time, by two bytes: iWARP has no word for "no receive is posted".
func sink(ctx context.Context, e *end.End, h *hello) error {
	for n := 0; ; {
		m, err := e.Receive(ctx)
		if err != nil {
			return err
		}
		switch {
		case len(m) == 1:
			err = e.Send(ctx, m)
		case n+1 == ackEvery(h.Recvs):
			n = 0
			err = e.Send(ctx, []byte{1, 1})
		default:
			n++
		}
		if err != nil {
			return err
		}
	}
}

// ackEvery returns after how many Sends the receiver reports them.
func ackEvery(recvs int) int { return max(1, recvs/2) }

// dialTCP connects and says hello.
func dialTCP(ctx context.Context, addr string, h *hello) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(h)
	if err == nil {
		_, err = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// maxHello bounds a hello over TCP, in bytes.
const maxHello = 4096

func serveTCP(c net.Conn) {
	defer c.Close()
	var n [4]byte
	if _, err := io.ReadFull(c, n[:]); err != nil || binary.BigEndian.Uint32(n[:]) > maxHello {
		return
	}
	b := make([]byte, binary.BigEndian.Uint32(n[:]))
	if _, err := io.ReadFull(c, b); err != nil {
		return
	}
	var h hello
	if json.Unmarshal(b, &h) != nil || h.Size <= 0 {
		return
	}
	buf := end.Filled(h.Size)
	for {
		if _, err := io.ReadFull(c, buf); err != nil {
			break
		}
		if h.Echo {
			think(h.ThinkUS)
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}
	if !h.Echo {
		_, _ = c.Write([]byte{1}) // all of the stream has been read
	}
}

// server is the other side with its servers, and a device on this one.
type server struct {
	at   addresses
	proc *peer.Process
	dev  iwarp.Device
}

func startServer(say func(string)) (s *server, err error) {
	s = &server{}
	defer func() {
		if err != nil {
			_ = s.Close()
		}
	}()
	if s.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		return s, err
	}
	if s.proc, err = peer.Start(nil); err != nil {
		return s, err
	}
	if say != nil {
		say(s.proc.Source())
	}
	return s, s.proc.Call("wire.serve", nil, &s.at)
}

// Close ends both.
func (s *server) Close() (err error) {
	if s.dev != nil {
		err = s.dev.Close()
	}
	if s.proc != nil {
		err = errors.Join(err, s.proc.Close())
	}
	return err
}

// dial connects an end that does what h says.
func (s *server) dial(ctx context.Context, h *hello, w iwarp.Waiting) (*end.End, error) {
	return s.dialWith(ctx, h, h.options(w))
}

// dialWith does the same with options of its own for this end.
func (s *server) dialWith(ctx context.Context, h *hello, o end.Options) (*end.End, error) {
	e, err := end.New(s.dev, o)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(h)
	if err == nil {
		err = e.Dial(ctx, s.at.Verbs, b)
	}
	if err != nil {
		e.Close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return e, nil
}

// cost is what a stretch of work has taken.
type cost struct{ wall, client, server time.Duration }

// clock measures f.
func (s *server) clock(f func() error) (c cost, err error) {
	c.wall, c.client, c.server, err = s.proc.Clock(f)
	return c, err
}
