package worker

import (
	"fmt"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// newSlotLocked makes a slot for c; nil when all are in use or the system gives
// no memory: a later rebalance tries again.
func (c *conn) newSlotLocked() *credit {
	// The connection is the owner: a job may name more text than its client has
	// written, and be compiled from what an earlier one has left.
	buf, err := c.s.slots.TryGet(uint32(c.id))
	if err != nil {
		c.log.Warn("no slot", "err", err)
	}
	if buf == nil {
		return nil
	}
	if !c.s.o.Device.Attr().ReadRight {
		clear(buf.Bytes()) // the peer could read what an earlier one has left
	}
	var k *credit
	defer func() {
		if k == nil {
			buf.Put()
		}
	}()
	// Bound to this QP: no other stream may write it, and this one's Job or Return
	// may invalidate it.
	mr, err := c.pd.RegMR(buf.Bytes(), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		c.log.Warn("no slot", "err", err)
		return nil
	}
	k = &credit{buf: buf, mr: mr}
	return k
}

// lendLocked puts a slot on loan to the peer.
func (c *conn) lendLocked(k *credit, lent *lend.Credit) {
	k.lent = lent
	c.credits[lent.ID] = k
}

// rebalanceLocked grants and recalls what is due, and sends what else is.
func (s *Server) rebalanceLocked() {
	if s.drain.begun || s.closing {
		return
	}
	r := s.lend.Round(time.Now())
	for to := r.Next(); to != nil; to = r.Next() {
		c := connOf(to)
		k := c.newSlotLocked()
		if k == nil {
			r.Lack()
			continue
		}
		c.lendLocked(k, r.Grant())
		c.toGrant = append(c.toGrant, k.lent.ID)
	}
	for c := range s.conns {
		c.toRecall = 0
	}
	for _, x := range r.Recalls() {
		connOf(x.Conn).toRecall = x.Count
	}
	for c := range s.conns {
		c.pumpLocked()
	}
}

// nextLocked gives the credit that rides back on a result; nil: none does.
func (c *conn) nextLocked() *credit {
	s := c.s
	if s.drain.begun || s.closing || c.state != connServing {
		return nil
	}
	now := time.Now()
	if !s.lend.Due(c.lent, now) {
		return nil
	}
	k := c.newSlotLocked()
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

// demanded takes a client's word on how much work it has.
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

// spendLocked ends a loan. The message that spends a credit must have invalidated
// its slot: else the peer could still write what we are about to read.
func (c *conn) spendLocked(id uint64, w *iwarp.WC) (*credit, error) {
	k := c.credits[id]
	if k == nil {
		return nil, fmt.Errorf("credit %d is not the client's", id)
	}
	if !c.shut(w, k.mr) {
		return nil, fmt.Errorf("credit %d is spent without invalidating its slot", id)
	}
	delete(c.credits, id)
	c.lent.Spent(k.lent)
	return k, nil
}
