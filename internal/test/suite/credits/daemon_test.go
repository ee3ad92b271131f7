package credits

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// tell puts a message on its way to the manager.
func (c *wire) tell(m any) {
	if !c.cut {
		c.back = append(c.back, packet{m: m})
	}
}

// rebalance is worker.Server.rebalanceLocked.
func (h *host) rebalance() {
	if h.draining {
		return
	}
	r := h.lend.Round(h.w.now)
	for to := r.Next(); to != nil; to = r.Next() {
		c := to.Owner.(*wire)
		k := c.newCredit()
		if k == nil {
			r.Lack()
			continue
		}
		c.loan(k, r.Grant())
	}
	r.Recalls() // pump asks for them
	for _, c := range h.wires {
		c.pump()
	}
}

// loan is worker.conn.lendLocked.
func (c *wire) loan(k *loan, lent *lend.Credit) {
	k.lent, lent.Bare = lent, k.slot == nil
	c.credits = append(c.credits, k)
}

// pump is worker.conn.pumpLocked, without what is said of compilers.
func (c *wire) pump() {
	if !c.joined || c.ended {
		return
	}
	if c.unasked.Free(job.KindGrant) && c.lent.Untold() {
		m := &job.Grant{Seq: c.unasked.Next(job.KindGrant)}
		for _, lent := range c.lent.Announce(job.MaxCredits) {
			k := &loan{lent: lent} // one that is gone, where a rule is left out
			if i := slices.IndexFunc(c.credits, func(k *loan) bool { return k.lent == lent }); i >= 0 {
				k = c.credits[i]
			}
			m.Credits = append(m.Credits, k.onWire())
		}
		c.tell(m)
	}
	if (c.unasked.Free(job.KindRecall) || c.w.left == asksTwice) && c.lent.Recalled() {
		c.tell(&job.Recall{Seq: c.unasked.Next(job.KindRecall), Count: uint16(c.lent.Recall())})
	}
	if c.unasked.Free(job.KindDrain) && c.wantDrain {
		c.wantDrain = false
		c.tell(&job.Drain{Seq: c.unasked.Next(job.KindDrain)})
	}
}

// hear is worker.conn.message. An error is what ends a connection whose client has broken the protocol.
func (c *wire) hear(p packet) error {
	now := c.w.now
	switch m := p.m.(type) {
	case put:
		return c.put(m)
	case bye:
		c.cut = true
		c.end()
	case *job.Hello:
		c.joined = true
		c.host.lend.Join(c.lent, [16]byte{byte(c.man.id)}, 1, int(m.Want))
		c.wantDrain = c.host.draining
		c.pump()
		c.host.rebalance()
	case *job.Demand:
		c.lent.Client().SetDemand(int(m.Jobs), 1)
		c.host.rebalance()
		c.tell(&job.Ack{Of: job.KindDemand})
	case *job.Return:
		k, err := c.spend(m.Credit, p.inv)
		if err != nil {
			return err
		}
		c.freeLoan(k)
		c.lent.Tenant().Lapsed(now)
		c.host.rebalance()
	case *job.Job:
		return c.accept(m, p.inv)
	case *job.Cancel:
		c.cancel(m.Jobs)
		c.tell(&job.Ack{Of: job.KindCancel, Seq: m.Seq})
	case *job.Ack:
		if !c.unasked.Acked(m) {
			return fmt.Errorf("an Ack of message %d of kind %d, which was not sent", m.Seq, m.Of)
		}
		c.pump()
	}
	return nil
}

