package ipcserver

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/rdistcc/rdistcc/pkg/connmgr/ipc"
)

// Session is one wrapper's connection, read as messages. One goroutine owns it and reads from it. While the
// owner waits for something else, a second goroutine reads (see Watch) and cancels Context when the wrapper
// has gone.
type Session struct {
	conn    *Conn // nil if Detached
	log     *slog.Logger
	ctx     context.Context
	cancel  context.CancelFunc
	watched bool         // a message, or nil for the end, is or will be in frames
	frames  chan Message // capacity 1
}

// Message is a parsed frame: a Lease, Whole, Submit, Local, Finish, Control or Replace of package ipc, GoAhead or
// OtherVersion.
type Message interface{ Parse([]byte) error }

// OtherVersion stands for a frame of another version of the protocol.
type OtherVersion struct{}

// Parse implements Message.
func (OtherVersion) Parse([]byte) error { return nil }

// GoAhead is the frame Go, with which a new manager says that it serves.
type GoAhead struct{}

// Parse implements Message.
func (GoAhead) Parse([]byte) error { return nil }

// NewSession returns a session on conn, which it owns. Its context ends with ctx.
func NewSession(ctx context.Context, conn *Conn, log *slog.Logger) Session {
	s := Session{conn: conn, log: log, frames: make(chan Message, 1)}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

// Detached returns a session without a wrapper, for tests of code that serves one. There is nothing to read,
// and Watch has no effect.
func Detached(ctx context.Context) Session { return Session{ctx: ctx, cancel: func() {}} }

// Context returns a context that is cancelled when the wrapper is known to have gone.
func (s *Session) Context() context.Context { return s.ctx }

// Next waits for the next message. It returns nil if the wrapper has gone or has sent an invalid frame.
func (s *Session) Next() Message {
	if s.watched {
		s.watched = false
		return <-s.frames
	}
	return s.read()
}

// Watch reads the next message in the background. If the wrapper goes away instead, it cancels the context.
// It is called before anything that can take long.
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

// Send answers with the message m. The descriptors fds stay the caller's.
func (s *Session) Send(m interface{ Append([]byte) []byte }, fds ...int) error {
	return s.SendFrame(m.Append(nil), fds...)
}

// SendFrame is like Send, with a frame that is already encoded.
func (s *Session) SendFrame(frame []byte, fds ...int) error { return s.conn.Send(frame, fds...) }

// Peer returns the user and the process that connected.
func (s *Session) Peer() (uid uint32, pid int32, err error) {
	p, err := s.conn.Peer()
	if err != nil {
		return 0, 0, err
	}
	return p.Uid, p.Pid, nil
}

// Raw returns the connection for another protocol (Conn.Raw). The session still owns it.
func (s *Session) Raw() (net.Conn, error) { return s.conn.Raw() }

// Gone reports whether the wrapper has hung up (Conn.Gone). It may be called from any goroutine.
func (s *Session) Gone() bool { return s.conn.Gone() }

// Close ends the connection. It may be called from any goroutine. A reader then finds that the wrapper has
// gone.
func (s *Session) Close() error { return s.conn.Close() }

// End ends the session. It returns when no goroutine reads from it any more.
func (s *Session) End() {
	s.cancel()
	_ = s.conn.Close() // an error does not matter: nothing is left to send
	if s.watched {
		<-s.frames
	}
}

// read waits for a frame and parses it. It returns nil if none can come any more or if it is invalid.
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
	case ipc.KindWhole:
		msg = new(ipc.Whole)
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
	case ipc.KindMaking:
		msg = new(Making)
	case ipc.KindMade:
		msg = Made{}
	case ipc.KindListed:
		msg = new(ipc.Listed)
	case ipc.KindRan:
		msg = new(ipc.Ran)
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

// Making announces a command that makes a precompiled header here.
type Making struct{ ipc.Lease }

// Made says that it has made it.
type Made struct{}

// Parse does nothing: there are no fields.
func (Made) Parse([]byte) error { return nil }
