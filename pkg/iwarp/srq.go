package iwarp

import (
	"fmt"
	"sync"
)

// srq is a shared receive queue of the software device. Lock order: qp.mu, then
// cq.mu, then srq.mu.
type srq struct {
	// set once in CreateSRQ
	pd     *pd
	maxSGE int

	mu         sync.Mutex // guards what follows
	ring       []recvSlot
	head, tail uint64 // oldest receive, next free place
	held       int    // places taken: posted, or with a QP and not yet polled
	limit      int    // of Arm; 0 = not armed
	qps        int    // QPs that use it
	gone       bool
}

func (p *pd) CreateSRQ(a SRQInitAttr) (SRQ, error) {
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	d := p.dev
	if a.MaxRecv < 0 || a.MaxSGE < 0 {
		return nil, fmt.Errorf("%w: SRQ of %d receives, %d SGEs", ErrInvalid, a.MaxRecv, a.MaxSGE)
	}
	if a.MaxRecv > d.cfg.MaxSRQWR || a.MaxSGE > d.cfg.MaxSGE {
		return nil, fmt.Errorf("%w: SRQ of %d receives, %d SGEs: at most %d (MaxSRQWR), %d (MaxSGE)",
			ErrLimit, a.MaxRecv, a.MaxSGE, d.cfg.MaxSRQWR, d.cfg.MaxSGE)
	}
	if err := p.enter(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		p.leave()
		return nil, ErrClosed
	case d.srqs >= d.cfg.MaxSRQ:
		p.leave()
		return nil, fmt.Errorf("%w: %d SRQs (MaxSRQ)", ErrLimit, d.cfg.MaxSRQ)
	}
	d.srqs++
	return &srq{pd: p, maxSGE: a.MaxSGE, ring: make([]recvSlot, a.MaxRecv)}, nil
}

func (s *srq) PostRecv(wr *RecvWR) error {
	length, err := checkRecv(wr, s.maxSGE)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone:
		return ErrClosed
	case s.held == len(s.ring):
		return ErrQueueFull
	}
	s.held++
	s.ring[s.tail%uint64(len(s.ring))].set(wr, length)
	s.tail++
	return nil
}

func (s *srq) Arm(limit int) error {
	if limit < 0 || limit > len(s.ring) {
		return fmt.Errorf("%w: SRQ limit %d: the queue has %d places", ErrInvalid, limit, len(s.ring))
	}
	s.mu.Lock()
	if s.gone {
		s.mu.Unlock()
		return ErrClosed
	}
	s.limit = limit
	reached := s.reachedLocked()
	s.mu.Unlock()
	s.report(reached)
	return nil
}

// reachedLocked reports whether the limit is reached, and disarms the queue if so.
func (s *srq) reachedLocked() bool {
	if s.limit == 0 || int(s.tail-s.head) >= s.limit {
		return false
	}
	s.limit = 0
	return true
}

func (s *srq) report(reached bool) {
	if reached {
		s.pd.dev.emit(AsyncEvent{Kind: EventSRQLimit, SRQ: s})
	}
}

// take moves the oldest receive to slot, whose SGL's array it takes in exchange: a place may be
// posted to again before the message that has its receive is complete.
func (s *srq) take(slot *recvSlot) bool {
	s.mu.Lock()
	if s.head == s.tail {
		s.mu.Unlock()
		return false
	}
	oldest := &s.ring[s.head%uint64(len(s.ring))]
	*slot, *oldest = *oldest, *slot
	s.head++
	reached := s.reachedLocked()
	s.mu.Unlock()
	s.report(reached)
	return true
}

// release returns n places: completions that have been polled, or dropped.
func (s *srq) release(n int) {
	s.mu.Lock()
	s.held -= n
	s.mu.Unlock()
}

// use counts one more QP.
func (s *srq) use() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return fmt.Errorf("%w: the SRQ is destroyed", ErrClosed)
	}
	s.qps++
	return nil
}

func (s *srq) unuse() {
	s.mu.Lock()
	s.qps--
	s.mu.Unlock()
}

func (s *srq) Destroy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.gone:
		return nil
	case s.qps > 0:
		return fmt.Errorf("%w: %d QPs use the SRQ: destroy them first", ErrInvalid, s.qps)
	}
	s.gone = true
	s.ring = nil
	s.pd.leave()
	d := s.pd.dev
	d.mu.Lock()
	d.srqs--
	d.mu.Unlock()
	return nil
}

// nextShared takes a receive of the SRQ for the message that begins. A QP that holds its maximum gets
// none, so that its peer takes nothing from the others.
func (x *rxState) nextShared() (room uint64, ok bool) {
	q := x.q
	if !take(&q.rqHeld, q.maxRecv) {
		return 0, false
	}
	if !q.srq.take(&x.taken) {
		q.rqHeld.Add(-1)
		return 0, false
	}
	x.cur = &x.taken
	return x.cur.length, true
}
