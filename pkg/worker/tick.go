package worker

import (
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// tick calls look periodically until the server stops.
func (s *Server) tick() {
	every := min(time.Second, s.o.Heartbeat)
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
			s.look(every)
		}
	}
}

// look does what is due in one tick.
func (s *Server) look(every time.Duration) {
	defer s.rescue(s.o.Log, nil)
	s.readHostLoad()
	s.shelves.Tick(time.Now(), s.short())
	idle, scan, victims := s.lookAround(every, s.fitStore())
	for _, t := range victims {
		t.stop(job.CauseCancelled)
	}
	if idle {
		s.slots.Trim(0)
		if s.copies != nil {
			s.copies.Trim(0)
		}
		s.places.Trim()
		s.large.Trim()
	}
	if scan {
		s.serving.Go(s.rescan) // it may take seconds
	}
}

// lookAround is the part of look that needs the lock. stale says that trees may have to drop what they keep.
// idle reports that there are no connections, and scan that it is time to look for compilers. The caller
// stops victims.
func (s *Server) lookAround(every time.Duration, stale bool) (idle, scan bool, victims []*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for c := range s.conns {
		c.checkLifeLocked(every)
	}
	s.tellMemoryLocked()
	s.checkFitLocked(now)
	s.canariesLocked(now)
	s.lend.Tick(now)
	s.dropKeptLocked(now.Add(-keptTime))
	s.fetchLocked()
	s.reclaimLocked(now)
	s.rebalanceLocked()
	s.publishLocked()
	victims = s.yieldLocked(now)
	if s.lend.Queued() > 0 || stale {
		s.wake.Broadcast() // a job may get its memory now, and a tree may have to drop what it keeps
	}
	return len(s.conns) == 0, !s.drain.begun && s.compilers.Due(now), victims
}

// fitStore shrinks the store if the machine is short of memory, and lets it grow otherwise. It drops stores
// whose tenants have not come back, and with them the precompiled headers made for these. It reports whether trees may have to
// drop what they keep.
func (s *Server) fitStore() (stale bool) {
	if s.keep == nil {
		return false
	}
	h := s.load.Load()
	st := s.keep.Stats()
	has := st.Bytes + st.Common
	switch spare := int64(h.memoryFree) - storeFloor; {
	case h.memoryFree == 0: // not known
	case s.short():
		s.machine.Forget()
		s.keep.Limit(max(min(has/2, has+spare), storeLeft))
		s.forgets.Add(1)
		stale = true
	default:
		s.keep.Limit(max(has+spare/2, storeLeft))
	}
	wiped := s.keep.Tick(time.Now())
	s.places.Images.Tick(s.short())
	return wiped || stale
}

// short reports whether the machine is short of memory, so that what could be compiled or sent again has to go.
func (s *Server) short() bool {
	h := s.load.Load()
	return h.memoryFree != 0 && (int64(h.memoryFree) < storeFloor || lend.Tight(h.waits()))
}

// storeFloor is the free memory, in bytes, below which contents have to go. It is more than the amount below
// which jobs are refused.
const storeFloor = 4 * lend.MemoryFloor

// storeLeft is how many bytes the store may have in any case, the least that store.memory allows: on a host that is short of
// memory for long, jobs still find there what most of them read.
const storeLeft = 16 << 20

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
		if k.buf != nil && k.lent.Lies(now) {
			n += k.buf.Touched()
		}
	}
	return n
}
