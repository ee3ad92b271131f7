package worker

import (
	"fmt"
	"math"
	"time"

	"github.com/rdistcc/rdistcc/pkg/arena"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
)

// A client's share: each may hold one credit, so that a first job never waits for
// others; the spare ones are divided among the clients that build now, or among
// all when none does. What a client holds are its unspent credits, its jobs that
// are not answered yet, and the results that it has not fetched. The sum of the
// shares never exceeds the number of credits, so when every client is down to its
// share each can have its own.

// credit is a slot on loan: to the peer, until its Job or Return, then to the job.
type credit struct {
	id  uint64
	buf *arena.Buffer
	mr  iwarp.MR
}

func (k *credit) window() job.Window {
	return job.Window{STag: uint32(k.mr.STag()), TO: k.mr.Base(), Len: uint64(k.mr.Len())}
}

// free ends the loan. Nothing may be reading or writing the slot's memory.
func (k *credit) free() error {
	err := k.mr.Dereg()
	if err != nil {
		k.buf.Discard() // whoever may still reach it, no later job is concerned
		return fmt.Errorf("free slot: %w", err)
	}
	k.buf.Put()
	return nil
}

// newCreditLocked lends a slot to c; nil when all are in use or the system gives
// no memory: a later rebalance tries again.
func (c *conn) newCreditLocked() *credit {
	buf, err := c.s.slots.TryGet(0)
	if err != nil {
		c.log.Warn("no slot", "err", err)
	}
	if buf == nil {
		return nil
	}
	if !c.s.o.Device.Attr().ReadRight {
		clear(buf.Bytes()) // the peer could read what an earlier one has left
	}
	// Bound to this QP: no other stream may write it, and this one's Job or Return
	// may invalidate it.
	mr, err := c.pd.RegMR(buf.Bytes(), iwarp.LocalWrite|iwarp.RemoteWrite, &iwarp.MROptions{QP: c.qp})
	if err != nil {
		c.log.Warn("no slot", "err", err)
		buf.Put()
		return nil
	}
	c.s.lastID++
	return &credit{id: c.s.lastID, buf: buf, mr: mr}
}

// heldLocked counts against the share.
func (c *conn) heldLocked() int { return len(c.credits) + len(c.tasks) + len(c.offers) }

func (c *conn) activeLocked(now time.Time) bool {
	return len(c.tasks) > 0 || !c.lastJob.IsZero() && now.Sub(c.lastJob) < activeTime
}

// shareLocked is how many credits c may hold now.
func (c *conn) shareLocked(now time.Time, clients, active int) int {
	n := 1
	switch {
	case active == 0:
		n += c.s.spare() / max(1, clients)
	case c.activeLocked(now):
		n += c.s.spare() / active
	}
	if c.want > 0 {
		n = min(n, c.want)
	}
	if c.demand >= 0 {
		n = min(n, max(1, c.demand))
	}
	return n
}

// demanded takes a client's word on how much work it has.
func (c *conn) demanded(m *job.Demand) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.demand = int(m.Jobs)
	c.s.rebalanceLocked()
}

// countLocked gives the numbers that shares depend on.
func (s *Server) countLocked(now time.Time) (clients, active, free int) {
	free = s.spare()
	for c := range s.conns {
		free++
		free -= c.heldLocked()
		if !c.ready {
			continue
		}
		clients++
		if c.activeLocked(now) {
			active++
		}
	}
	return clients, active, free
}

// rebalanceLocked grants free credits to those below their share. When some stay
// below it, those above are asked to return what they do not use.
func (s *Server) rebalanceLocked() {
	if s.draining || s.closing {
		return
	}
	now := time.Now()
	clients, active, free := s.countLocked(now)
	short := false
	for c := range s.conns {
		if !c.ready {
			continue
		}
		for n := c.shareLocked(now, clients, active) - c.heldLocked(); n > 0; n-- {
			var k *credit
			if free > 0 {
				k = c.newCreditLocked()
			}
			if k == nil {
				short = true
				break
			}
			free--
			c.credits[k.id] = k
			c.toGrant = append(c.toGrant, k.id)
		}
		c.pumpLocked()
	}
	for c := range s.conns {
		over := c.heldLocked() - c.shareLocked(now, clients, active)
		c.toRecall = 0
		if short && c.ready && over > 0 {
			c.toRecall = min(over, len(c.credits), math.MaxUint16)
			c.pumpLocked()
		}
	}
}

// nextLocked gives the credit that rides back on a result, if c's share has room.
// The job that it replaces is not counted any more.
func (c *conn) nextLocked() *credit {
	s := c.s
	if s.draining || s.closing || !c.ready {
		return nil
	}
	now := time.Now()
	clients, active, free := s.countLocked(now)
	if free <= 0 || c.heldLocked() >= c.shareLocked(now, clients, active) {
		return nil
	}
	k := c.newCreditLocked()
	if k != nil {
		c.credits[k.id] = k
	}
	return k
}
