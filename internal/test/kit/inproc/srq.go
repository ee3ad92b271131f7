package inproc

import (
	"fmt"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// receive is a posted receive.
type receive struct {
	id     uint64
	sgl    []iwarp.SGE
	length uint64
}

// newReceive copies wr, if it is well formed.
func newReceive(wr *iwarp.RecvWR, maxSGE int) (receive, error) {
	if len(wr.SGL) > maxSGE {
		return receive{}, fmt.Errorf("%w: %d SGEs: this queue takes %d", iwarp.ErrInvalid, len(wr.SGL), maxSGE)
	}
	length, err := sglLength(wr.SGL)
	return receive{wr.ID, append([]iwarp.SGE(nil), wr.SGL...), length}, err
}

// srq is a shared receive queue.
type srq struct {
	pd      *pd
	maxRecv int
	maxSGE  int

	queue []receive // oldest first
	held  int       // places: posted, or taken and not yet polled
	limit int       // of Arm; 0 = not armed
	users int       // QPs
	dead  bool
}

func (p *pd) CreateSRQ(a iwarp.SRQInitAttr) (iwarp.SRQ, error) {
	d := p.dev
	d.n.lock()
	defer d.n.unlock()
	if d.attr.MaxSRQ == 0 {
		return nil, iwarp.ErrUnsupported
	}
	orDefault(&a.MaxRecv, 64)
	orDefault(&a.MaxSGE, 4)
	if a.MaxRecv < 0 || a.MaxSGE < 0 || a.MaxRecv > d.attr.MaxSRQWR || a.MaxSGE > d.attr.MaxSGE {
		return nil, fmt.Errorf("%w: SRQ of %d receives, %d SGEs: at most %d, %d",
			iwarp.ErrLimit, a.MaxRecv, a.MaxSGE, d.attr.MaxSRQWR, d.attr.MaxSGE)
	}
	if err := d.room(d.srqs, d.attr.MaxSRQ, "SRQs"); err != nil {
		return nil, err
	}
	d.srqs++
	p.srqs++
	return &srq{pd: p, maxRecv: a.MaxRecv, maxSGE: a.MaxSGE}, nil
}

func (s *srq) PostRecv(wr *iwarp.RecvWR) error {
	r, err := newReceive(wr, s.maxSGE)
	if err != nil {
		return err
	}
	s.pd.dev.n.lock()
	defer s.pd.dev.n.unlock()
	switch {
	case s.dead:
		return iwarp.ErrClosed
	case s.held == s.maxRecv:
		return iwarp.ErrQueueFull
	}
	s.held++
	s.queue = append(s.queue, r)
	return nil
}

// take returns the oldest receive, which keeps its place.
func (s *srq) take() (r receive, ok bool) {
	if len(s.queue) == 0 {
		return r, false
	}
	r = s.queue[0]
	s.queue = s.queue[1:]
	s.checkLimit()
	return r, true
}

func (s *srq) checkLimit() {
	if s.limit > 0 && len(s.queue) < s.limit {
		s.limit = 0
		s.pd.dev.tell(iwarp.AsyncEvent{Kind: iwarp.EventSRQLimit, SRQ: s})
	}
}

func (s *srq) Arm(limit int) error {
	s.pd.dev.n.lock()
	defer s.pd.dev.n.unlock()
	if limit < 0 || limit > s.maxRecv {
		return fmt.Errorf("%w: SRQ limit %d: at most its %d receives", iwarp.ErrInvalid, limit, s.maxRecv)
	}
	s.limit = limit
	s.checkLimit()
	return nil
}

func (s *srq) Destroy() error {
	s.pd.dev.n.lock()
	defer s.pd.dev.n.unlock()
	if s.dead {
		return nil
	}
	if s.users > 0 {
		return fmt.Errorf("%w: SRQ is still used by %d QPs: destroy them first", iwarp.ErrInvalid, s.users)
	}
	s.dead = true
	s.queue = nil
	s.pd.srqs--
	s.pd.dev.srqs--
	return nil
}
