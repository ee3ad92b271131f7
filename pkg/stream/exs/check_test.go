package exs

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The checker explores every order in which two applications, the two ends of a direction and the messages between them can
// act, for a few bytes. It drives the engine that ships, not a model of it.

// scope bounds what is explored.
type scope struct {
	bytes, op, ring          uint64 // of the stream, of one send or receive at most, of the ring
	sends, receives, posting int    // outstanding sends, outstanding receives, receives in all
	withdrawals              int    // how often the application takes its receives back
	fin                      bool   // the stream ends, once the application has sent all or at any time before
}

// world is one state: the two ends and what is on its way.
type world struct {
	s       Sender
	r       Receiver
	forth   []any    // Write, fin or withdrawn
	back    []any    // Advert, ack or withdraw
	sent    uint64   // bytes that the application has sent
	posted  int      // receives that were posted
	buffers []buffer // those that the receiving application has given away, in order

	withdrawals int  // how often receives were taken back
	wants       bool // they are being taken back
}

type (
	fin       uint64
	withdrawn struct{}
	ack       uint64
	withdraw  struct{}
)

// buffer is a receive's memory as the checker knows it.
type buffer struct{ id, fill uint64 }

func (w *world) clone() *world {
	c := *w
	c.s.adverts, c.s.sends = slices.Clone(w.s.adverts), slices.Clone(w.s.sends)
	c.r.receives = slices.Clone(w.r.receives)
	c.forth, c.back = slices.Clone(w.forth), slices.Clone(w.back)
	c.buffers = slices.Clone(w.buffers)
	return &c
}

