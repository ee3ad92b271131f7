package slots

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
)

func TestScratchIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScratch(256 << 10)
		ctx, cancel := context.WithCancel(t.Context())
		if s.Take(ctx, 256<<10+1) != nil {
			t.Error("more than there is was lent")
		}
		a := s.Take(ctx, 200<<10)
		if a == nil || len(a.Mem) < 200<<10 {
			t.Fatal("200 KiB of 256 were not lent")
		}
		got := make(chan *Lent, 1)
		go func() { got <- s.Take(ctx, 1) }()
		synctest.Wait()
		select {
		case <-got:
			t.Error("more was lent than there is")
		default:
		}
		a.Give()
		b := <-got
		go func() { got <- s.Take(ctx, 256<<10) }()
		synctest.Wait()
		cancel()
		if x := <-got; x != nil {
			t.Error("lent to one who did not wait")
		}
		b.Give()
		var none *Lent
		none.Give()
		if !s.room.TryAcquire(s.max) {
			t.Error("not all came back")
		}
	})
}

func TestScratchThatTurnsOutSmall(t *testing.T) {
	s := NewScratch(1 << 20)
	a := s.Take(t.Context(), 512<<10)
	copy(a.Mem, "packed")
	b := a.Fit(6)
	if len(b.Mem) != 64<<10 || string(b.Mem[:6]) != "packed" {
		t.Errorf("%d bytes, %q", len(b.Mem), b.Mem[:6])
	}
	if b.Fit(6) != b {
		t.Error("moved to a buffer of the same size")
	}
	rest := s.Take(t.Context(), 512<<10) // there is room for it only if the first was given back
	full := s.Take(t.Context(), 256<<10)
	x := s.Take(t.Context(), 128<<10)
	y := s.Take(t.Context(), 64<<10)
	if full.Fit(6) != full {
		t.Error("moved where there was no room")
	}
	for _, l := range []*Lent{b, rest, full, x, y} {
		l.Give()
	}
	if !s.room.TryAcquire(s.max) {
		t.Error("not all came back")
	}
}

// TestLargeScratchIsFreed: the memory of a large buffer is the system's again when Give returns, whatever the
// garbage collector does.
func TestLargeScratchIsFreed(t *testing.T) {
	before := resident(t)
	l := NewScratch(64<<20).Take(t.Context(), 40<<20)
	for i := 0; i < len(l.Mem); i += 4096 {
		l.Mem[i] = 1
	}
	if got := resident(t) - before; got < 60<<20 {
		t.Fatalf("a buffer of 64 MiB has %d bytes of memory", got)
	}
	l.Give()
	if got := resident(t) - before; got > 16<<20 {
		t.Errorf("%d bytes stayed", got)
	}
}

// resident returns how many bytes of memory this process has.
func resident(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(b))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
