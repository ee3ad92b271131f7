package shelf

import (
	"bytes"
	"encoding/hex"
	"testing"
	"time"
)

// look reads the head together with the first places of the table.
func (b *bench) look(places int, now time.Time) {
	b.t.Helper()
	mem := b.read(0, uint64(HeadLen+places*MarkLen))
	h, err := ParseHead(mem[:HeadLen], uint64(len(b.mem)))
	if err == nil {
		err = b.x.Learn(h)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	b.x.LearnMarks(mem[HeadLen:], now)
}

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// TestGoldenMark: the bytes of a mark.
func TestGoldenMark(t *testing.T) {
	b := newBench(t, 4096)
	at := b.Begin(key(0x1122334455667788), Mark{Maker: 0xa1b2c3d5, Expect: 1500 * time.Millisecond})
	b.Runs(at)
	const want = "8877665544332211" + "d5c3b2a1" + "b90b0000"
	if got := hex.EncodeToString(b.mem[HeadLen:][:MarkLen-8]); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	b.End(at)
	if !bytes.Equal(b.mem[HeadLen:recordsAt], make([]byte, recordsAt-HeadLen)) {
		t.Error("a mark that has ended is still there")
	}
}

// TestMarks: a mark is there from Begin to End, and known since it was first seen as it is. Marks take no places of
// entries.
func TestMarks(t *testing.T) {
	b := newBench(t, 4096)
	for n := range uint64(20) {
		b.Put(key(100+n), make([]byte, 50))
	}
	before := b.Stats()
	one := b.Begin(key(1), Mark{Maker: 7, Expect: time.Second})
	two := b.Begin(key(2), Mark{Maker: 7})
	b.look(MaxMarks, t0)
	if h := b.x.Head(); h.Marks != 2 || h.Makers != 7 || h.Makers.Others(7) || !h.Makers.Others(9) {
		t.Errorf("%+v", h)
	}
	if u, ok := b.x.UnderWay(key(1)); !ok || u != (UnderWay{Mark{7, time.Second, false}, t0}) {
		t.Errorf("%+v, %v", u, ok)
	}
	b.Runs(one)
	three := b.Begin(key(3), Mark{Maker: 9})
	b.look(2, t0.Add(1)) // it does not read the third one
	if h := b.x.Head(); h.Marks != 3 || !h.Makers.Others(7) || !h.Makers.Others(9) {
		t.Errorf("%+v", h)
	}
	for n, want := range map[uint64]UnderWay{1: {Mark{7, time.Second, true}, t0.Add(1)}, 2: {Mark{7, 0, false}, t0}} {
		if u, ok := b.x.UnderWay(key(n)); !ok || u != want {
			t.Errorf("%d: %+v, %v, want %+v", n, u, ok, want)
		}
	}
	if _, ok := b.x.UnderWay(key(3)); ok {
		t.Error("a mark that was not read is known")
	}
	b.End(one)
	b.End(three)
	b.look(MaxMarks, t0.Add(2))
	if h := b.x.Head(); h.Marks != 2 || h.Makers != 7 {
		t.Errorf("%+v", h)
	}
	if _, ok := b.x.UnderWay(key(1)); ok {
		t.Error("a mark that has ended is known")
	}
	if at := b.Begin(key(4), Mark{Maker: 7}); at != one {
		t.Errorf("place %d, %d is free", at, one)
	} else {
		b.End(at)
	}
	b.End(two)
	b.look(0, t0.Add(3))
	if h := b.x.Head(); h.Marks != 0 || h.Makers != 0 || len(b.x.marks) != 0 {
		t.Errorf("%+v", h)
	}
	if after := b.Stats(); after != before {
		t.Errorf("%+v, before there were marks %+v", after, before)
	}
}

// TestMarksFull: of more jobs than there are places, some have no mark. Nothing is written behind the table.
func TestMarksFull(t *testing.T) {
	b := newBench(t, 4096)
	b.Put(key(1), []byte("x"))
	behind := b.read(recordsAt, recordLen)
	var all []int
	for n := range uint64(MaxMarks + 10) {
		at := b.Begin(key(n), Mark{Maker: 1})
		if (at == 0) != (n >= MaxMarks) {
			t.Fatalf("job %d has place %d", n, at)
		}
		all = append(all, at)
	}
	b.look(MaxMarks, t0)
	if len(b.x.marks) != MaxMarks || !bytes.Equal(behind, b.read(recordsAt, recordLen)) {
		t.Errorf("%d marks", len(b.x.marks))
	}
	for _, at := range all {
		b.End(at)
	}
	if at := b.Begin(key(1), Mark{Maker: 1}); at != 1 {
		t.Errorf("place %d of an empty table", at)
	}
	b.Limit(0)
	if at := b.Begin(key(1), Mark{Maker: 1}); at != 0 {
		t.Error("a mark where nothing is kept")
	}
}

// TestTornMark: a mark with a changed bit is not known, and harms no other one.
func TestTornMark(t *testing.T) {
	b := newBench(t, 4096)
	b.Begin(key(1), Mark{Maker: 7})
	b.Begin(key(2), Mark{Maker: 7})
	for i := range MarkLen {
		b.mem[HeadLen+i] ^= 0x10
		b.look(MaxMarks, t0)
		_, one := b.x.UnderWay(key(1))
		_, two := b.x.UnderWay(key(2))
		if one || !two || len(b.x.marks) != 1 {
			t.Errorf("byte %d: %v, %v, %d marks", i, one, two, len(b.x.marks))
		}
		b.mem[HeadLen+i] ^= 0x10
	}
}

// TestMarksBesideEntries: marks begin and end while entries are put. A mark that is gone has left its entry.
func TestMarksBesideEntries(t *testing.T) {
	for range 20 {
		b := newBench(t, 1<<20)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for n := range uint64(150) { // all of them stay: a record's place is not taken by a later one
				at := b.Begin(key(n), Mark{Maker: 1})
				b.Put(key(n), make([]byte, 100))
				b.End(at)
			}
		}()
		for seen, over := []uint64(nil), false; !over; {
			select {
			case <-done:
				over = true
			default:
			}
			b.look(MaxMarks, t0)
			for off, k := b.x.Next(); k > 0; off, k = b.x.Next() {
				b.x.Add(b.read(off, k))
			}
			for _, m := range seen { // under way at the last look
				if _, still := b.x.marks[m]; !still && b.x.all[m] == (Place{}) {
					t.Fatalf("%d is gone without its entry", m)
				}
			}
			seen = seen[:0]
			for m := range b.x.marks {
				seen = append(seen, m)
			}
		}
		if st := b.Stats(); st.Entries != 150 || st.Evicted != 0 {
			t.Fatalf("%+v", st)
		}
	}
}