// spend is worker.conn.spendLocked.
func (c *wire) spend(id uint64, inv uint32) (*loan, error) {
	i := slices.IndexFunc(c.credits, func(k *loan) bool { return k.lent.ID == id })
	if i < 0 || !c.credits[i].lent.Told() && c.w.left != spendsUntold {
		return nil, fmt.Errorf("credit %d is not the client's", id)
	}
	k := c.credits[i]
	switch {
	case k.slot == nil && inv != 0:
		return nil, fmt.Errorf("credit %d has no slot, and is spent with an invalidation", id)
	case k.slot != nil && c.w.sc.kept && inv != 0:
		return nil, fmt.Errorf("credit %d is spent with an invalidation of its slot, which stays open", id)
	case k.slot != nil && !c.w.sc.kept && inv != k.slot.stag:
		return nil, fmt.Errorf("credit %d is spent without invalidating its slot", id)
	case k.slot != nil && !c.w.sc.kept:
		k.slot.stag = 0
	}
	c.credits = slices.Delete(c.credits, i, i+1)
	if c.w.left != forgetsSpent {
		c.lent.Spent(k.lent)
	}
	return k, nil
}

// accept is worker.conn.job with worker.task.accept and takeSource.
func (c *wire) accept(m *job.Job, inv uint32) error {
	h, now := c.host, c.w.now
	k, err := c.spend(m.Credit, inv)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(c.tasks, func(t *task) bool { return t.id == m.ID }) {
		return fmt.Errorf("job %d has a number in use", m.ID)
	}
	t := &task{wire: c, id: m.ID, k: k, sink: m.Sink.STag, lent: &lend.Job{Arrived: now}}
	t.lent.Owner = t
	c.tasks = append(c.tasks, t)
	c.lent.Came(now)
	if h.draining || h.lend.Closed() != nil || h.lend.Crowded(c.lent.Tenant()) {
		t.answer(job.StatusRefused)
		return nil
	}
	switch m.Carrier() {
	case job.Write:
		if t.written = m.BodyLen > 0; t.written && k.slot.by != t.id {
			return fmt.Errorf("in the slot of job %d lies the source of %d", t.id, k.slot.by)
		}
		if c.w.sc.kept {
			t.written = false // from now on it does not matter what is in the slot
			if !t.lodge() {
				t.answer(job.StatusRefused)
				return nil
			}
		}
	case job.Pull:
		t.pulled = true
		h.lend.Await(c.lent, t.lent)
		h.fetch()
		return nil
	case job.Eager:
	}
	h.lend.Enqueue(c.lent, t.lent)
	return nil
}

// fetch is worker.Server.fetchLocked.
func (h *host) fetch() {
	for j := h.lend.Fetch(); j != nil; j = h.lend.Fetch() {
		j.Owner.(*task).fetching = true
	}
}

// fetched is worker.task.bring for a source that has come, or comes no more because the job was cancelled or the connection
// has ended.
func (t *task) fetched() {
	t.fetching = false
	switch {
	case t.stopped || t.wire.ended:
		t.answer(job.StatusFailed)
	case !t.lodge():
		t.answer(job.StatusRefused)
	default:
		t.wire.host.lend.Enqueue(t.wire.lent, t.lent)
	}
}

// cancel is worker.conn.cancel with find.
func (c *wire) cancel(ids []uint64) {
	h := c.host
	var queued []*task
	for _, id := range ids {
		i := slices.IndexFunc(c.tasks, func(t *task) bool { return t.id == id })
		if i < 0 {
			continue // answered
		}
		switch t := c.tasks[i]; {
		case c.w.left == startsCancelled && t.lent.Waits():
			queued = append(queued, t)
		case h.lend.Dequeue(t.lent):
			queued = append(queued, t)
		default:
			t.stopped = true
			if c.w.left == answersRunning && t.lent.Runs() {
				h.lend.Ended(t.lent, false, c.w.now)
				t.answer(job.StatusFailed)
			}
		}
	}
	h.fetch()
	for _, t := range queued {
		if c.w.left == skipsAnswer {
			continue
		}
		t.answer(job.StatusFailed)
		if c.w.left == freesTwice {
			h.free++
		}
	}
}

// take is worker.Server.take: what a free core does. It returns nil if that is nothing.
func (h *host) take() *task {
	for {
		switch turn := h.lend.Next(h.w.now); turn.Act {
		case lend.Idle:
			return nil
		case lend.Look:
			h.lend.Looked(0, h.w.now)
		case lend.Drop:
			h.lend.Kept(0, h.w.now)
		case lend.Start:
			t := turn.Job.Owner.(*task)
			h.fetch()
			h.running = append(h.running, t)
			if !t.lodge() {
				t.ran(job.StatusRefused)
			}
			return t
		}
	}
}

