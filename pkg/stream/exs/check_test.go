package exs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/explore"
	"github.com/rdistcc/rdistcc/internal/test/kit/part"
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

// key appends what tells states apart.
func (w *world) key(b []byte) []byte {
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
	return b
}

// steps returns all that can happen next.
func (w *world) steps(sc *scope) (all []explore.Step[*world]) {
	add := func(name string, of any, choice bool, c *world, err error) {
		if err == nil {
			err = c.invariants()
		}
		all = append(all, explore.Step[*world]{Name: name, Of: of, To: c, Err: err, Choice: choice})
	}
	do := func(name string, of any, f func(*world) error) {
		c := w.clone()
		add(name, of, false, c, f(c))
	}
	// may is for what only an application does.
	may := func(name string, of any, f func(*world) error) {
		c := w.clone()
		add(name, of, true, c, f(c))
	}
	// try is for what the engine says itself that it can do; where it cannot, what it has changed meanwhile is discarded.
	try := func(name string, f func(*world) (of any, ok bool, err error)) {
		c := w.clone()
		if of, ok, err := f(c); ok {
			add(name, of, false, c, err)
		}
	}
	try("transmit", func(c *world) (any, bool, error) {
		d, ok := c.s.Next()
		c.forth = append(c.forth, d)
		return d.Data, ok, nil
	})
	if len(w.forth) > 0 {
		do("arrive", w.forth[0], (*world).arrive)
	}
	try("copy", func(c *world) (any, bool, error) {
		x, done, full, ok := c.r.Copy()
		if !ok {
			return x, false, nil
		}
		return x, true, c.filled(x.ID, x.To, x.Len, done, full)
	})
	try("acknowledge", func(c *world) (any, bool, error) {
		n, ok := c.r.Ack()
		c.back = append(c.back, ack(n))
		return n, ok, nil
	})
	try("advertise", func(c *world) (any, bool, error) {
		a, ok := c.r.Advertise()
		c.back = append(c.back, a)
		return a, ok, nil
	})
	if len(w.back) > 0 {
		do("hear", w.back[0], func(c *world) error {
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
	try("end", func(c *world) (any, bool, error) {
		seq, ok := c.s.Fin()
		c.forth = append(c.forth, fin(seq))
		return seq, ok, nil
	})
	if _, ok := w.clone().r.Cancel(); ok {
		do("cancel", nil, (*world).cancel)
	}
	if w.withdrawals < sc.withdrawals && len(w.r.receives) > 0 && !w.wants {
		may("withdraw", nil, func(c *world) error {
			c.withdrawals, c.wants = c.withdrawals+1, true
			if c.r.Withdraw() {
				c.back = append(c.back, withdraw{})
			}
			return nil
		})
	}
	if sc.fin && !w.s.closed {
		may("close", nil, func(c *world) error { c.s.Close(); return nil })
	}
	for n := uint64(1); n <= sc.op; n++ {
		if len(w.s.sends) < sc.sends && w.sent+n <= sc.bytes && !w.s.closed {
			may("send", n, func(c *world) error { c.s.Post(n); c.sent += n; return nil })
		}
		for _, all := range []bool{false, true} {
			if len(w.r.receives) < sc.receives && w.posted < sc.posting && !w.wants {
				may("receive", receive{len: n, waitAll: all}, func(c *world) error {
					c.posted++
					c.r.Post(uint64(c.posted), n, all)
					c.buffers = append(c.buffers, buffer{id: uint64(c.posted)})
					return nil
				})
			}
		}
	}
	return all
}

// stuck returns what is wrong if only an application can go on.
func (w *world) stuck() error {
	if len(w.r.receives) > 0 && (w.s.unsent > 0 || w.wants || w.s.closed) {
		return errors.New("both sides wait")
	}
	return nil
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

// most bounds the states of one scope.
const most = 20_000_000

// check looks at every state in scope. reentries is how often a direct phase follows an indirect one.
func check(sc scope, broken fault) (r explore.Report, reentries int) {
	start := &world{s: *NewSender(sc.ring, Dynamic), r: *NewReceiver(sc.ring)}
	start.s.break_ = broken
	m := explore.Model[*world]{
		Start: start,
		Key:   func(b []byte, w *world) []byte { return w.key(b) },
		Steps: func(w *world) []explore.Step[*world] {
			all := w.steps(&sc)
			for _, st := range all {
				if st.To.s.phase%2 == 0 && w.s.phase%2 == 1 {
					reentries++
				}
			}
			return all
		},
		Stuck: (*world).stuck,
		Most:  most,
	}
	return m.Run(), reentries
}

// TestEveryOrder: whatever the order of events, data lands in the receive that is next, every byte once, and neither side
// waits for the other for ever.
func TestEveryOrder(t *testing.T) {
	part.Skip(t)
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
			r, reentries := check(sc, sound)
			t.Logf("%d states, %d ways back into a direct phase", r.States, reentries)
			if r.Err != nil {
				t.Fatalf("%v after\n%s", r.Err, strings.Join(r.Trace, "\n"))
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
			r, _ := check(sc, broken)
			if r.Err == nil || r.Trace == nil {
				t.Fatalf("nothing is found in %d states: %v", r.States, r.Err)
			}
			t.Logf("%v after %d states and %d steps:\n%s", r.Err, r.States, len(r.Trace), strings.Join(r.Trace, "\n"))
		})
	}
}
