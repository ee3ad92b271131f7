package credits

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
	"github.com/rdistcc/rdistcc/internal/test/kit/explore"
	"github.com/rdistcc/rdistcc/pkg/worker/lend"
)

// newForm says how worlds are copied and told apart.
func newForm() *explore.Form {
	f := explore.NewForm()
	f.Skip(world{}, "sc", "left", "lastSTag")
	f.Share(scope{})
	for _, x := range []struct {
		of   any
		name string
	}{{lend.Credit{}, "ID"}, {job.Credit{}, "ID"}, {job.Return{}, "Credit"}, {job.Job{}, "Credit"}, {put{}, "credit"}} {
		f.Number("credit", x.of, x.name)
	}
	for _, x := range []struct {
		of   any
		name string
	}{{job.Window{}, "STag"}, {packet{}, "inv"}, {put{}, "stag"}, {fill{}, "stag"}, {slot{}, "stag"}, {task{}, "sink"}, {attempt{}, "stag"}} {
		f.Number("stag", x.of, x.name)
	}
	f.Skip(lend.Ledger{}, "lastID", "claims")
	f.Skip(lend.Tenant{}, "patience") // it does not run out in so few steps
	// One message of a kind is under way at a time, so its number says nothing.
	f.Skip(job.Unasked{}[0], "seq")
	f.Skip(job.Grant{}, "Seq")
	f.Skip(job.Recall{}, "Seq")
	f.Skip(job.Drain{}, "Seq")
	f.Skip(job.Ack{}, "Seq")
	f.Skip(wire{}, "id")
	for _, m := range []any{job.Hello{}, job.Demand{}, job.Return{}, job.Job{}, job.Cancel{}, job.Ack{}, job.Grant{}, job.Recall{}, job.Drain{}, job.Result{}} {
		f.Share(m)
	}
	return f
}

// model is what can happen, with how worlds are copied.
type model struct{ form *explore.Form }

// start returns the world in which all managers that do not join later are connected, and have their first credits.
func (m *model) start(sc *scope, left rule) (*world, error) {
	w := &world{sc: sc, left: left, now: time.Unix(1e9, 0)}
	for i := range sc.hosts {
		l := lend.New(lend.Options{Cores: sc.cores, Conns: 8, Credits: 8})
		// No two credits have the same number, so that the names of one host's have nothing to do with the other's.
		*(*uint64)(reflect.ValueOf(l).Elem().FieldByName("lastID").Addr().UnsafePointer()) = uint64(1000 * i)
		w.hosts = append(w.hosts, &host{w: w, lend: l, free: sc.slots, copies: sc.slots})
	}
	for i := range sc.managers {
		x := &manager{id: i + 1}
		for k := range sc.jobs {
			x.jobs = append(x.jobs, &wrapper{man: x, id: k + 1})
		}
		w.managers = append(w.managers, x)
		if i < sc.managers-sc.joins {
			w.come(x)
		}
	}
	return w, m.settle(w)
}

// come connects a manager to all hosts.
func (w *world) come(x *manager) {
	x.here = true
	for _, h := range w.hosts {
		for range max(1, w.sc.conns) {
			w.dial(x, h)
		}
	}
}

func (w *world) dial(x *manager, h *host) {
	c := &wire{w: w, id: len(w.wires) + 1, host: h, man: x, told: -1}
	c.lent = h.lend.Connect(fmt.Sprint("tenant ", x.id), false)
	c.lent.Owner = c
	h.wires = append(h.wires, c)
	w.wires = append(w.wires, c)
	c.send(&job.Hello{Want: uint16(w.sc.want), Bare: w.sc.bare}, 0)
	c.demand(false)
}

// message says which message, on which connection.
type message struct {
	wire int
	p    packet
}

func (m message) String() (s string) {
	switch m := m.p.m.(type) {
	case put:
		s = fmt.Sprintf("a Write of the source of %d to the slot of credit %d", m.by, m.credit)
	case fill:
		s = fmt.Sprintf("a Write of the result of %d", m.by)
	case bye:
		s = "the end"
	case *job.Hello:
		s = "Hello"
	case *job.Demand:
		s = fmt.Sprintf("Demand for %d", m.Jobs)
	case *job.Grant:
		s = "Grant of"
		for _, k := range m.Credits {
			s += fmt.Sprintf(" %d", k.ID)
		}
	case *job.Recall:
		s = fmt.Sprintf("Recall of %d", m.Count)
	case *job.Return:
		s = fmt.Sprintf("Return of credit %d", m.Credit)
	case *job.Job:
		s = fmt.Sprintf("Job %d with credit %d", m.ID, m.Credit)
	case *job.Cancel:
		s = fmt.Sprintf("Cancel of %v", m.Jobs)
	case *job.Result:
		s = fmt.Sprintf("Result of %d: status %d", m.ID, m.Status)
		if m.Next != nil {
			s += fmt.Sprintf(", with credit %d", m.Next.ID)
		}
	case *job.Ack:
		s = fmt.Sprintf("Ack of a message of kind %d", m.Of)
	case *job.Drain:
		s = "Drain"
	}
	return fmt.Sprintf("on connection %d: %s", m.wire, s)
}

