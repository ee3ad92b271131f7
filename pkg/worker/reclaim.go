package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// A slot takes memory as soon as its client writes there, which it may do long before its
// Job, or without one: a client with many connections can fill a slot of each. A slow
// network does the same for a while, so nothing is wrong with that as long as there is
// memory. Where what lies in such slots is more than what the machine has left, the
// tenant with most of it loses the connection that has most; its manager, if it is one, has
// those jobs done elsewhere.

// reclaimAge is how old a credit must be for its slot to count: others are being used.
const reclaimAge = time.Second

// reclaimLocked ends at most one connection. It is part of a tick, and looks at the slots only if
// all of them together could be more than the memory that is left.
func (s *Server) reclaimLocked(now time.Time) {
	free := int64(s.host.Load().memoryFree)
	lent := int64(0)
	for c := range s.conns {
		lent += int64(len(c.credits))
	}
	if free == 0 || lent*s.o.Slot <= free {
		return
	}
	type hoard struct {
		bytes, most int64
		conn        *conn // that has most
	}
	sum, worst := int64(0), (*hoard)(nil)
	of := make(map[*lend.Tenant]*hoard)
	for c := range s.conns {
		n := c.unsentLocked(now)
		if n == 0 || c.ended {
			continue
		}
		h := of[c.lent.Tenant()]
		if h == nil {
			h = &hoard{}
			of[c.lent.Tenant()] = h
		}
		sum, h.bytes = sum+n, h.bytes+n
		if n > h.most {
			h.most, h.conn = n, c
		}
		if worst == nil || h.bytes > worst.bytes {
			worst = h
		}
	}
	if sum <= free || worst == nil {
		return
	}
	worst.conn.log.Warn("memory is short, and most of what lies in slots without a job is this client's", "bytes", worst.bytes, "of", sum, "free", free)
	s.o.Metrics.limited(limitSlots)
	worst.conn.ending = endedHoarding
	worst.conn.qp.Abort()
}

// unsentLocked is what the client has written into slots that it sent no job for, in bytes.
func (c *conn) unsentLocked(now time.Time) (n int64) {
	for _, k := range c.credits {
		if k.lent.Age(now) >= reclaimAge {
			n += k.buf.Touched()
		}
	}
	return n
}
