package scheduler

import "time"

// delivery is how far a toolchain is on its way to a host. It outlives connections: what was sent once and is sent again is no progress.
type delivery struct {
	done    uint64    // bytes, the most that the host has ever been sent of it
	moved   time.Time // when they became more; at first, when it was known that it is sent
	refused bool      // it cannot be sent there
}

// maxDeliveries bounds what is remembered of one host. A build host uses fewer compilers at a time.
const maxDeliveries = 64

// Coming says that a toolchain is on its way to addr, which has been sent done bytes of it.
func (s *Scheduler) Coming(now time.Time, addr string, id [16]byte, done uint64) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		if d, known := h.coming[id]; !known || d.refused || done > d.done {
			s.delivery(h, id, delivery{done: max(done, d.done), moved: now})
		}
	}
}

// Queued says that a toolchain will be sent to addr when other hosts have been sent theirs, and that this gets on.
func (s *Scheduler) Queued(now time.Time, addr string, id [16]byte) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		s.delivery(h, id, delivery{done: h.coming[id].done, moved: now})
	}
}

// Unsendable says that a toolchain cannot be sent to addr.
func (s *Scheduler) Unsendable(addr string, id [16]byte) {
	if h := s.hosts[addr]; h != nil && h.state == Up {
		s.delivery(h, id, delivery{done: h.coming[id].done, refused: true})
	}
}

func (s *Scheduler) delivery(h *host, id [16]byte, d delivery) {
	was, known := h.coming[id]
	switch {
	case h.coming == nil:
		h.coming = make(map[[16]byte]delivery)
	case !known && len(h.coming) >= maxDeliveries:
		clear(h.coming)
	}
	h.coming[id] = d
	if !known || was.refused != d.refused { // otherwise jobs look again by themselves
		s.changed()
	}
}

// equipped returns until when j, which may not be done here, waits for h to be sent its toolchain: as long as that makes progress. Until
// it is known whether it can be sent, that is as long as for hosts that can come up.
func (s *Scheduler) equipped(now time.Time, h *host, j *Job) time.Time {
	if !j.Strict || !h.capacity.Equipped {
		return time.Time{}
	}
	d, known := h.coming[j.Toolchain]
	switch {
	case !known: // not counted from h.since alone: a host may come and go
		return later(h.since.Add(s.c.Grace), s.strictEnd(now, j))
	case d.refused:
		return time.Time{}
	}
	return s.returnEnd(now, h, j)
}

// returnEnd returns how long j, which may not be done here, waits for h to come back: as long as for any host, and if h has been sent more
// of its toolchain meanwhile, as long from then on.
func (s *Scheduler) returnEnd(now time.Time, h *host, j *Job) time.Time {
	return later(s.strictEnd(now, j), h.coming[j.Toolchain].moved.Add(s.c.Strict))
}
