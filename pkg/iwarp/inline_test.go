package iwarp_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// pingPong exchanges n small messages, each answered: after that both receiving sides are lent to the waiter.
func pingPong(t testing.TB, a, b *iwarptest.End, n int) {
	t.Helper()
	type half struct {
		e    *iwarptest.End
		recv *iwarp.RecvWR
	}
	send := &iwarp.SendWR{Op: iwarp.OpSend, Flags: iwarp.Inline | iwarp.Unsignaled, Data: []byte("ball")}
	var h [2]half
	for i, e := range []*iwarptest.End{a, b} {
		mr := e.Reg(t, make([]byte, 8), iwarp.LocalWrite, nil)
		h[i] = half{e, &iwarp.RecvWR{SGL: []iwarp.SGE{{Length: 8, LKey: mr.STag()}}}}
		if err := e.QP.PostRecv(h[i].recv); err != nil {
			t.Fatal(err)
		}
	}
	play := func(h half, serve bool) error {
		var wc [1]iwarp.WC
		for range n {
			if serve {
				if err := h.e.QP.PostSend(send); err != nil {
					return err
				}
			}
			if err := h.e.CQ.Wait(context.Background()); err != nil {
				return err
			}
			if h.e.CQ.Poll(wc[:]); wc[0].Status != iwarp.StatusSuccess {
				return h.e.QP.Err()
			}
			if err := h.e.QP.PostRecv(h.recv); err != nil {
				return err
			}
			if !serve {
				if err := h.e.QP.PostSend(send); err != nil {
					return err
				}
			}
		}
		return nil
	}
	done := make(chan error, 1)
	go func() { done <- play(h[1], false) }()
	if err := errors.Join(play(h[0], true), <-done); err != nil {
		t.Fatal(err)
	}
}

// TestLentSideGoesOn: a program that stops waiting does not stop the peer's
// Writes, nor does one that destroys its QP hang.
func TestLentSideGoesOn(t *testing.T) {
	iwarptest.CheckGoroutines(t)
	a, b := tcpPair(t)
	pingPong(t, a, b, 200)
	mr := b.Reg(t, make([]byte, 8), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	a.Post(t, &iwarp.SendWR{ID: 1, Op: iwarp.OpWrite, Flags: iwarp.Inline, Data: []byte("unasked"), STag: mr.STag()})
	a.WaitOK(t, 1)
	for b.QP.Stats().WritesReceived == 0 {
		if b.QP.State() != iwarp.StateRTS {
			t.Fatal(b.QP.Err())
		}
		time.Sleep(time.Millisecond)
	}
	if err := a.QP.Destroy(); err != nil {
		t.Error(err)
	}
	b.WaitDone(t)
}

func TestLentSideIsRecalled(t *testing.T) {
	a, b := tcpPair(t)
	pingPong(t, a, b, 200)
	if err := b.QP.Destroy(); err != nil { // while no goroutine is in Wait
		t.Error(err)
	}
	a.WaitDone(t)
}

// TestWaitWhileLent: a Wait that reads the connection returns for all reasons that
// any Wait does.
func TestWaitWhileLent(t *testing.T) {
	a, b := tcpPair(t)
	pingPong(t, a, b, 200)
	// in a Wait of b that reads now:
	waiting := make(chan error)
	wait := func(ctx context.Context) { waiting <- b.CQ.Wait(ctx) }

	ctx, cancel := context.WithCancel(t.Context())
	go wait(ctx)
	time.Sleep(time.Millisecond) // usually it is there by then; if not, it must work too
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}

	pingPong(t, a, b, 100)
	mr := b.Reg(t, make([]byte, 1<<20), 0, nil)
	sink := a.Reg(t, make([]byte, 1<<20), iwarp.LocalWrite|iwarp.RemoteWrite, nil)
	go wait(t.Context())
	time.Sleep(time.Millisecond)
	b.Post(t, &iwarp.SendWR{ID: 5, Op: iwarp.OpWrite, SGL: []iwarp.SGE{{Length: 1 << 20, LKey: mr.STag()}}, STag: sink.STag()})
	if err := <-waiting; err != nil {
		t.Errorf("a send's completion: %v", err)
	}
	b.WaitOK(t, 5)

	pingPong(t, a, b, 100)
	go wait(t.Context())
	time.Sleep(time.Millisecond)
	a.QP.Abort()
	if err := <-waiting; err != nil {
		t.Errorf("the peer's abort: %v", err)
	}
	if wc := b.Wait(t); wc.Status != iwarp.StatusWRFlushErr {
		t.Errorf("after the peer's abort: %+v", wc)
	}
	b.WaitDone(t)
}
