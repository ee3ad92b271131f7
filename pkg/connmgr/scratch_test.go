package connmgr

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestScratchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScratch(256 << 10)
		ctx, cancel := context.WithCancel(t.Context())
		if s.take(ctx, 256<<10+1) != nil {
			t.Error("more than there is was lent")
		}
		a := s.take(ctx, 200<<10)
		if a == nil || len(a.mem) < 200<<10 {
			t.Fatal("200 KiB of 256 were not lent")
		}
		got := make(chan *lent, 1)
		go func() { got <- s.take(ctx, 1) }()
		synctest.Wait()
		select {
		case <-got:
			t.Error("more was lent than there is")
		default:
		}
		a.give()
		b := <-got
		go func() { got <- s.take(ctx, 256<<10) }()
		synctest.Wait()
		cancel()
		if x := <-got; x != nil {
			t.Error("lent to one who did not wait")
		}
		b.give()
		var none *lent
		none.give()
		if !s.room.TryAcquire(s.max) {
			t.Error("not all came back")
		}
	})
}

func TestScratchThatTurnsOutSmall(t *testing.T) {
	s := newScratch(1 << 20)
	a := s.take(t.Context(), 512<<10)
	copy(a.mem, "packed")
	b := a.fit(6)
	if len(b.mem) != 64<<10 || string(b.mem[:6]) != "packed" {
		t.Errorf("%d bytes, %q", len(b.mem), b.mem[:6])
	}
	if b.fit(6) != b {
		t.Error("moved to a buffer of the same size")
	}
	rest := s.take(t.Context(), 512<<10) // there is only room for it if the first came back
	full := s.take(t.Context(), 256<<10)
	x := s.take(t.Context(), 128<<10)
	y := s.take(t.Context(), 64<<10)
	if full.fit(6) != full {
		t.Error("moved where there was no room")
	}
	for _, l := range []*lent{b, rest, full, x, y} {
		l.give()
	}
	if !s.room.TryAcquire(s.max) {
		t.Error("not all came back")
	}
}
