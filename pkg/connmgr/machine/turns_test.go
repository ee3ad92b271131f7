package machine

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestGateServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Turns
		ctx := context.Background()
		if err := g.Acquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if err := g.Acquire(ctx, 1); err != nil {
					t.Error(err)
				}
				order <- i
			}()
			synctest.Wait() // each is queued before the next one starts
		}
		if held, waiting := g.Load(); held != 1 || waiting != 3 {
			t.Errorf("held %d, waiting %d, want 1 and 3", held, waiting)
		}
		for want := range 3 {
			g.Release()
			if got := <-order; got != want {
				t.Errorf("turn %d went to %d", want, got)
			}
		}
		g.Release()
		if held, waiting := g.Load(); held != 0 || waiting != 0 {
			t.Errorf("held %d, waiting %d at the end, want none", held, waiting)
		}
	})
}

func TestGateGivesUpWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Turns
		if err := g.Acquire(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- g.Acquire(ctx, 1) }()
		synctest.Wait()
		// The next in the queue has a limit that would let it run already.
		served := make(chan error, 1)
		go func() { served <- g.Acquire(context.Background(), 2) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("acquire: %v, want context.Canceled", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		g.Release()
		g.Release()
		if held, _ := g.Load(); held != 0 {
			t.Errorf("held %d at the end, want 0", held)
		}
		if err := g.Acquire(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("acquire with an ended context: %v", err)
		}
	})
}

// TestGateMindsMemory: with little memory one process runs at a time, and more run as soon as there is room.
// A process that has just begun counts before its memory shows.
func TestGateMindsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now := Memory{Total: 8 << 30, Free: 400 << 20}
		set := func(m Memory) {
			mu.Lock()
			defer mu.Unlock()
			now = m
		}
		guard := &Guard{Read: func() Memory {
			mu.Lock()
			defer mu.Unlock()
			return now
		}}
		g := &Turns{Room: func() bool { return guard.Admits(time.Now(), CompileMemory) }}
		const n = 8
		for range n {
			go func() { _ = g.Acquire(context.Background(), n) }()
		}
		wants := func(held int, when string) {
			t.Helper()
			synctest.Wait()
			if got, _ := g.Load(); got != held {
				t.Errorf("%s: %d run, want %d", when, got, held)
			}
		}
		wants(1, "with no memory to spare")
		time.Sleep(10 * time.Second)
		wants(1, "and none later")
		// Room for two, besides the twentieth that is left to others.
		set(Memory{Total: 8 << 30, Free: 410<<20 + 2*CompileMemory})
		time.Sleep(time.Second)
		wants(3, "with room for two")
		set(Memory{Total: 8 << 30, Free: 1000 << 20, Stalled: 30})
		time.Sleep(10 * time.Second)
		wants(3, "when processes wait for memory")
		set(Memory{Total: 8 << 30, Free: 4 << 30, Stalled: 30}) // some have a limit of their own
		time.Sleep(time.Second)
		wants(n, "with memory for all")
		for range n {
			g.Release()
		}
		wants(0, "at the end")
	})
}

func TestMemoryOfThisMachine(t *testing.T) {
	m := ReadMemory()
	if m.Total == 0 {
		t.Skip("the kernel does not say how much memory is available")
	}
	if m.Free > m.Total || m.Total < 1<<20 || m.Stalled < 0 || m.Stalled > 100 {
		t.Errorf("%+v makes no sense", m)
	}
}
