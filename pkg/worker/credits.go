package worker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/pkg/arena"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
	"github.com/rdistcc/rdistcc/pkg/job"
	"github.com/rdistcc/rdistcc/pkg/worker/shares"
)

// Shares: each connection may hold one credit, so that a first job never waits for
// others. The spare ones, for the cores and for jobs on their way to them, are
// divided among the tenants that have use for them, evenly, and of each tenant's among
// its clients by weight (spreadLocked). What is left then
// lies with the clients that build, where a next job finds it without a round trip,
// until another one asks: those above their share are asked to return what they do
// not use.
//
// Among connections of one client credits go to the one that has fewest; one that has
// none gets one from the one that has most.
//
// What a client holds are its unspent credits, its jobs that are not answered yet,
// and the results that it has not fetched. The sum of the shares never exceeds the
// number of credits, so when every client is down to its share each can have its own;
// and as a job spends a credit, the queue is never longer than they are many.

// A client that keeps what it is asked to return, and does not use it, would leave the others
// with the one credit that each connection may hold. What it has kept beyond its share for
// hoardTime does not count any more: others are given theirs as if it had come back.
// There are slots for as many such as there are spare credits.

// credit is a slot on loan: to the peer, until its Job or Return, then to the job.
type credit struct {
	id  uint64
	buf *arena.Buffer
	mr  iwarp.MR

	given time.Time
	asked time.Time // when its client was asked to return it; zero: it was not
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
	c.s.lastID++
	k = &credit{id: c.s.lastID, buf: buf, mr: mr, given: time.Now()}
	return k
}

// heldLocked counts against the client's share.
func (c *conn) heldLocked() int { return len(c.credits) + len(c.tasks) + len(c.offers) }

// maxDepth bounds Server.depth: so many jobs are on their way to the cores of a host
// at most. That is enough for compiles of a sixth of a round trip; shorter ones are
// not worth it.
func maxDepth(jobs int) int { return max(16, 4*jobs) }

// minDepth is as many jobs as there are cores: enough over one round trip for
// compiles as long as that.
func minDepth(jobs int) int { return max(2, jobs) }

// most is the largest number of spare credits there can be.
func (s *Server) most() int { return s.o.Jobs + maxDepth(s.o.Jobs) }

// spareLocked is the number of credits beyond the one that every connection may hold: for
// the cores that there is memory for, and depth.
func (s *Server) spareLocked() int {
	cores, depth := s.o.Jobs, s.depth
	h := s.host.Load()
	if h.memoryFree > 0 && s.meanRSS > 0 {
		cores = min(cores, s.running+int(float64(h.memoryFree)/s.meanRSS))
	}
	if h.pressure.Memory != job.NoPressure && h.pressure.Memory > tightMemory {
		depth = 0 // what lies here waiting takes memory as well
	}
	return max(1, cores) + depth
}

// tightMemory: some process waited for memory for a fifth of the last ten seconds.
const tightMemory = 2000

// hoardTime is how long a client may hold an unspent credit that it was asked for before it
// does not count. A manager returns what it has no use for at once, and uses the others as
// soon as their sources are ready.
const hoardTime = time.Second

// hoardedLocked is how many credits a client keeps beyond its share, unspent, although it
// was asked for them.
func (cl *client) hoardedLocked(now time.Time) (n int) {
	over := cl.heldLocked() - cl.share
	for i := 0; i < len(cl.conns) && n < over; i++ {
		for _, k := range cl.conns[i].credits {
			if !k.asked.IsZero() && now.Sub(k.asked) >= hoardTime {
				n++
			}
		}
	}
	return max(0, min(n, over))
}

// askedLocked marks the n oldest unspent credits as those that the client was asked for.
func (c *conn) askedLocked(n int, now time.Time) {
	list := slices.SortedFunc(maps.Values(c.credits), func(a, b *credit) int { return cmp.Compare(a.id, b.id) })
	for _, k := range list[:min(n, len(list))] {
		if k.asked.IsZero() {
			k.asked = now
		}
	}
}

// freeLocked is how many credits can be granted; of these, hoarded are in the hands of
// clients who should have returned them.
func (s *Server) freeLocked(spare int) (free, hoarded int) {
	now := time.Now()
	free = spare
	for _, cl := range s.clients {
		free += len(cl.conns) - cl.heldLocked()
		hoarded += cl.hoardedLocked(now)
	}
	hoarded = min(hoarded, s.most())
	return free + hoarded, hoarded
}

