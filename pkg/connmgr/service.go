package connmgr

import (
	"sync"
	"sync/atomic"
)

// service is a manager's time on its socket: whether it serves, and why it does no more.
type service struct {
	stopping    chan struct{} // closed by stop
	idleChanged chan struct{} // capacity 1: Live.IdleExit may be another one
	stopOnce    sync.Once
	replacing   sync.Mutex  // one successor at a time; before mu
	left        atomic.Bool // another manager serves now

	mu       sync.Mutex // guards the rest, and Listener.left
	listener *Listener  // that wrappers are taken from; nil: the manager does not serve
	served   bool       // it has, or does
	endedBy  string     // why it does not any more; empty where something outside ended it
}

// stop makes Serve end.
func (s *service) stop() { s.stopOnce.Do(func() { close(s.stopping) }) }

// begin says that wrappers are taken from l.
func (s *service) begin(l *Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.served = l, true
}

// end says that none are any more, and reports whether another manager takes them now.
func (s *service) end(l *Listener) (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener = nil
	return l.left
}

// ending notes why the manager ends.
func (s *service) ending(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endedBy = why
}

// current returns what wrappers are taken from, or nil.
func (s *service) current() *Listener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listener
}

// isLeft reports whether another manager has l now.
func (s *service) isLeft(l *Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.left
}

// handOn leaves socket and history to another manager.
func (s *service) handOn(l *Listener) {
	s.left.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	l.left = true
}

// past reports whether the manager has served, and why it does not any more.
func (s *service) past() (served bool, endedBy string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served, s.endedBy
}