// key tells states apart.
func (w *world) key() [16]byte {
	b := make([]byte, 0, 128)
	num := func(n ...uint64) {
		for _, n := range n {
			b = binary.AppendUvarint(b, n)
		}
	}
	flag := func(v bool) uint64 {
		if v {
			return 1
		}
		return 0
	}
	advert := func(a *Advert) {
		num(uint64(a.Phase), a.Seq, flag(a.Exact), a.ID, a.Off, a.Len, flag(a.WaitAll))
	}
	num(w.s.seq, uint64(w.s.phase), w.s.credit, w.s.at, uint64(len(w.s.adverts)))
	for i := range w.s.adverts {
		advert(&w.s.adverts[i])
	}
	num(uint64(len(w.s.sends)))
	num(w.s.sends...)
	num(w.r.seq, uint64(w.r.phase), w.r.filled, w.r.at, w.r.freed, uint64(w.r.open), uint64(len(w.r.receives)))
	for _, x := range w.r.receives {
		num(x.id, x.len, x.fill, flag(x.waitAll))
	}
	num(uint64(len(w.forth)))
	for _, m := range w.forth {
		switch m := m.(type) {
		case Write:
			d := &m.Data
			num(flag(d.Direct), uint64(d.Phase), d.Seq, d.Len, d.ID, m.To)
		case fin:
			num(2, uint64(m))
		case withdrawn:
			num(3)
		}
	}
	num(uint64(len(w.back)))
	for _, m := range w.back {
		switch m := m.(type) {
		case Advert:
			num(1)
			advert(&m)
		case ack:
			num(0, uint64(m))
		case withdraw:
			num(2)
		}
	}
	num(w.sent, uint64(w.posted), uint64(w.withdrawals), flag(w.wants), flag(w.s.closed), flag(w.s.ended), flag(w.r.asked), uint64(w.r.back), flag(w.r.ended))
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// step is one thing that can happen: what it is called, and the state that follows, or what was broken.
type step struct {
	name string
	to   *world
	err  error
}

// steps returns all that can happen next. inner are those that no application has to do.
func (w *world) steps(sc *scope) (all []step, inner int) {
	do := func(name string, f func(*world) error) {
		c := w.clone()
		err := f(c)
		if err == nil {
			err = c.invariants()
		}
		all = append(all, step{name, c, err})
	}
	if x := w.clone(); true {
		if d, ok := x.s.Next(); ok {
			x.forth = append(x.forth, d)
			all = append(all, step{fmt.Sprintf("transmit %+v", d.Data), x, x.invariants()})
		}
	}
	if len(w.forth) > 0 {
		do(fmt.Sprintf("arrive %+v", w.forth[0]), (*world).arrive)
	}
	if x, _, _, ok := w.clone().r.Copy(); ok {
		do(fmt.Sprintf("copy %+v", x), func(c *world) error {
			x, done, full, _ := c.r.Copy()
			return c.filled(x.ID, x.To, x.Len, done, full)
		})
	}
	if _, ok := w.clone().r.Ack(); ok {
		do("acknowledge", func(c *world) error {
			n, _ := c.r.Ack()
			c.back = append(c.back, ack(n))
			return nil
		})
	}
	if a, ok := w.clone().r.Advertise(); ok {
		do(fmt.Sprintf("advertise %+v", a), func(c *world) error {
			a, _ := c.r.Advertise()
			c.back = append(c.back, a)
			return nil
		})
	}
	if len(w.back) > 0 {
		do(fmt.Sprintf("hear %+v", w.back[0]), func(c *world) error {
			m := c.back[0]
			c.back = c.back[1:]
			switch m := m.(type) {
			case Advert:
				return c.s.Advert(m)
			case ack:
				return c.s.Ack(uint64(m))
			}
			if c.s.Withdraw(); c.s.break_ == answersLate {
				c.forth = slices.Insert(c.forth, 0, any(withdrawn{}))
			} else {
				c.forth = append(c.forth, withdrawn{})
			}
			return nil
		})
	}
	if _, ok := w.clone().s.Fin(); ok {
		do("end", func(c *world) error {
			seq, _ := c.s.Fin()
			c.forth = append(c.forth, fin(seq))
			return nil
		})
	}
	if _, ok := w.clone().r.Cancel(); ok {
		do("cancel", (*world).cancel)
	}
	inner = len(all)
	if w.withdrawals < sc.withdrawals && len(w.r.receives) > 0 && !w.wants {
		do("withdraw", func(c *world) error {
			c.withdrawals, c.wants = c.withdrawals+1, true
			if c.r.Withdraw() {
				c.back = append(c.back, withdraw{})
			}
			return nil
		})
	}
	if sc.fin && !w.s.closed {
		do("close", func(c *world) error { c.s.Close(); return nil })
	}
	for n := uint64(1); n <= sc.op; n++ {
		if len(w.s.sends) < sc.sends && w.sent+n <= sc.bytes && !w.s.closed {
			do(fmt.Sprintf("send %d", n), func(c *world) error { c.s.Post(n); c.sent += n; return nil })
		}
		for _, all := range []bool{false, true} {
			if len(w.r.receives) < sc.receives && w.posted < sc.posting && !w.wants {
				do(fmt.Sprintf("receive %d %v", n, all), func(c *world) error {
					c.posted++
					c.r.Post(uint64(c.posted), n, all)
					c.buffers = append(c.buffers, buffer{id: uint64(c.posted)})
					return nil
				})
			}
		}
	}
	return all, inner
}

// arrive delivers the oldest data.
func (w *world) arrive() error {
	m := w.forth[0]
	w.forth = w.forth[1:]
	switch m := m.(type) {
	case fin:
		return w.r.Fin(uint64(m))
	case withdrawn:
		return w.r.Withdrawn()
	}
	d, to := m.(Write).Data, m.(Write).To
	if d.Direct { // the Write has happened, whatever the receiver says of it
		if len(w.buffers) == 0 || w.buffers[0].id != d.ID || w.buffers[0].fill != to {
			return fmt.Errorf("data was written to byte %d of receive %d; next is %+v", to, d.ID, w.buffers)
		}
		if w.r.filled > 0 {
			return errors.New("direct data while the ring is not drained")
		}
	}
	c, done, err := w.r.Data(d)
	if err != nil {
		return err
	}
	if d.Direct {
		return w.filled(d.ID, to, d.Len, c, done)
	}
	return nil
}

// filled notes what the first buffer has got.
func (w *world) filled(id, to, n uint64, c Completion, done bool) error {
	b := &w.buffers[0]
	if b.id != id || b.fill != to {
		return fmt.Errorf("%d bytes went to byte %d of receive %d; next is %+v", n, to, id, *b)
	}
	if b.fill += n; !done {
		return nil
	}
	defer func() { w.wants = w.wants && len(w.buffers) > 0 }()
	if c != (Completion{b.id, b.fill}) {
		return fmt.Errorf("receive %+v is completed as %+v", *b, c)
	}
	w.buffers = w.buffers[1:]
	return nil
}

// cancel takes the first receive back.
func (w *world) cancel() error {
	c, ok := w.r.Cancel()
	if !ok || c != (Completion{w.buffers[0].id, w.buffers[0].fill}) {
		return fmt.Errorf("receive %+v is cancelled as %+v", w.buffers[0], c)
	}
	w.buffers = w.buffers[1:]
	w.wants = w.wants && len(w.buffers) > 0
	return nil
}

// invariants returns which one does not hold.
func (w *world) invariants() error {
	var flying uint64
	end := w.r.seq + w.r.filled
	for _, m := range w.forth {
		x, ok := m.(Write)
		if !ok {
			continue
		}
		d := x.Data
		if d.Seq != end {
			return fmt.Errorf("data at %d follows %d", d.Seq, end)
		}
		end += d.Len
		flying += d.Len
	}
	switch {
	case end != w.s.seq:
		return fmt.Errorf("%d bytes are sent, and %d are somewhere", w.s.seq, end)
	case w.s.seq+w.s.unsent != w.sent:
		return fmt.Errorf("%d bytes of %d are sent or queued", w.s.seq+w.s.unsent, w.sent)
	case w.r.filled > w.r.size || w.s.credit > w.s.ring:
		return errors.New("the ring has more than it can hold")
	case w.s.phase > w.r.phase+1 || w.r.phase > w.s.phase+1:
		return fmt.Errorf("phases %d and %d have drifted apart", w.s.phase, w.r.phase)
	}
	return nil
}

// explore looks at every state in scope. It returns how many there are, and the shortest way to one where something is
// broken.
func explore(sc scope, broken fault, most int) (states, reentries int, way []string, err error) {
	start := &world{s: *NewSender(sc.ring, Dynamic), r: *NewReceiver(sc.ring)}
	start.s.break_ = broken
	type seen struct {
		before int32
		name   string
	}
	at := map[[16]byte]int32{start.key(): 0}
	log := []seen{{-1, ""}}
	queue := []*world{start}
	trace := func(i int32, last string) (way []string) {
		for ; i > 0; i = log[i].before {
			way = append(way, log[i].name)
		}
		slices.Reverse(way)
		return append(way, last)
	}
	for i := int32(0); int(i) < len(queue); i++ {
		w := queue[i]
		queue[i] = nil
		all, inner := w.steps(&sc)
		if inner == 0 && (len(w.r.receives) > 0 && (w.s.unsent > 0 || w.wants) || w.s.closed && len(w.r.receives) > 0) {
			return len(log), reentries, trace(i, "nothing"), errors.New("both sides wait")
		}
		for _, st := range all {
			if st.err != nil {
				return len(log), reentries, trace(i, st.name), st.err
			}
			if st.to.s.phase%2 == 0 && w.s.phase%2 == 1 {
				reentries++
			}
			key := st.to.key()
			if _, known := at[key]; known {
				continue
			}
			at[key] = int32(len(log))
			log = append(log, seen{i, st.name})
			queue = append(queue, st.to)
			if len(log) >= most {
				return len(log), reentries, nil, errors.New("too many states")
			}
		}
	}
	return len(log), reentries, nil, nil
}

// TestEveryOrder: whatever the order of events, data lands in the receive that is next, every byte once, and neither side
// waits for the other for ever.
func TestEveryOrder(t *testing.T) {
	scopes := map[string]scope{
		"three bytes": {bytes: 3, op: 2, ring: 2, sends: 2, receives: 2, posting: 4},
		"ring of one": {bytes: 4, op: 2, ring: 1, sends: 2, receives: 2, posting: 4},
		"taken back":  {bytes: 2, op: 2, ring: 2, sends: 1, receives: 2, posting: 3, withdrawals: 1, fin: true},
		"and again":   {bytes: 2, op: 1, ring: 1, sends: 2, receives: 2, posting: 3, withdrawals: 2, fin: true},
	}
	if testing.Short() {
		scopes = map[string]scope{
			"two bytes":  {bytes: 2, op: 2, ring: 2, sends: 2, receives: 2, posting: 3},
			"taken back": {bytes: 2, op: 1, ring: 1, sends: 1, receives: 2, posting: 3, withdrawals: 1, fin: true},
		}
	}
	for name, sc := range scopes {
		t.Run(name, func(t *testing.T) {
			states, reentries, way, err := explore(sc, sound, 20_000_000)
			t.Logf("%d states, %d ways back into a direct phase", states, reentries)
			if err != nil {
				t.Fatalf("%v after\n%s", err, strings.Join(way, "\n"))
			}
			if reentries == 0 {
				t.Error("no indirect phase ends")
			}
		})
	}
}

// TestCheckerFindsFaults: an engine that lacks one of its rules is found out.
func TestCheckerFindsFaults(t *testing.T) {
	sc := scope{bytes: 4, op: 2, ring: 2, sends: 2, receives: 2, posting: 4}
	for name, broken := range map[string]fault{"phases are not looked at": anyPhase, "positions are not looked at": anySeq, "an estimate opens a phase": estimateOpens,
		"receives are given back before what was written to them": answersLate} {
		t.Run(name, func(t *testing.T) {
			sc := sc
			if broken == answersLate {
				sc.withdrawals = 1
			}
			states, _, way, err := explore(sc, broken, 20_000_000)
			if err == nil || way == nil {
				t.Fatalf("nothing is found in %d states: %v", states, err)
			}
			t.Logf("%v after %d states and %d steps:\n%s", err, states, len(way), strings.Join(way, "\n"))
		})
	}
}
