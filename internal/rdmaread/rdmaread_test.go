package rdmaread

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// queue is a QP that only notes what is posted.
type queue struct {
	iwarp.QP
	posted []iwarp.SendWR
	err    error
}

func (q *queue) PostSend(wr *iwarp.SendWR) error {
	if q.err == nil {
		q.posted = append(q.posted, *wr)
	}
	return q.err
}

// region is a sink whose TOs start anywhere.
type region struct{ iwarp.MR }

func (region) STag() iwarp.STag { return 7 }
func (region) Base() uint64     { return 1 << 40 }

const tag = 1 << 62

// bench is a Puller and what its pulls came to.
type bench struct {
	*Puller
	q    *queue
	t    *testing.T
	done map[*Pull][]error
}

func newBench(t *testing.T, depth int) *bench {
	q := new(queue)
	return &bench{New(q, depth, tag), q, t, make(map[*Pull][]error)}
}

func (b *bench) start(stag iwarp.STag, n uint64) *Pull {
	b.t.Helper()
	x := &Pull{Sink: region{}, STag: stag, TO: 100, Len: n}
	x.Done = func(err error) { b.done[x] = append(b.done[x], err) }
	if err := b.Start(x); err != nil {
		b.t.Fatal(err)
	}
	return x
}

// answer completes the oldest n Reads.
func (b *bench) answer(n int) {
	b.t.Helper()
	for range n {
		wr := b.q.posted[0]
		b.q.posted = b.q.posted[1:]
		if err := b.Completed(&iwarp.WC{ID: wr.ID, Op: iwarp.OpRead}); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) want(x *Pull, err ...error) {
	b.t.Helper()
	if len(b.done[x]) != len(err) || len(err) > 0 && !errors.Is(b.done[x][0], err[0]) {
		b.t.Errorf("pull ended with %v, want %v", b.done[x], err)
	}
}

// TestPiecesInTurn: never more Reads than the connection may have; each byte is
// asked for once, in its place; windows of a connection take turns.
func TestPiecesInTurn(t *testing.T) {
	b := newBench(t, 3)
	long := b.start(1, 5*Piece+10)
	short := b.start(2, 20)
	if len(b.q.posted) != 3 || len(b.under) != 3 {
		t.Fatalf("%d Reads at a time, want 3", len(b.q.posted))
	}
	var order []iwarp.STag
	var bytes uint64
	for len(b.q.posted) > 0 {
		wr := b.q.posted[0]
		s := wr.SGL[0]
		if wr.Op != iwarp.OpRead || wr.ID&tag == 0 || s.LKey != 7 || s.Addr-1<<40 != wr.TO-100 || s.Length > Piece {
			t.Errorf("%+v", wr)
		}
		if wr.STag == 1 {
			if wr.TO-100 != bytes {
				t.Errorf("a piece at %d, want %d", wr.TO-100, bytes)
			}
			bytes += uint64(s.Length)
		}
		order = append(order, wr.STag)
		b.answer(1)
	}
	if bytes != 5*Piece+10 || len(order) != 7 || order[4] != 2 && order[3] != 2 {
		t.Errorf("%d bytes, order %v", bytes, order)
	}
	b.want(long, nil)
	b.want(short, nil)
}

// TestNext: a pull that follows another one is read right behind it, with pieces of its own length, and ends
// with it if the QP does.
func TestNext(t *testing.T) {
	b := newBench(t, 3)
	begin := func() (x, y *Pull) {
		x = &Pull{Sink: region{}, STag: 1, TO: 100, Len: 25, Piece: 10}
		y = &Pull{Sink: region{}, STag: 2, TO: 100, Len: 5}
		x.Next = y
		for _, p := range []*Pull{x, y} {
			p.Done = func(err error) { b.done[p] = append(b.done[p], err) }
		}
		if err := b.Start(x); err != nil {
			t.Fatal(err)
		}
		return x, y
	}
	x, y := begin()
	other := b.start(3, 7)
	var order []iwarp.STag
	var lengths []uint32
	for len(b.q.posted) > 0 {
		order, lengths = append(order, b.q.posted[0].STag), append(lengths, b.q.posted[0].SGL[0].Length)
		b.answer(1)
	}
	if want := []iwarp.STag{1, 1, 1, 3, 2}; !slices.Equal(order, want) && !slices.Equal(order, []iwarp.STag{1, 1, 1, 2, 3}) {
		t.Errorf("order %v", order)
	}
	if !slices.Equal(lengths[:3], []uint32{10, 10, 5}) {
		t.Errorf("pieces of %v", lengths)
	}
	b.want(x, nil)
	b.want(y, nil)
	b.want(other, nil)
	lost := errors.New("lost")
	x, y = begin()
	b.q.posted = nil
	full, after := begin() // of which nothing is posted
	b.End(lost)
	for _, p := range []*Pull{x, y, full, after} {
		b.want(p, lost)
	}
	x, y = begin()
	b.want(x, lost)
	b.want(y, lost)
}

// TestStop: nothing more is asked for, and the end waits for what is under way.
func TestStop(t *testing.T) {
	b := newBench(t, 2)
	x, waiting := b.start(1, 10*Piece), b.start(2, 10)
	b.Stop(waiting) // not begun
	b.want(waiting, ErrStopped)
	b.Stop(x)
	b.Stop(x)
	b.want(x)
	b.answer(1)
	b.want(x)
	b.answer(1)
	b.want(x, ErrStopped)
	if len(b.q.posted) != 0 || len(b.under) != 0 {
		t.Errorf("%d Reads posted, %d under way", len(b.q.posted), len(b.under))
	}
	b.Stop(x) // over: nothing
	b.want(x, ErrStopped)
}

// TestEnd: with the QP all ends at once, what comes later too.
func TestEnd(t *testing.T) {
	lost := errors.New("lost")
	b := newBench(t, 2)
	x, waiting := b.start(1, 10*Piece), b.start(2, 10)
	b.End(lost)
	b.want(x, lost)
	b.want(waiting, lost)
	b.want(b.start(3, 10), lost)
	if err := b.Completed(&iwarp.WC{ID: b.q.posted[0].ID}); err != nil || len(b.done[x]) != 1 {
		t.Errorf("a completion behind the end: %v", err)
	}
	b.Stop(x)
	b.want(x, lost)
	var none *Puller
	none.End(lost)
	if none.Can() || none.Tick(1) != 0 {
		t.Error("no Puller at all has something to do")
	}
}

// TestFailures: a Read that fails, or cannot be posted, leaves the rest to the QP's
// end.
func TestFailures(t *testing.T) {
	b := newBench(t, 2)
	x := b.start(1, 10*Piece)
	if err := b.Completed(&iwarp.WC{ID: b.q.posted[0].ID, Status: iwarp.StatusRemAccessErr}); err != nil {
		t.Error(err)
	}
	b.want(x)
	b.q.err = iwarp.ErrState
	if err := b.Completed(&iwarp.WC{ID: b.q.posted[1].ID}); !errors.Is(err, iwarp.ErrState) {
		t.Errorf("Completed: %v", err)
	}
	if !newBench(t, 1).Can() || newBench(t, 0).Can() {
		t.Error("Can is not what the depth says")
	}
	if empty := newBench(t, 1); len(empty.q.posted) != 0 {
		t.Error("posted")
	} else {
		empty.want(empty.start(1, 0), nil)
	}
}

func TestDepths(t *testing.T) {
	for _, c := range []struct {
		a        iwarp.DeviceAttr
		ord, ird uint16
	}{
		{iwarp.DeviceAttr{RDMARead: true, MaxORD: 128, MaxIRD: 4}, Depth, 4},
		{iwarp.DeviceAttr{RDMARead: true, MaxORD: 0, MaxIRD: 128}, 0, Depth},
		{iwarp.DeviceAttr{MaxORD: 128, MaxIRD: 128}, 0, 0},
	} {
		if ord, ird := Depths(c.a); ord != c.ord || ird != c.ird {
			t.Errorf("%+v: %d and %d, want %d and %d", c.a, ord, ird, c.ord, c.ird)
		}
	}
}

// TestTickCountsSilence: only while Reads are under way, and from the last answer on.
func TestTickCountsSilence(t *testing.T) {
	b := newBench(t, 2)
	for _, want := range []time.Duration{0, 0} {
		if got := b.Tick(time.Second); got != want {
			t.Errorf("at rest: %v", got)
		}
	}
	b.start(1, 3*Piece)
	b.Tick(time.Second)
	if got := b.Tick(time.Second); got != 2*time.Second {
		t.Errorf("quiet for %v, want 2 s", got)
	}
	b.answer(1)
	if got := b.Tick(time.Second); got != 0 {
		t.Errorf("after an answer: %v", got)
	}
	if got := b.Tick(time.Second); got != time.Second {
		t.Errorf("a second later: %v", got)
	}
	b.answer(2)
	if got := b.Tick(time.Second); got != 0 {
		t.Errorf("at rest again: %v", got)
	}
}
