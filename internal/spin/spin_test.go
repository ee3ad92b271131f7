package spin

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func spinning(w *Wait, limit time.Duration, alone bool) bool {
	w.Begin(limit, alone)
	return w.Spins()
}

// TestOneProcessorIsLeft: what spins never takes the last processor from what it waits for.
func TestOneProcessorIsLeft(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3))
	var a, b, c, d Wait
	if !spinning(&a, time.Hour, false) || !spinning(&b, time.Hour, true) {
		t.Fatal("two of three processors were not taken")
	}
	if spinning(&c, time.Hour, false) || spinning(&d, time.Hour, true) {
		t.Error("the last one was")
	}
	a.End()
	a.End()
	if spinning(&c, time.Hour, false) {
		t.Error("a wait that was to block spins")
	}
	if !spinning(&a, time.Hour, false) {
		t.Error("a wait that had not used its time may not go on")
	}
	a.End()
	b.End()
	runtime.GOMAXPROCS(1)
	var e, f Wait
	if spinning(&e, time.Hour, false) {
		t.Error("the only processor is kept from what is waited for")
	}
	if !spinning(&f, time.Hour, true) {
		t.Error("a wait for nothing else may not spin on the only processor")
	}
	f.End()
	if n := spinners.Load(); n != 0 {
		t.Errorf("%d spin at the end", n)
	}
}

// TestEnds: by its context, by its time, and by the number of turns when the clock stands still.
func TestEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	run := func(w *Wait) (turns int) {
		for w.More(ctx) {
			turns++
		}
		if w.More(ctx) {
			t.Error("goes on after its end")
		}
		w.End()
		return turns
	}
	var w Wait
	if w.More(ctx) {
		t.Error("spins before it begins")
	}
	w.Begin(time.Millisecond, true)
	if run(&w) == 0 {
		t.Error("did not spin")
	}
	if w.Begin(time.Millisecond, true); w.Spins() {
		t.Error("its time is used twice")
	}
	synctest.Test(t, func(t *testing.T) {
		var w Wait
		w.Begin(time.Millisecond, true)
		if n := run(&w); n == 0 || n > int(time.Millisecond/atOnce) {
			t.Errorf("%d turns while the clock stands still", n)
		}
	})
	cancel()
	w = Wait{}
	w.Begin(time.Hour, true)
	if n := run(&w); n >= check {
		t.Errorf("%d turns after the end of its context", n)
	}
	var none Wait
	if none.Begin(0, true); none.Spins() {
		t.Error("spins for no time")
	}
}
