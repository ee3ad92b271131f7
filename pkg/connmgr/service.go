package connmgr

import (
	"sync"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// service is a manager's time on its socket: whether it serves, and why it does no more.
type service struct {
	stopping    chan struct{} // closed by stop
	idleChanged chan struct{} // capacity 1: Live.IdleExit may be another one
	stopOnce    sync.Once
	replacing   sync.Mutex  // one successor at a time; before mu
	left        atomic.Bool // another manager serves now

	mu       sync.Mutex       // guards the rest
	listener *socket.Listener // // that wrappers are taken from; nil: the manager does not serve
	served   bool             // it has, or does
	endedBy  string           // why it does not any more; empty where something outside ended it
}

// stop makes Serve end.
func (s *service) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// begin says that wrappers are taken from l.
func (s *service) begin(l *socket.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.served = l, true
}

// end says that none are any more.
func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
}

// ending notes why the manager ends.
func (s *service) ending(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedBy = why
}

// current returns what wrappers are taken from, or nil.
func (s *service) current() *socket.Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// handOn leaves socket and history to another manager.
func (s *service) handOn(l *socket.Listener) {
	s.left.Store(true)
	l.HandOn()
}

// past reports whether the manager has served, and why it does not any more.
func (s *service) past() (served bool, endedBy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.endedBy
}
