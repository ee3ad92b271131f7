package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// reclaimLocked ends at most one connection, to free the memory in its slots. It is part of a tick.
func (s *Server) reclaimLocked(now time.Time) {
	if !s.lend.MayReclaim(s.o.Slot) {
		return
	}
	list := make([]lend.Filled, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, lend.Filled{Conn: c.lent, Bytes: c.unsentLocked(now)})
	}
	worst, of, sum := s.lend.Reclaim(list)
	if worst == nil {
		return
	}
	c := connOf(worst)
	c.log.Warn("memory is short, and most of what lies in slots without a job is this client's", "bytes", of, "of", sum, "free", s.load.Load().memoryFree)
	s.o.Metrics.limited(limitSlots)
	c.ending = endedHoarding
	c.qp.Abort()
}

// unsentLocked returns how many bytes the client has written into slots without sending a job.
func (c *conn) unsentLocked(now time.Time) (n int64) {
	for _, k := range c.credits {
		if k.lent.Lies(now) {
			n += k.buf.Touched()
		}
	}
	return n
}
