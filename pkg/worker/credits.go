package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// newSlotLocked returns a slot for c, or nil if there is none. A later rebalance tries again.
func (c *conn) newSlotLocked() *credit {
	k := c.openSlotLocked()
	if k == nil {
		return nil
	}
	return &credit{c: c, slot: *k}
}

// newCreditLocked returns a credit for c, with a slot or without. It returns nil if it needs a slot and there
// is none.
func (c *conn) newCreditLocked() *credit {
	if c.bringsSlotLocked() {
		if k := c.newSlotLocked(); k != nil || !c.pulls() {
			return k
		}
	}
	return &credit{c: c}
}

// bringsSlotLocked reports whether c's next credit has a slot. docs/scheduling.md has the rule.
func (c *conn) bringsSlotLocked() bool {
	s := c.s
	switch {
	case s.o.NoWrite:
		return false
	case !c.pulls():
		return true
	case c.bare:
		return false
	}
	return s.lend.BringsSlot(c.lent, s.slots.Size())
}

// lendLocked lends a credit to the peer, mostly with a slot, before it has a job for it: experiment E2
// (lab/experiments.md) says what that saves.
func (c *conn) lendLocked(k *credit, lent *lend.Credit) {
	k.lent, lent.Bare = lent, k.buf == nil
	c.credits[lent.ID] = k
	c.recvMoreLocked()
}

// recvMoreLocked posts the receive for a message that the client is about to be allowed. If that fails, the connection
// has ended, or ends.
func (c *conn) recvMoreLocked() {
	if err := c.recvDueLocked(); err != nil && !errors.Is(err, iwarp.ErrState) {
		c.log.Warn("post a receive", "err", err)
		c.qp.Abort()
	}
}

// rebalanceLocked grants and recalls credits as the ledger decides, and sends all messages that are due.
func (s *Server) rebalanceLocked() {
	if s.drain.begun || s.closing {
		return
	}
	r := s.lend.Round(time.Now())
	for to := r.Next(); to != nil; to = r.Next() {
		c := connOf(to)
		k := c.newCreditLocked()
		if k == nil {
			r.Lack()
			continue
		}
		c.lendLocked(k, r.Grant())
	}
	r.Recalls() // pumpLocked asks for them
	for c := range s.conns {
		c.pumpLocked()
	}
}

// nextLocked returns the credit that travels with a result, or nil if there is none.
func (c *conn) nextLocked() *credit {
	s := c.s
	if s.drain.begun || s.closing || c.state != connServing {
		return nil
	}
	now := time.Now()
	if !s.lend.Due(c.lent, now) {
		return nil
	}
	k := c.newCreditLocked()
	if k != nil {
		c.lendLocked(k, s.lend.Grant(c.lent, now))
	}
	return k
}

// starvedLocked is called by a core that finds nothing to do.
func (s *Server) starvedLocked() {
	if s.drain.begun {
		return
	}
	rtt := func(c *lend.Conn) time.Duration { return connOf(c).qp.Stats().Path.RTT }
	if s.lend.Starved(time.Now(), rtt) {
		s.rebalanceLocked()
	}
}

// demanded records how much work the client says it has.
func (c *conn) demanded(m *job.Demand) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.lent.Client().SetDemand(int(m.Jobs), int(m.Builds))
	c.s.rebalanceLocked()
}

// returned takes an unspent credit back.
func (c *conn) returned(m *job.Return, w *iwarp.WC) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	k, err := c.spendLocked(m.Credit, w)
	if err != nil {
		return err
	}
	if err := k.free(); err != nil {
		return err
	}
	c.lent.Tenant().Lapsed(time.Now())
	c.s.rebalanceLocked()
	c.s.checkIdleLocked()
	return nil
}

// spendLocked ends a loan to the peer. The message that spends a credit must have invalidated its slot,
// otherwise the peer could still write to it while we read. If
// slots stay open, it can, and takeSource does what is needed.
func (c *conn) spendLocked(id uint64, w *iwarp.WC) (*credit, error) {
	k := c.credits[id]
	if k == nil || !k.lent.Told() { // nobody has told the client of that one: it is a guess
		return nil, fmt.Errorf("credit %d is not the client's", id)
	}
	if k.buf == nil && w.Inv {
		return nil, fmt.Errorf("credit %d has no slot, and is spent with an invalidation", id)
	}
	if k.buf != nil && !c.shutSlot(w, &k.slot) {
		if c.kept.use {
			return nil, fmt.Errorf("credit %d is spent with an invalidation of its slot, which stays open", id)
		}
		return nil, fmt.Errorf("credit %d is spent without invalidating its slot", id)
	}
	delete(c.credits, id)
	c.lent.Spent(k.lent)
	return k, nil
}
