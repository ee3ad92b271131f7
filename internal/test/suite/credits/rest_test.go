package credits

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdistcc/rdistcc/internal/test/kit/explore"
)

// rest returns what is wrong with w, in which nothing happens by itself.
func (m *model) rest(w *world) error {
	if err := w.quiet(); err != nil {
		return err
	}
	w = explore.Copy(m.form, w)
	for range 3 { // time passes, without anything new
		w.tick()
		if err := m.settle(w); err != nil {
			return fmt.Errorf("as time passes: %w", err)
		}
	}
	err := w.quiet()
	if err == nil {
		err = w.fair()
	}
	if err != nil {
		return fmt.Errorf("as time passes: %w", err)
	}
	return nil
}

// settle takes steps until nothing happens by itself any more.
func (m *model) settle(w *world) error {
	for range 1000 {
		found := false
		for _, s := range m.steps(w) {
			if s.Err != nil {
				if s.Choice {
					continue
				}
				return fmt.Errorf("%s: %w", s.Name, s.Err)
			}
			if !s.Choice {
				w.adopt(s.To)
				found = true
				break
			}
		}
		if !found {
			return nil
		}
	}
	return errors.New("it does not come to rest")
}

// adopt makes w the world that from is.
func (w *world) adopt(from *world) {
	*w = *from
	for _, h := range w.hosts {
		h.w = w
	}
	for _, c := range w.wires {
		c.w = w
	}
}

// quiet returns what is left over in a world in which nothing happens. A job may wait for a host that takes no work.
func (w *world) quiet() error {
	closed := slices.ContainsFunc(w.hosts, func(h *host) bool { return h.lend.Closed() != nil })
	for _, x := range w.managers {
		for _, j := range x.jobs {
			if j.came && (!j.done && !closed || len(j.running) > 0) {
				return fmt.Errorf("job %d.%d waits for ever", x.id, j.id)
			}
		}
	}
	for _, c := range w.wires {
		switch {
		case c.cut && !c.released, c.cut && !c.lost:
			return fmt.Errorf("connection %d never ends", c.id)
		case c.cut:
			continue
		case len(c.tasks)+len(c.sending)+len(c.flights) > 0:
			return fmt.Errorf("connection %d has %d jobs at the daemon, %d at the manager", c.id, len(c.tasks), len(c.flights))
		case c.purse.Len() != len(c.credits):
			return fmt.Errorf("of %d credits of connection %d, the manager has %d", len(c.credits), c.id, c.purse.Len())
		case c.host.draining && len(c.credits) > 0:
			return fmt.Errorf("connection %d keeps %d credits of a host that drains", c.id, len(c.credits))
		}
	}
	return nil
}

// fair returns an error if a manager that can use more credits has fewer than another has, or one keeps what its host has
// asked for.
func (w *world) fair() error {
	type part struct{ has, uses int }
	for _, h := range w.hosts {
		if h.draining {
			continue
		}
		parts := make(map[*manager]part)
		for _, c := range h.wires {
			switch no := h.lend.Closed(); {
			case no != nil && len(c.credits) > 0:
				return fmt.Errorf("connection %d keeps %d credits of a host that takes no work", c.id, len(c.credits))
			case no != nil:
				continue
			case len(c.credits) == 0:
				return fmt.Errorf("connection %d has no credit", c.id)
			}
			p := parts[c.man]
			if parts[c.man] = (part{p.has + len(c.credits), p.uses}); c.live()[0] == c {
				parts[c.man] = part{p.has + len(c.credits), min(w.sc.want*len(c.live()), c.told)}
			}
		}
		for _, x := range w.managers {
			for _, y := range w.managers {
				if a, b := parts[x], parts[y]; a.has > 0 && a.has < a.uses && b.has > a.has+1 {
					return fmt.Errorf("manager %d has %d credits of the %d that it can use, manager %d has %d", x.id, a.has, a.uses, y.id, b.has)
				}
			}
		}
	}
	return nil
}
