// Package distcc serves clients of distcc, so that a farm can move from one to the other host by host. It speaks their
// protocol (package proto), and makes each request a job of ours, which it hands to the worker of the same process by a
// connection like any manager's: the job waits in the same queue, is checked by the same policy, runs in the same sandbox with
// the same limits, and is counted and logged with the others.
//
// distcc's protocol has no proof of who a client is, no encryption, no sum over what is sent, and no answer that says no: a
// request that is refused ends with its connection, and the client compiles elsewhere. Why is in the log.
package distcc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"sync"
	"time"

	"github.com/rdistcc/rdistcc/internal/toolchain"
)

// Bounds of what all clients can make this process hold. A connection beyond them waits to be accepted, as distcc's clients
// expect, or is closed if its address has its part already.
const (
	MaxConns   = 128
	maxPerHost = MaxConns * 3 / 4
)

// CauseNetwork is the word for a client that is in no network of Options.Allow, as the worker has it for its own.
const CauseNetwork = "network"

// Times that a client may take. distcc's own is 300 s for all of a job.
const (
	idleTime    = 30 * time.Second // between two pieces of a request, or of an answer
	requestTime = 5 * time.Minute  // for a whole request
	answerTime  = 5 * time.Minute
)

// Options configure a Server.
type Options struct {
	Log     *slog.Logger
	Metrics *Metrics       // nil: not counted
	Allow   []netip.Prefix // networks whose clients are served, in addition to this machine
	Inside  *Inside        // leads to the worker
	// Toolchains returns the compilers that the worker offers, and whether more may follow soon. Dirs are those in which names
	// of compilers are looked up.
	Toolchains func() (list []toolchain.Toolchain, more bool)
	Dirs       func() []string
	Env        []string // variables for compiles, NAME=value each: distcc's clients say nothing of theirs
	Trees      bool     // the worker can show private trees, which version 3 of the protocol needs
	// Headers returns the directories of headers that such a tree shows of this machine.
	Headers func() []string
	// Denied is called for each client that is in no network of Allow.
	Denied func(remote net.Addr, detail string)
	Source int   // bytes of the largest source, or of all files of a job, unpacked
	Memory int64 // bytes that requests may take together while they arrive
}

// Server serves distcc's clients.
type Server struct {
	o    Options
	boot [16]byte
	room chan struct{} // one for each connection
	ctx  context.Context
	stop context.CancelFunc
	wait sync.WaitGroup

	mu        sync.Mutex
	listeners []net.Listener
	draining  bool
	conns     map[netip.Addr]int
	taken     int64         // bytes of requests
	given     chan struct{} // closed when taken becomes less, and made anew
}

// New returns a server without any listener.
func New(o Options) *Server {
	s := &Server{o: o, room: make(chan struct{}, MaxConns), conns: make(map[netip.Addr]int), given: make(chan struct{})}
	_, _ = rand.Read(s.boot[:]) // it never fails
	s.ctx, s.stop = context.WithCancel(context.Background())
	return s
}

// Serve takes connections from l until Drain or Close, and closes l.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		_ = l.Close()
		return
	}
	s.listeners = append(s.listeners, l)
	s.wait.Go(func() { s.accept(l) })
}

// Drain takes no more connections. What was begun goes on.
func (s *Server) Drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for _, l := range s.listeners {
		_ = l.Close()
	}
	s.listeners = nil
}

// closeTime is how long Close waits for answers that are ready to be sent.
const closeTime = 2 * time.Second

// Close ends all connections, and returns when nothing of them is left.
func (s *Server) Close() {
	s.Drain()
	late := time.AfterFunc(closeTime, s.stop)
	defer late.Stop()
	s.wait.Wait()
	s.stop()
}

// accept serves the connections of a listener, each in a goroutine of its own.
func (s *Server) accept(l net.Listener) {
	defer l.Close()
	for {
		select {
		case s.room <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		c, err := l.Accept()
		if err != nil {
			<-s.room
			if errors.Is(err, net.ErrClosed) {
				return
			}
			// Without descriptors, say: what is open ends some time.
			s.o.Log.Error("accept a client of distcc", "addr", l.Addr().String(), "err", err)
			select {
			case <-time.After(100 * time.Millisecond):
			case <-s.ctx.Done():
			}
			continue
		}
		s.wait.Go(func() {
			defer func() { <-s.room }()
			defer c.Close()
			defer func() {
				if p := recover(); p != nil {
					s.o.Log.Error("BUG: a request of distcc's protocol met a panic", "panic", p, "stack", string(debug.Stack()))
				}
			}()
			s.client(c)
		})
	}
}

// client serves a connection, if its address may have one.
func (s *Server) client(c net.Conn) {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return
	}
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if !s.allowed(at.Addr()) {
		s.o.Metrics.count(denied)
		s.o.Denied(c.RemoteAddr(), fmt.Sprintf("%s is in no network of distcc.allow", at.Addr()))
		return
	}
	if !s.enter(at.Addr()) {
		s.o.Metrics.count(busy)
		s.o.Log.Warn("distcc: a client has too many connections", "remote", at.Addr().String(), "most", maxPerHost)
		return
	}
	defer s.leave(at.Addr())
	s.serve(c, at)
}

// allowed reports whether a client may send jobs: it is on this machine, or in a network of Allow.
func (s *Server) allowed(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	for _, p := range s.o.Allow {
		if p.Contains(a.WithZone("")) {
			return true
		}
	}
	return false
}

func (s *Server) enter(a netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[a] >= maxPerHost {
		return false
	}
	s.conns[a]++
	return true
}

func (s *Server) leave(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[a]--; s.conns[a] == 0 {
		delete(s.conns, a)
	}
}

// errMemory ends a request for which no memory became free.
var errMemory = errors.New("requests of distcc's clients take all the memory that they may (buffers.large)")

// take counts memory for a request. It waits until others have given back enough, but not for longer than a client may leave a
// request unfinished: all that wait may be in each other's way.
func (s *Server) take(n int) error {
	late := time.NewTimer(idleTime)
	defer late.Stop()
	for {
		s.mu.Lock()
		given := s.given
		ok := s.taken+int64(n) <= s.o.Memory
		if ok {
			s.taken += int64(n)
		}
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-given:
		case <-late.C:
			return errMemory
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

func (s *Server) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= int64(n)
	close(s.given)
	s.given = make(chan struct{})
}
