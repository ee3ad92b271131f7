package credits

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/connmgr/purse"
)

// send puts a message on its way to the daemon. inv is what it invalidates.
func (c *wire) send(m any, inv uint32) {
	if c.cut {
		return
	}
	c.forth = append(c.forth, packet{m: m, inv: inv})
	if _, ok := m.(*job.Return); ok && c.w.left == returnsTwice {
		c.forth = append(c.forth, packet{m: m, inv: inv})
	}
}

// ends is link.Link.ends.
func (c *wire) ends(k job.Credit) uint32 {
	if c.w.sc.kept {
		return 0
	}
	return k.Slot.STag
}

// room is link.Link.Room.
func (c *wire) room() bool {
	return !c.draining && c.purse.Len()+len(c.flights) <= c.w.sc.want
}

// add is farm.conn.addLocked.
func (c *wire) add(k job.Credit) {
	c.purse.Put(k)
	if !c.room() {
		c.giveBack(1)
	}
}

// giveBack is farm.conn.returnLocked.
func (c *wire) giveBack(n int) {
	for ; n > 0 && c.purse.Len() > 0; n-- {
		k := c.purse.Take()
		c.send(&job.Return{Credit: k.ID}, c.ends(k))
	}
}

// learn is link.Link.received, with what farm.conn does for it.
func (c *wire) learn(p packet) error {
	switch m := p.m.(type) {
	case fill:
		return c.fill(m)
	case *job.Grant:
		for _, k := range m.Credits {
			c.add(k)
		}
		c.send(&job.Ack{Of: job.KindGrant, Seq: m.Seq}, 0)
	case *job.Recall:
		if c.w.left != keepsRecalled {
			c.giveBack(int(m.Count))
		}
		if c.w.left == returnsSpent {
			for _, a := range c.flights {
				c.send(&job.Return{Credit: a.credit.ID}, c.ends(a.credit))
			}
		}
		c.send(&job.Ack{Of: job.KindRecall, Seq: m.Seq}, 0)
	case *job.Drain:
		c.draining = true
		c.giveBack(c.purse.Len())
		c.send(&job.Ack{Of: job.KindDrain, Seq: m.Seq}, 0)
	case *job.Result:
		return c.result(m, p.inv)
	case *job.Ack:
		switch m.Of {
		case job.KindCancel:
			c.cancels.Acked(m.Seq)
			c.askCancel()
		case job.KindDemand:
			c.telling = false
			c.demand(false)
		}
	}
	return nil
}

// result is link.Link.result, with farm.conn.Answered.
func (c *wire) result(m *job.Result, inv uint32) error {
	i := slices.IndexFunc(c.flights, func(a *attempt) bool { return a.id == m.ID })
	if i < 0 || !c.flights[i].leg.Due() || inv != c.flights[i].stag {
		return fmt.Errorf("daemon answered job %d, which it was not asked", m.ID)
	}
	a := c.flights[i]
	a.status, a.stag = m.Status, 0
	then := a.leg.Answer()
	if c.w.left == landsEarly {
		then = purse.Land
	}
	c.goOn(a, then)
	if m.Next != nil {
		c.add(*m.Next)
	}
	if c.w.left == returnsLoser && a.asked {
		c.add(a.credit)
	}
	return nil
}

// goOn is link.Link.goOnLocked.
func (c *wire) goOn(a *attempt, then purse.Then) {
	switch then {
	case purse.Nothing:
	case purse.Ask:
		c.cancels.Add(a.id)
		c.askCancel()
	case purse.Hold:
		a.left = 0
	case purse.GiveBack:
		c.send(&job.Return{Credit: a.credit.ID}, c.ends(a.credit))
		a.left = 0
		c.land(a, true)
	case purse.Land:
		c.land(a, false)
	}
}

// askCancel is link.Link.sendCancelLocked.
func (c *wire) askCancel() {
	if c.w.left == cancelsAtOnce {
		c.cancels.Acked(c.lastCancel)
	}
	if m := c.cancels.Next(); m != nil {
		c.lastCancel = m.Seq
		c.send(m, 0)
	}
}

// land takes a flight off its connection; err: it has no Result. Its sink is shut then: nothing was sent, the Result has
// invalidated it, or the queue pair is gone.
func (c *wire) land(a *attempt, err bool) {
	c.flights = slices.DeleteFunc(c.flights, func(x *attempt) bool { return x == a })
	a.over, a.err, a.stag = true, err, 0
}