// stepper collects what can happen next. A step's function finds in the copy what it is about by its place in the world.
type stepper struct {
	m   *model
	w   *world
	all []explore.Step[*world]
}

func (s *stepper) add(name string, of any, choice bool, f func(w *world) error) {
	w := explore.Copy(s.m.form, s.w)
	err := f(w)
	if err == nil {
		err = w.truth()
	}
	s.all = append(s.all, explore.Step[*world]{Name: name, Of: of, To: w, Err: err, Choice: choice})
}

// steps returns all that can happen in w.
func (m *model) steps(w *world) []explore.Step[*world] {
	s := &stepper{m: m, w: w}
	for i, c := range w.wires {
		s.network(i, c)
		s.daemon(i, c)
	}
	for i, h := range w.hosts {
		s.host(i, h)
	}
	for i, x := range w.managers {
		if !x.here {
			s.add("manager joins", x.id, true, func(w *world) error { w.come(w.managers[i]); return nil })
			continue
		}
		for k, j := range x.jobs {
			s.wrapper(i, k, j)
		}
	}
	if w.ticks < w.sc.ticks {
		s.add("a second passes", nil, true, func(w *world) error { w.ticks++; w.tick(); return nil })
	}
	return s.all
}

// tick lets a second pass.
func (w *world) tick() {
	w.now = w.now.Add(1100 * time.Millisecond)
	for _, h := range w.hosts {
		h.tick(w.now)
	}
	for _, c := range w.wires {
		if !c.lost && !c.retired {
			c.demand(true)
		}
	}
}

// network adds what happens between the two ends.
func (s *stepper) network(i int, c *wire) {
	sc := s.w.sc
	if len(c.forth) > 0 {
		s.add("daemon hears", message{c.id, c.forth[0]}, false, func(w *world) error {
			c := w.wires[i]
			p := c.forth[0]
			c.forth = c.forth[1:]
			if p.guess && c.guessed(p) {
				c.cut = true // the daemon ends it
				c.end()
				return nil
			}
			return c.hear(p)
		})
	}
	if len(c.back) > 0 {
		s.add("manager hears", message{c.id, c.back[0]}, false, func(w *world) error {
			c := w.wires[i]
			p := c.back[0]
			c.back = c.back[1:]
			return c.learn(p)
		})
	}
	switch {
	case !c.cut && s.w.cuts < sc.cuts:
		s.add("cut", c.id, true, func(w *world) error { w.cuts++; w.wires[i].cut = true; return nil })
	case c.cut && !c.lost:
		s.add("manager notices the end of", c.id, false, func(w *world) error {
			c := w.wires[i]
			if !c.host.draining && !c.retired {
				w.dial(c.man, c.host)
			}
			c.lose()
			return nil
		})
	}
	if c.idle() && len(c.live()) > 1 && s.w.retires < sc.retires {
		s.add("manager closes", c.id, true, func(w *world) error { w.retires++; w.wires[i].retire(); return nil })
	}
	if c.purse.Len() > 0 && !c.lost && s.w.returns < sc.returns { // as farm.Host.spareLocked does with all
		s.add("manager gives back a credit of", c.id, true, func(w *world) error { w.returns++; w.wires[i].giveBack(1); return nil })
	}
	if s.w.guesses < sc.guesses && !c.cut {
		for _, k := range c.credits {
			if !k.lent.Told() {
				s.add("manager guesses", k.lent.ID, true, func(w *world) error { w.guesses++; w.wires[i].guess(); return nil })
				break
			}
		}
	}
}

// idle reports whether the manager has no use for the connection: link.Link.Idle.
func (c *wire) idle() bool {
	if c.lost || c.cut || c.retired || !c.joined || len(c.flights) > 0 {
		return false
	}
	for _, j := range c.man.jobs {
		if slices.ContainsFunc(j.running, func(a *attempt) bool { return a.wire == c }) {
			return false
		}
	}
	return true
}

// guess returns a credit that the manager was not told of.
func (c *wire) guess() {
	for _, k := range c.credits {
		if !k.lent.Told() {
			c.forth = append(c.forth, packet{&job.Return{Credit: k.lent.ID}, c.ends(k.onWire()), true})
			return
		}
	}
}

// guessed reports whether the host finds out that a credit was guessed, or has told of it meanwhile, so that it was none.
func (c *wire) guessed(p packet) bool {
	i := slices.IndexFunc(c.credits, func(k *loan) bool { return k.lent.ID == p.m.(*job.Return).Credit })
	return i < 0 || c.credits[i].lent.Told() || c.w.left != spendsUntold
}

