package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdistcc/rdistcc/lab/exp/end"
	"github.com/rdistcc/rdistcc/lab/exp/peer"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// addresses are where a host listens.
type addresses struct{ Verbs, TCP string }

// wants is what a host is told at its start.
type wants struct {
	Addr    string   // IP address to listen on
	Control string   // TCP's congestion control; empty: the kernel's choice
	Dir     string   // for compiles
	Cached  [][]byte // results that it has
}

// host is the small compile server.
type host struct {
	wants
	dev iwarp.Device
	mem *memories

	compiles atomic.Int64 // so far: each has a directory of its own
}

// Handlers returns what a peer does for the experiments of this package.
func Handlers() map[string]peer.Handler {
	return map[string]peer.Handler{"jobs.serve": func(ctx context.Context, arg json.RawMessage) (any, error) {
		h := &host{}
		if err := json.Unmarshal(arg, &h.wants); err != nil {
			return nil, err
		}
		return h.serve(ctx)
	}}
}

// serve serves until ctx ends.
func (h *host) serve(ctx context.Context) (a addresses, err error) {
	if h.dev, err = iwarp.Open(iwarp.Config{}); err != nil {
		return a, err
	}
	if h.mem, err = newMemories(h.dev); err != nil {
		return a, err
	}
	below, err := h.listen()
	if err != nil {
		return a, err
	}
	ln, err := h.dev.Listen(ctx, "", &iwarp.ListenOptions{Listener: below, MaxPending: 1024, MaxPendingPerHost: 1024})
	if err != nil {
		return a, err
	}
	tcp, err := h.listen()
	if err != nil {
		return a, err
	}
	go func() {
		for {
			req, err := ln.Accept(ctx)
			if err != nil {
				return
			}
			go h.verbs(ctx, req)
		}
	}()
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go h.tcp(ctx, c)
		}
	}()
	return addresses{ln.Addr().String(), tcp.Addr().String()}, nil
}

// listen listens on a free port. What it accepts has the listener's congestion control.
func (h *host) listen() (net.Listener, error) {
	ln, err := net.Listen("tcp", net.JoinHostPort(h.Addr, "0"))
	if err != nil || h.Control == "" {
		return ln, err
	}
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	return ln, setControl(raw, h.Control)
}

// setControl sets a socket's congestion control.
func setControl(raw syscall.RawConn, control string) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = os.NewSyscallError("set TCP_CONGESTION", unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, control))
	})
	return errors.Join(err, failed)
}

// verbs serves a connection. Its errors end it, which is how the client learns of them.
func (h *host) verbs(ctx context.Context, req iwarp.ConnRequest) {
	var want hello
	if err := json.Unmarshal(req.Info().PrivateData, &want); err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	slot, err := h.mem.get()
	if err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	defer h.mem.put(slot)
	var receives *end.Memory
	if want.pools() {
		if receives, err = h.mem.get(); err != nil {
			_ = req.Reject([]byte(err.Error()))
			return
		}
		defer h.mem.put(receives)
	}
	e, err := end.New(h.dev, want.options(slot, receives))
	if err != nil {
		_ = req.Reject([]byte(err.Error()))
		return
	}
	defer e.Close()
	if e.Accept(ctx, req) != nil {
		return
	}
	s := &session{host: h, want: want, e: e, pooled: slot}
	if want.Carrier == bySend {
		text := h.mem.text.Get().(*[]byte)
		defer h.mem.text.Put(text)
		s.text = *text
	}
	for {
		if err := s.job(ctx); err != nil {
			if !errors.Is(err, end.ErrEnded) {
				e.QP.Abort()
			}
			return
		}
	}
}

// session is one connection of a host's.
type session struct {
	*host
	want   hello
	e      *end.End
	pooled *end.Memory
	text   []byte // of two-sided jobs
}