// start is attempt.Attempt.fly with link.Link.Start: the credit is spent once the source is written.
func (a *attempt) start() {
	c := a.wire
	a.flies = true
	if c.lost {
		a.over, a.err = true, true
		return
	}
	a.stag = c.w.newSTag()
	a.carrier = c.w.sc.carrier
	if a.carrier == job.Write && a.credit.Slot.STag == 0 {
		a.carrier = job.Pull
	}
	if a.carrier == job.Write {
		a.left = c.w.sc.writes
	}
	c.flights = append(c.flights, a)
	a.post()
}

// post is link.Link.postLocked for one flight of which one Write is posted at a time, with writeLocked and jobLocked.
func (a *attempt) post() {
	c := a.wire
	if a.left > 0 {
		a.leg.Write()
		a.left--
		c.send(put{stag: a.credit.Slot.STag, credit: a.credit.ID, by: a.id}, 0)
	}
	if a.left > 0 || a.leg.Sent() {
		return
	}
	m := &job.Job{ID: a.id, Credit: a.credit.ID, Sink: job.Window{STag: a.stag}}
	switch a.carrier {
	case job.Write:
		m.BodyLen = uint32(c.w.sc.writes)
	case job.Eager:
		m.Carried = []byte{}
	case job.Pull:
		m.Source.STag = c.w.newSTag()
	}
	a.leg.Send()
	if a.carrier == job.Eager {
		a.leg.Write()
	}
	c.send(m, c.ends(a.credit))
}

// wrote is link.Link.wroteLocked.
func (a *attempt) wrote() {
	then := a.leg.Written()
	a.wire.goOn(a, then)
	if then == purse.Nothing && !a.asked && !a.leg.Sent() {
		a.post()
	}
}

// cancel is link.Link.Cancel.
func (a *attempt) cancel() {
	a.asked = true
	if a.over {
		return
	}
	c := a.wire
	then := a.leg.Cancel()
	switch {
	case c.w.left == cancelsSent && then == purse.Ask, c.w.left == cancelsWritten && then == purse.Hold:
		then = purse.GiveBack
	case c.w.left == dropsLoser && then == purse.Ask && len(a.job.running) > 0:
		c.goOn(a, then)
		then = purse.Land
	}
	if c.w.left == freesSink {
		a.sink.holds--
	}
	c.goOn(a, then)
}

// lose is link.Link.end with farm.conn.Lost: the manager has noticed that the connection is gone.
func (c *wire) lose() {
	c.lost = true
	c.back = nil
	for len(c.flights) > 0 {
		c.land(c.flights[0], true)
	}
	if c.w.left == keepsEnded {
		for _, x := range c.w.wires {
			if x != c && x.man == c.man && x.host == c.host && !x.lost {
				for c.purse.Len() > 0 {
					x.purse.Put(c.purse.Take())
				}
			}
		}
	}
	c.purse = purse.Purse{}
}

// retire is farm.Host.retireLocked.
func (c *wire) retire() {
	c.giveBack(c.purse.Len())
	c.retired = true
	c.send(bye{}, 0)
}

// live returns the manager's connections with c's host that get jobs.
func (c *wire) live() (list []*wire) {
	for _, x := range c.w.wires {
		if x.man == c.man && x.host == c.host && !x.lost && !x.retired {
			list = append(list, x)
		}
	}
	return list
}

// needs returns how many jobs there are for a host: farm.usesLocked.
func (c *wire) needs() (n int) {
	n = c.w.sc.demand
	for _, j := range c.man.jobs {
		if j.came && !j.done && len(j.running) == 0 {
			n++
		}
	}
	for _, x := range c.live() {
		n += len(x.flights)
	}
	return n
}

// demand is link.Link.demandLocked, for the host's first connection: a rise is told at once, a fall when it has lasted.
func (c *wire) demand(fall bool) {
	n := c.needs()
	if c.lost || c.telling || c.live()[0] != c || n == c.told || n < c.told && !fall {
		return
	}
	c.told, c.telling = n, true
	c.send(&job.Demand{Jobs: uint16(n)}, 0)
}

// demands is farm.demandsLocked.
func (m *manager) demands(w *world) {
	for _, c := range w.wires {
		if c.man == m && !c.lost && !c.retired {
			c.demand(false)
		}
	}
}
