package worker

// checkIdleLocked closes idle once a draining server has nothing under way.
func (s *Server) checkIdleLocked() {
	if s.drain.idle == nil {
		return
	}
	for c := range s.conns {
		if len(c.tasks) > 0 || len(c.sending) > 0 || len(c.offers) > 0 || !s.drain.impatient && c.state == connServing && len(c.credits) > 0 {
			return
		}
	}
	select {
	case <-s.drain.idle:
	default:
		close(s.drain.idle)
	}
}

// busy reports whether any client has a job under way.
func (s *Server) busy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if len(c.tasks) > 0 {
			return true
		}
	}
	return false
}
