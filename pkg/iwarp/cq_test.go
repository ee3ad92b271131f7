package iwarp

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func newTestCQ(t *testing.T, depth int) *cq {
	t.Helper()
	dev, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := dev.CreateCQ(depth)
	if err != nil {
		t.Fatal(err)
	}
	return c.(*cq)
}

// TestCQWakesAsManyAsItHas: no completion stays while a goroutine waits, and none is woken in vain.
func TestCQWakesAsManyAsItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCQ(t, 8)
		q := &qp{}
		got := make(chan uint64, 8)
		for range 3 {
			go func() {
				for c.Wait(t.Context()) == nil {
					var wc [1]WC
					if c.Poll(wc[:]) == 1 {
						got <- wc[0].ID
					}
				}
			}()
		}
		synctest.Wait()
		for id := range uint64(5) {
			c.push(&WC{ID: id, QP: q}, nil)
		}
		synctest.Wait()
		if len(got) != 5 {
			t.Errorf("%d of 5 completions were taken", len(got))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestCQWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestCQ(t, 8)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait past its deadline: %v", err)
		}
		done := make(chan error)
		go func() { done <- c.Wait(t.Context()) }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("Wait on a closed CQ: %v", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	})
}

// TestCQRemove: the completions of one QP go, those of others stay in order, also
// where the ring wraps.
func TestCQRemove(t *testing.T) {
	c := newTestCQ(t, 4)
	mine, other := &qp{}, &qp{}
	var wc [4]WC
	for range 3 {
		c.push(&WC{QP: other}, nil)
	}
	c.Poll(wc[:3])
	for i, q := range []*qp{mine, other, mine, other} {
		c.push(&WC{ID: uint64(i), QP: q}, nil)
	}
	c.remove(mine)
	if n := c.Poll(wc[:]); n != 2 || wc[0].ID != 1 || wc[1].ID != 3 {
		t.Errorf("%d completions left, %+v", n, wc)
	}
}
