package credits

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// slot is worker.slot: memory of a host that one client may write to while it is open.
type slot struct {
	stag uint32 // 0: shut
	by   uint64 // the job whose source was written to it last
}

// loan is worker.credit.
type loan struct {
	lent *lend.Credit
	slot *slot // nil: it is bare
	own  bool  // it has memory besides: a slot of the pool if it is bare, otherwise a copy
}

// sink is memory of a manager for a result.
type sink struct {
	holds int    // that keep it from being used for something else (slots.Hold)
	by    uint64 // the job whose result was written to it last
}

func (w *world) newSTag() uint32 {
	w.lastSTag++
	return w.lastSTag
}

// openSlot is worker.conn.openSlotLocked.
func (c *wire) openSlot() *slot {
	h := c.host
	if n := len(c.kept); n > 0 {
		k := c.kept[n-1]
		c.kept = c.kept[:n-1]
		return k
	}
	for _, o := range h.wires {
		if h.free == 0 {
			h.free += len(o.kept)
			o.kept = nil
		}
	}
	if h.free == 0 {
		return nil
	}
	h.free--
	return &slot{stag: c.w.newSTag()}
}

// newCredit is worker.conn.newCreditLocked.
func (c *wire) newCredit() *loan {
	if !c.w.sc.pulls || !c.w.sc.bare && c.host.lend.BringsSlot(c.lent, 1) {
		if k := c.openSlot(); k != nil || !c.w.sc.pulls {
			if k == nil {
				return nil
			}
			return &loan{slot: k}
		}
	}
	return &loan{}
}

// onWire is worker.credit.onWire.
func (k *loan) onWire() job.Credit {
	m := job.Credit{ID: k.lent.ID}
	if k.slot != nil {
		m.Slot.STag = k.slot.stag
	}
	return m
}

// freeLoan is worker.credit.free.
func (c *wire) freeLoan(k *loan) {
	h := c.host
	switch {
	case k.own && k.slot == nil:
		h.free++
	case k.own:
		h.copies++
	}
	switch {
	case k.slot == nil:
	case c.w.sc.kept && !c.released:
		c.kept = append(c.kept, k.slot)
	default:
		k.slot.stag = 0
		h.free++
	}
	k.own = false
}

// lodge is worker.task.lodge. It reports whether there is memory for the task.
func (t *task) lodge() bool {
	h := t.wire.host
	from := &h.free
	if t.k.slot != nil {
		if !h.w.sc.kept || t.k.own {
			return true
		}
		from = &h.copies
	}
	if t.k.own {
		return true
	}
	if *from == 0 {
		return false
	}
	*from--
	t.k.own = true
	return true
}

// put does what the daemon's RDMA stack does: it writes where the STag is open. The client's part is to write only to the
// slot of a credit that it has not spent.
func (c *wire) put(m put) error {
	for _, k := range c.credits {
		if k.slot != nil && k.slot.stag == m.stag {
			if k.lent.ID != m.credit {
				return fmt.Errorf("job %d writes to the slot of another credit", m.by)
			}
			k.slot.by = m.by
			return nil
		}
	}
	return fmt.Errorf("job %d writes to a slot that it does not have any more", m.by)
}

// fill does what the manager's RDMA stack does.
func (c *wire) fill(m fill) error {
	i := slices.IndexFunc(c.flights, func(a *attempt) bool { return a.stag == m.stag })
	if i < 0 {
		return fmt.Errorf("the result of job %d is written to a sink that is shut", m.by)
	}
	c.flights[i].sink.by = m.by
	return nil
}