// daemon adds what a daemon does for a connection.
func (s *stepper) daemon(i int, c *wire) {
	if c.cut && !c.ended {
		s.add("daemon notices the end of", c.id, false, func(w *world) error { w.wires[i].end(); return nil })
	}
	if c.ended && !c.released && len(c.tasks) == 0 {
		s.add("daemon releases", c.id, false, func(w *world) error { w.wires[i].release(); return nil })
	}
	if len(c.sending) > 0 && !c.ended {
		s.add("result is sent", c.id, false, func(w *world) error { w.wires[i].sent(); return nil })
	}
	for k, t := range c.tasks {
		if t.fetching {
			s.add("source has come, or comes no more, of", t.id, false, func(w *world) error { w.wires[i].tasks[k].fetched(); return nil })
		}
	}
}

// host adds what a host does by itself.
func (s *stepper) host(i int, h *host) {
	if h.lend.Queued() > 0 && h.lend.Running() < s.w.sc.cores {
		if x := explore.Copy(s.m.form, h); x.take() != nil {
			s.add("a core takes a job, of host", i+1, false, func(w *world) error {
				if t := w.hosts[i].take(); !slices.Contains(t.wire.tasks, t) && slices.Contains(t.wire.host.running, t) {
					return fmt.Errorf("job %d runs, and was answered", t.id)
				}
				return nil
			})
		}
	}
	for k, t := range h.running {
		end := func(name string, st job.Status) {
			s.add(name, t.id, false, func(w *world) error { w.hosts[i].running[k].ran(st); return nil })
		}
		end("compiled", job.StatusRan)
		if t.stopped || s.w.sc.fails {
			end("failed or killed", job.StatusFailed)
		}
	}
	if !h.draining && s.w.drains < s.w.sc.drains {
		s.add("drain host", i+1, true, func(w *world) error { w.drains++; w.hosts[i].drain(); return nil })
	}
	switch {
	case h.lend.Closed() != nil:
		s.add("takes work again: host", i+1, true, func(w *world) error { w.hosts[i].open(true); return nil })
	case s.w.closes < s.w.sc.closes:
		s.add("takes no work: host", i+1, true, func(w *world) error { w.closes++; w.hosts[i].open(false); return nil })
	}
}

// wrapper adds what a manager does for a command.
func (s *stepper) wrapper(i, k int, j *wrapper) {
	at := func(name string, of any, choice bool, f func(w *world, j *wrapper) error) {
		s.add(name, of, choice, func(w *world) error { return f(w, w.managers[i].jobs[k]) })
	}
	name := fmt.Sprintf("%d.%d", j.man.id, j.id)
	if !j.came {
		if k == 0 || j.man.jobs[k-1].came {
			at("comes", name, true, func(w *world, j *wrapper) error { j.come(w); return nil })
		}
		return
	}
	if s.w.sc.gives && !j.done {
		at("wrapper gives up", name, true, func(_ *world, j *wrapper) error { j.giveUp(); return nil })
	}
	if j.won != 0 && j.sink != nil {
		at("wrapper reads the result of", name, false, func(_ *world, j *wrapper) error { return j.finish() })
	}
	s.places(at, name, j)
	for n, a := range j.running {
		here := func(name string, choice bool, f func(w *world, a *attempt)) {
			at(name, a.id, choice, func(w *world, j *wrapper) error { f(w, j.running[n]); return nil })
		}
		switch {
		case a.over:
			here("manager takes the outcome of", false, func(w *world, a *attempt) { a.landed(w) })
			continue
		case !a.flies && a.cancelled:
			here("give up", false, func(_ *world, a *attempt) { a.drop() })
			continue
		case !a.flies:
			here("start", false, func(_ *world, a *attempt) { a.start() })
			continue
		case a.cancelled && !a.asked:
			here("cancel", false, func(_ *world, a *attempt) { a.cancel() })
		}
		if a.leg.Writes() > 0 {
			here("written", false, func(_ *world, a *attempt) { a.wrote() })
		}
	}
}

// places adds the hosts that a command may go to.
func (s *stepper) places(at func(name string, of any, choice bool, f func(w *world, j *wrapper) error), name string, j *wrapper) {
	second := len(j.running) == 1 && s.w.sc.hedges && j.running[0].flies && !j.running[0].over
	if j.done || j.started >= s.w.sc.attempts || len(j.running) > 0 && !second {
		return
	}
	any := false
	for x, c := range s.w.wires {
		if c.man != j.man || c.lost || c.draining || c.retired || slices.Contains(j.tried, c) || second && c.host == j.running[0].wire.host {
			continue
		}
		if any = true; c.purse.Len() == 0 {
			continue
		}
		what := "goes to"
		if second {
			what = "also goes to"
		}
		at(what, fmt.Sprintf("%s, %d", name, c.id), second, func(w *world, j *wrapper) error { j.pick(w.wires[x]); return nil })
	}
	if !any && !second {
		at("runs here", name, false, func(_ *world, j *wrapper) error { j.runsHere(); return nil })
	}
}