// divideLocked sets the shares.
func (s *Server) divideLocked(now time.Time) (spare int) {
	spare = s.spareLocked()
	anyActive := false
	for _, cl := range s.clients {
		cl.share = len(cl.conns)
		anyActive = anyActive || cl.activeLocked(now)
	}
	left := s.spreadLocked(spare, func(cl *client) int {
		need := cl.demand - len(cl.conns) // beyond the one that each may hold
		if cl.demand < 0 && cl.activeLocked(now) {
			need = shares.Unlimited
		}
		return max(0, min(need, cl.mostLocked()-len(cl.conns)))
	})
	s.spreadLocked(left, func(cl *client) int {
		if anyActive && !cl.activeLocked(now) {
			return 0
		}
		return max(0, cl.mostLocked()-cl.share)
	})
	return spare
}

// rebalanceLocked grants free credits to those below their share. When some stay
// below it, or there are to be fewer, those above are asked to return what they do
// not use.
func (s *Server) rebalanceLocked() {
	if s.draining || s.closing {
		return
	}
	now := time.Now()
	free, hoarded := s.freeLocked(s.divideLocked(now))
	short := free-hoarded < 0 // what is hoarded is asked for still
	for _, cl := range s.clients {
		if cl.tenant.triedLocked(now) {
			continue
		}
		for n := cl.share - cl.heldLocked(); n > 0 && s.unfit == nil; n-- {
			c := cl.emptiestLocked()
			if c == nil {
				break
			}
			var k *credit
			// The one that each connection may hold waits for nobody: who is asked for
			// credits need not give them back.
			if free > 0 || c.heldLocked() == 0 {
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
	}
	for _, cl := range s.clients {
		over := 0
		switch {
		case s.unfit != nil:
			over = shares.Unlimited
		case short:
			over = cl.heldLocked() - cl.share
		}
		if over <= 0 && cl.heldLocked() >= cl.share && cl.lackingLocked() {
			over = 1 // of one that can spare it
		}
		cl.recallLocked(over)
	}
}

// nextLocked gives the credit that rides back on a result, if the client's share has
// room. The job that it replaces is not counted any more.
func (c *conn) nextLocked() *credit {
	s := c.s
	if s.draining || s.closing || s.unfit != nil || !c.ready {
		return nil
	}
	now := time.Now()
	free, _ := s.freeLocked(s.divideLocked(now))
	if free <= 0 || c.client.tenant.triedLocked(now) || c.client.heldLocked() >= c.client.share || c.want > 0 && c.heldLocked() >= c.want {
		return nil
	}
	k := c.newCreditLocked()
	if k != nil {
		c.credits[k.id] = k
	}
	return k
}

// starvedLocked is called by a core that finds nothing to do. If some client has work
// that it has no credit for, too few jobs are on their way: there shall be more
// (which grows to what the round trips take); quietLocked takes them back. A client
// that has held a credit for longer than its way takes is behind with other things: it
// would only hold more.
func (s *Server) starvedLocked() {
	if s.unfit != nil || s.draining || s.depth >= maxDepth(s.o.Jobs) {
		return
	}
	now := time.Now()
	for _, cl := range s.clients {
		if cl.demand > cl.heldLocked() && !cl.slackLocked(now) {
			s.depth++
			s.rebalanceLocked()
			return
		}
	}
}

// slackTime is how long a manager may take to use a credit, beside the round trip.
const slackTime = 20 * time.Millisecond

// slackLocked says whether the client leaves a credit unused.
func (cl *client) slackLocked(now time.Time) bool {
	for _, c := range cl.conns {
		var oldest time.Duration
		for _, k := range c.credits {
			oldest = max(oldest, now.Sub(k.given))
		}
		if oldest > slackTime && oldest > slackTime+2*c.qp.Stats().Path.RTT {
			return true
		}
	}
	return false
}

// quietLocked is called once a tick: where jobs always wait, one less would do, and
// where none comes most are of no use.
func (s *Server) quietLocked() {
	more := s.depth - minDepth(s.o.Jobs)
	switch {
	case more <= 0:
	case !s.worked && s.running == 0:
		s.depth -= (more + 1) / 2
	case s.lowQueue > 1:
		s.depth--
	}
	s.lowQueue, s.worked = s.queued, false
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
	c.tenant.lapsedLocked(time.Now())
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
	return k, nil
}