// ran is worker.runner.do: a compile has ended.
func (t *task) ran(s job.Status) {
	h := t.wire.host
	h.running = slices.DeleteFunc(h.running, func(x *task) bool { return x == t })
	h.lend.Ended(t.lent, s == job.StatusRefused, h.w.now)
	h.lend.Learn(t.lent, 0, 0)
	t.answer(s)
}

// answer is worker.task.answer with conclude.
func (t *task) answer(s job.Status) {
	c := t.wire
	h, now := c.host, c.w.now
	c.tasks = slices.DeleteFunc(c.tasks, func(x *task) bool { return x == t })
	c.lent.Answered()
	if t.pulled && c.w.left != neverMisses {
		h.lend.Missed(t.lent)
		h.fetch()
	}
	if t.lent.Yields() && s == job.StatusFailed {
		s = job.StatusRefused
	}
	if s == job.StatusRefused && !t.lent.Yields() {
		c.lent.Tenant().Lapsed(now)
	}
	c.sending = append(c.sending, t.k)
	if c.ended {
		return
	}
	m := &job.Result{ID: t.id, Status: s}
	if k := c.next(); k != nil {
		next := k.onWire()
		m.Next = &next
	}
	if s == job.StatusRan {
		c.tell(fill{stag: t.sink, by: t.id})
	}
	if !c.cut {
		c.back = append(c.back, packet{m: m, inv: t.sink})
	}
}

// next is worker.conn.nextLocked.
func (c *wire) next() *loan {
	h := c.host
	if h.draining || !c.joined || !h.lend.Due(c.lent, c.w.now) {
		return nil
	}
	k := c.newCredit()
	if k != nil {
		c.loan(k, h.lend.Grant(c.lent, c.w.now))
	}
	return k
}

// sent is worker.conn.sent.
func (c *wire) sent() {
	k := c.sending[0]
	c.sending = c.sending[1:]
	c.freeLoan(k)
	c.host.rebalance()
}

// end is the first half of worker.conn.close, with dropLocked: the daemon has noticed that the connection is gone.
func (c *wire) end() {
	c.ended = true
	c.forth = nil
	c.lent.End()
	for _, t := range slices.Clone(c.tasks) {
		if !c.host.lend.Dequeue(t.lent) {
			t.stopped = true
			continue
		}
		c.tasks = slices.DeleteFunc(c.tasks, func(x *task) bool { return x == t })
		c.lent.Answered()
		c.sending = append(c.sending, t.k)
	}
}

// release is worker.conn.release, once the last runner has let go of the connection.
func (c *wire) release() {
	h := c.host
	c.released = true
	for _, k := range slices.Concat(c.credits, c.sending) {
		c.freeLoan(k)
	}
	h.free += len(c.kept)
	c.credits, c.sending, c.kept = nil, nil, nil
	h.wires = slices.DeleteFunc(h.wires, func(x *wire) bool { return x == c })
	h.lend.Leave(c.lent, h.w.now)
	h.rebalance()
}

// drain is worker.Server.Drain.
func (h *host) drain() {
	h.draining = true
	for _, c := range h.wires {
		c.wantDrain = true
		c.pump()
	}
}

// open lets the host take work again, or no more (worker.Server.checkFitLocked).
func (h *host) open(yes bool) {
	var no *job.Refusal
	if !yes {
		no = job.Refuse(job.CauseFull, "for a while")
	}
	h.lend.Close(no)
	h.rebalance()
}

// tick is worker.Server.lookAround.
func (h *host) tick(now time.Time) {
	h.lend.Tick(now)
	if h.w.sc.kept { // keptTime has passed, for all
		for _, c := range h.wires {
			h.free += len(c.kept)
			c.kept = nil
		}
	}
	h.fetch()
	h.rebalance()
	for _, j := range h.lend.Yields(now) {
		j.Owner.(*task).stopped = true
	}
}
