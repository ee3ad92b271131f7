package credits

import (
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/job"
)

// truth returns what does not hold in w, although it always must.
func (w *world) truth() error {
	for i, h := range w.hosts {
		if err := h.memory(); err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
	}
	for _, c := range w.wires {
		err := c.owners()
		if err == nil {
			err = c.window()
		}
		if err == nil {
			err = c.sinks()
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", c.id, err)
		}
	}
	for _, x := range w.managers {
		for _, j := range x.jobs {
			if err := j.truth(); err != nil {
				return fmt.Errorf("command %d.%d: %w", x.id, j.id, err)
			}
		}
	}
	return nil
}

// memory returns an error if a slot is in two places or in none, or memory is free that a compiler uses.
func (h *host) memory() error {
	total := h.w.sc.slots
	used, copied := 0, 0
	var seen []*slot
	count := func(k *loan) {
		if k.slot != nil {
			seen = append(seen, k.slot)
		}
		switch {
		case k.own && k.slot == nil:
			used++
		case k.own:
			copied++
		}
	}
	for _, c := range h.wires {
		for _, k := range c.credits {
			count(k)
		}
		for _, t := range c.tasks {
			count(t.k)
		}
		for _, k := range c.sending {
			count(k)
		}
		seen = append(seen, c.kept...)
	}
	for i, k := range seen {
		if slices.Contains(seen[:i], k) {
			return fmt.Errorf("a slot is in use twice")
		}
	}
	used += len(seen)
	switch {
	case h.free < 0 || h.free+used != total:
		return fmt.Errorf("there are %d slots: %d free, %d in use", total, h.free, used)
	case h.copies < 0 || h.copies+copied != total:
		return fmt.Errorf("there are %d copies: %d free, %d in use", total, h.copies, copied)
	case h.lend.Running() > h.w.sc.cores:
		return fmt.Errorf("%d jobs run on %d cores", h.lend.Running(), h.w.sc.cores)
	}
	for _, t := range h.running {
		switch {
		case !slices.Contains(t.wire.tasks, t):
			return fmt.Errorf("job %d still runs, and its memory may be free", t.id)
		case t.written && t.k.slot.by != t.id:
			return fmt.Errorf("in the slot of job %d, which runs, lies the source of %d", t.id, t.k.slot.by)
		}
	}
	return nil
}

// owners returns an error if a credit does not have exactly one owner: what is to be announced, what is under way, the
// manager's purse, an attempt. Once a connection is cut, messages are lost, and credits with them; but none has two.
func (c *wire) owners() error {
	places := make(map[uint64]string, 8)
	var twice error
	own := func(id uint64, where string) {
		if other, ok := places[id]; ok && twice == nil {
			twice = fmt.Errorf("credit %d is %s, and %s", id, other, where)
		}
		places[id] = where
	}
	for _, k := range c.credits {
		if !k.lent.Told() {
			own(k.lent.ID, "to be announced")
		}
	}
	for _, p := range c.back {
		switch m := p.m.(type) {
		case *job.Grant:
			for _, k := range m.Credits {
				own(k.ID, "granted")
			}
		case *job.Result:
			if m.Next != nil {
				own(m.Next.ID, "in a Result")
			}
		}
	}
	for purse := c.purse; purse.Len() > 0; {
		own(purse.Take().ID, "unspent")
	}
	for _, j := range c.man.jobs {
		for _, a := range j.running {
			if a.wire == c && !a.over && !a.leg.Sent() {
				own(a.credit.ID, "with an attempt")
			}
		}
	}
	for _, p := range c.forth {
		if p.guess {
			continue
		}
		switch m := p.m.(type) {
		case *job.Job:
			own(m.Credit, "in a Job")
		case *job.Return:
			own(m.Credit, "in a Return")
		}
	}
	if twice != nil || c.cut || c.retired {
		return twice
	}
	for _, k := range c.credits {
		if places[k.lent.ID] == "" {
			return fmt.Errorf("credit %d is lost", k.lent.ID)
		}
		delete(places, k.lent.ID)
	}
	for id, where := range places {
		return fmt.Errorf("credit %d is %s, and does not exist", id, where)
	}
	return nil
}

// window returns an error if one side has sent a second message of a kind before the first one was acknowledged: the other
// side has posted no receive for it.
func (c *wire) window() error {
	var n [job.NumKinds]int
	for _, p := range slices.Concat(c.forth, c.back) {
		switch m := p.m.(type) {
		case *job.Ack:
			n[m.Of]++
		case *job.Grant, *job.Recall, *job.Drain, *job.Cancel, *job.Demand:
			n[m.(job.Message).Kind()]++
		}
	}
	for kind, n := range n {
		if n > 1 {
			return fmt.Errorf("%d messages of kind %d are under way", n, kind)
		}
	}
	return nil
}

// sinks returns an error if the daemon may write to memory of the manager's, or read it, that is not kept for that.
func (c *wire) sinks() error {
	if c.lost {
		return nil // its queue pair is gone
	}
	flight := func(id uint64) *attempt {
		if i := slices.IndexFunc(c.flights, func(a *attempt) bool { return a.id == id }); i >= 0 {
			return c.flights[i]
		}
		return nil
	}
	for _, t := range c.tasks {
		if flight(t.id) == nil {
			return fmt.Errorf("job %d is with the daemon, and forgotten", t.id)
		}
	}
	for i, a := range c.flights {
		switch {
		case a.stag != 0 && a.sink.holds <= 0:
			return fmt.Errorf("the sink of job %d is free, and the daemon may write to it", a.id)
		case slices.ContainsFunc(c.flights[:i], func(o *attempt) bool { return o.stag != 0 && o.stag == a.stag }):
			return fmt.Errorf("job %d has another's sink", a.id)
		}
	}
	return nil
}

// truth returns what is wrong with a command.
func (j *wrapper) truth() error {
	answers := j.delivered
	if j.gone {
		answers++
	}
	if j.local {
		answers++
	}
	switch {
	case j.delivered > 1:
		return fmt.Errorf("its result is delivered %d times", j.delivered)
	case answers > 1 || j.done != (answers == 1):
		return fmt.Errorf("it has %d answers", answers)
	}
	for i, a := range j.running {
		if a.over && a.leg.Writes() > 0 && !a.wire.lost {
			return fmt.Errorf("the source of %d is released, and a Write of it is under way", a.id)
		}
		if a.stag == 0 {
			continue
		}
		if slices.ContainsFunc(j.running[:i], func(o *attempt) bool { return o.stag != 0 && o.sink == a.sink }) || j.won != 0 && j.sink == a.sink {
			return fmt.Errorf("the result of %d goes to one sink with another", a.id)
		}
	}
	return nil
}