// job does one job.
func (s *session) job(ctx context.Context) (err error) {
	mem := s.pooled
	m, err := s.next(ctx)
	if err != nil {
		return err
	}
	first := monotonic()
	if s.want.Memory == each {
		if mem, err = s.mem.fresh(slotLen); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, drop(mem)) }()
	}
	if m.Op == opAsk {
		grant := message{Op: opGrant, STag: uint32(mem.MR.STag()), TO: mem.MR.Base()}
		if err := s.e.Send(ctx, grant.bytes()); err != nil {
			return err
		}
		if m, err = s.next(ctx); err != nil {
			return err
		}
		first = monotonic()
	}
	if m.Op != opJob {
		return fmt.Errorf("message %d where a job was due", m.Op)
	}
	text, err := s.receive(ctx, mem, &m)
	if err != nil {
		return err
	}
	n, err := s.work(ctx, &m, text, mem.Buf[maxText:])
	if err != nil {
		return err
	}
	done := message{Op: opDone, Len: uint32(n), First: first}
	if s.want.Carrier == bySend {
		if err = s.e.Send(ctx, done.bytes()); err == nil {
			err = sendChunks(ctx, s.e, mem, maxText, n)
		}
	} else {
		if n > 0 {
			err = s.e.Post(ctx, &iwarp.SendWR{Op: iwarp.OpWrite, Flags: iwarp.More, SGL: part(mem, maxText, n), STag: iwarp.STag(m.SinkSTag), TO: m.SinkTO})
		}
		if err == nil {
			err = s.e.Send(ctx, done.bytes())
		}
	}
	if err != nil {
		return err
	}
	return s.e.Reap(ctx, 0)
}

// next returns the next control message.
func (s *session) next(ctx context.Context) (m message, err error) {
	b, err := s.e.Receive(ctx)
	if err != nil {
		return m, err
	}
	return parse(b)
}

// receive returns the job's text.
func (s *session) receive(ctx context.Context, mem *end.Memory, m *message) ([]byte, error) {
	n := int(m.Len)
	switch s.want.Carrier {
	case bySend:
		return s.text[:n], receiveChunks(ctx, s.e, s.text[:n])
	case byPull:
		if n == 0 {
			return nil, nil
		}
		wr := &iwarp.SendWR{Op: iwarp.OpRead, SGL: part(mem, 0, n), STag: iwarp.STag(m.STag), TO: m.TO}
		if err := s.e.Post(ctx, wr); err != nil {
			return nil, err
		}
		return mem.Buf[:n], s.e.Reap(ctx, 0)
	}
	return mem.Buf[:n], nil
}

// tcp serves a connection over TCP.
func (h *host) tcp(ctx context.Context, c net.Conn) {
	defer c.Close()
	buf := h.mem.text.Get().(*[]byte)
	defer h.mem.text.Put(buf)
	head, text, result := make([]byte, messageLen), (*buf)[:maxText], (*buf)[maxText:]
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		first := monotonic()
		m, err := parse(head)
		if err != nil {
			return
		}
		if _, err := io.ReadFull(c, text[:m.Len]); err != nil {
			return
		}
		n, err := h.work(ctx, &m, text[:m.Len], result)
		if err != nil {
			return
		}
		done := message{Op: opDone, Len: uint32(n), First: first}
		bufs := net.Buffers{done.bytes(), result[:n]}
		if _, err := bufs.WriteTo(c); err != nil {
			return
		}
	}
}

// work does what a job asks for, and returns the length of the result.
func (h *host) work(ctx context.Context, m *message, text, result []byte) (int, error) {
	switch m.What {
	case doNothing:
		return 0, nil
	case doCached:
		if int(m.Index) >= len(h.Cached) {
			return 0, fmt.Errorf("no result %d", m.Index)
		}
		return copy(result, h.Cached[m.Index]), nil
	}
	dir := filepath.Join(h.Dir, fmt.Sprintf("job%d", h.compiles.Add(1)))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	object, err := compile(ctx, dir, m.What == doCXX, text)
	if err != nil {
		return 0, err
	}
	if len(object) > len(result) {
		return 0, errors.New("the object is too large")
	}
	return copy(result, object), nil
}

// compile compiles preprocessed text in a directory of its own. Its words are the same everywhere, so its object is.
func compile(ctx context.Context, dir string, cxx bool, text []byte) ([]byte, error) {
	compiler, name := "gcc", "unit.i"
	if cxx {
		compiler, name = "g++", "unit.ii"
	}
	if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, compiler, "-O1", "-c", name, "-o", "unit.o")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", compiler, err, strings.TrimSpace(string(out)))
	}
	return os.ReadFile(filepath.Join(dir, "unit.o"))
}
