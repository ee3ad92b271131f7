package connmgr

import (
	"sync"
	"sync/atomic"

	"github.com/rdistcc/rdistcc/pkg/connmgr/socket"
)

// service says whether the manager serves its socket, and why it has stopped.
type service struct {
	stopping    chan struct{} // closed by stop
	idleChanged chan struct{} // capacity 1: Live.IdleExit may have changed
	stopOnce    sync.Once
	replacing   sync.Mutex  // one successor at a time; before mu
	left        atomic.Bool // another manager serves now

	mu       sync.Mutex       // guards the rest
	listener *socket.Listener // wrappers are accepted from it; nil: the manager does not serve
	served   bool             // it has served, or does
	endedBy  string           // why it has stopped; empty if something outside has ended it
}

// stop makes Serve end.
func (s *service) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// begin records that wrappers are accepted from l.
func (s *service) begin(l *socket.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.served = l, true
}

// end records that none are accepted any more.
func (s *service) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
}

// ending records why the manager ends.
func (s *service) ending(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedBy = why
}

// current returns the listener that wrappers are accepted from, or nil.
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

// past reports whether the manager has served, and why it has stopped.
func (s *service) past() (served bool, endedBy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.endedBy
}
