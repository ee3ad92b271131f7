package ipcserver

import (
	"context"
	"errors"
	"log/slog"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Session is one wrapper's connection, read as messages. One goroutine owns it and reads by
// itself; only while that waits for something else a second one does (Watch), to end
// Context when the wrapper is gone.
type Session struct {
	conn    *Conn // nil: Detached
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	watched bool         // a message, or nil for the end, is going to be in frames
	frames  chan Message // capacity 1
}

// Message is a parsed frame of a wrapper's: a Lease, Submit, Local, Finish, Control or Replace of
// package ipc, GoAhead or OtherVersion.
type Message interface{ Parse([]byte) error }

// OtherVersion stands for a frame of another version of the protocol.
type OtherVersion struct{}

// Parse implements Message.
func (OtherVersion) Parse([]byte) error { return nil }

// GoAhead is a successor's word that it serves.
type GoAhead struct{}

// Parse implements Message.
func (GoAhead) Parse([]byte) error { return nil }

// NewSession returns the session on conn, which it owns; its context ends with ctx.
func NewSession(ctx context.Context, conn *Conn, log *slog.Logger) Session {
	s := Session{conn: conn, log: log, frames: make(chan Message, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Detached returns a session of no wrapper, for tests of what serves one: there is nothing to read and
// nobody to go away.
func Detached(ctx context.Context) Session { return Session{ctx: ctx, cancel: func() {}} }

// Context returns what ends when the wrapper is known to be gone.
func (s *Session) Context() context.Context { return s.ctx }

// Next waits for a message; nil says that the wrapper is gone, or has said what makes no sense.
func (s *Session) Next() Message {
	if s.watched {
		s.watched = false
		return <-s.frames
	}
	return s.read()
}

// Watch reads the next message in the background; should the wrapper go away
// instead, the context ends. It is for everything that can take long.
func (s *Session) Watch() {
	if s.watched || s.conn == nil {
		return
	}
	s.watched = true
	go func() { // End waits for it
		f := s.read()
		if f == nil {
			s.cancel()
		}
		s.frames <- f
	}()
}

// Send answers with a message.
func (s *Session) Send(m interface{ Append([]byte) []byte }, fds ...int) error {
	return s.SendFrame(m.Append(nil), fds...)
}

// SendFrame is Send for what is encoded already.
func (s *Session) SendFrame(frame []byte, fds ...int) error { return s.conn.Send(frame, fds...) }

// Peer returns the user and the process that connected.
func (s *Session) Peer() (uid uint32, pid int32, err error) {
	p, err := s.conn.Peer()
	if err != nil {
		return 0, 0, err
	}
	return p.Uid, p.Pid, nil
}

// Close ends the connection, from whatever goroutine: what reads finds that the wrapper is gone.
func (s *Session) Close() error { return s.conn.Close() }

// End ends the session, and returns when nothing reads it any more.
func (s *Session) End() {
	s.cancel()
	_ = s.conn.Close() // nothing is left to be said
	if s.watched {
		<-s.frames
	}
}

// read waits for a frame and parses it; nil says that there is none to come, or
// none that makes sense.
func (s *Session) read() Message {
	kind, fields, err := s.conn.Recv()
	if err != nil {
		s.log.Debug("wrapper gone", "err", err)
		return nil
	}
	var msg Message
	switch kind {
	case ipc.KindLease:
		msg = new(ipc.Lease)
	case ipc.KindSubmit:
		msg = new(ipc.Submit)
	case ipc.KindLocal:
		msg = new(ipc.Local)
	case ipc.KindFinish:
		msg = new(ipc.Finish)
	case ipc.KindControl:
		msg = new(ipc.Control)
	case ipc.KindReplace:
		msg = new(ipc.Replace)
	case ipc.KindGo:
		msg = GoAhead{}
	default:
		s.log.Warn("wrapper sent a frame of a kind that wrappers do not send", "kind", kind)
		return nil
	}
	switch err := msg.Parse(fields); {
	case errors.Is(err, ipc.ErrVersion):
		return OtherVersion{}
	case err != nil:
		s.log.Warn("wrapper sent a frame that cannot be read", "kind", kind, "err", err)
		return nil
	}
	return msg
}
