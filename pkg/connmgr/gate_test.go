package connmgr

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestGateServesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		ctx := context.Background()
		if err := g.acquire(ctx, 1); err != nil {
			t.Fatal(err)
		}
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				if err := g.acquire(ctx, 1); err != nil {
					t.Error(err)
				}
				order <- i
			}()
			synctest.Wait() // each one stands in the queue before the next comes
		}
		if held, waiting := g.load(); held != 1 || waiting != 3 {
			t.Errorf("held %d, waiting %d, want 1 and 3", held, waiting)
		}
		for want := range 3 {
			g.release()
			if got := <-order; got != want {
				t.Errorf("turn %d went to %d", want, got)
			}
		}
		g.release()
		if held, waiting := g.load(); held != 0 || waiting != 0 {
			t.Errorf("held %d, waiting %d at the end, want none", held, waiting)
		}
	})
}

func TestGateGivesUpWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g gate
		if err := g.acquire(context.Background(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- g.acquire(ctx, 1) }()
		synctest.Wait()
		// Behind it one whose limit allows it to run already.
		served := make(chan error, 1)
		go func() { served <- g.acquire(context.Background(), 2) }()
		synctest.Wait()
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			t.Errorf("acquire: %v, want context.Canceled", err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
		g.release()
		g.release()
		if held, _ := g.load(); held != 0 {
			t.Errorf("held %d at the end, want 0", held)
		}
		if err := g.acquire(ctx, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("acquire with an ended context: %v", err)
		}
	})
}
