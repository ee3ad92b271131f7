package inproc

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func ends(t *testing.T) (a, b *iwarptest.End) {
	n := NewNetwork()
	da, db := n.Open(Defaults()), n.Open(Defaults())
	t.Cleanup(func() { iwarptest.Close(t, da); iwarptest.Close(t, db) })
	return iwarptest.NewEnd(t, da, iwarp.QPInitAttr{}), iwarptest.NewEnd(t, db, iwarp.QPInitAttr{})
}

var hello = &iwarp.SendWR{ID: 7, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hello")}

// TestResponderWaitsItsTurn: without an RTR message the responder's requests wait
// for the initiator's first one, in their order, a graceful end among them.
func TestResponderWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ends(t)
		a.Recv(t, 1, 8)
		b.Recv(t, 2, 8)
		iwarptest.Connect(t, a, b, "b:0", &iwarp.ConnParam{ClientServer: true}, nil)
		b.Post(t, hello)
		var wc [1]iwarp.WC
		if b.CQ.Poll(wc[:])+a.CQ.Poll(wc[:]) != 0 {
			t.Fatalf("a responder spoke first: %+v", wc[0])
		}
		done := make(chan error, 1)
		go func() { done <- b.QP.Disconnect(iwarptest.Context(t)) }()
		synctest.Wait()
		if s := b.QP.State(); s != iwarp.StateClosing {
			t.Errorf("state %s, want CLOSING", s)
		}
		a.Post(t, hello)
		a.WaitOK(t, 7)
		b.WaitOK(t, 2)
		b.WaitOK(t, 7)
		a.WaitOK(t, 1)
		if err := <-done; err != nil || a.WaitDone(t) != nil {
			t.Errorf("graceful end: %v, %v", err, a.QP.Err())
		}
	})
}

// TestResponderIsCutOff: what waits for a turn that never comes is flushed.
func TestResponderIsCutOff(t *testing.T) {
	a, b := ends(t)
	iwarptest.Connect(t, a, b, "b:0", &iwarp.ConnParam{Rev: 1}, nil)
	b.Post(t, hello)
	if err := a.QP.Disconnect(iwarptest.Context(t)); err != nil {
		t.Fatal(err)
	}
	if wc := b.Wait(t); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
		t.Errorf("%+v", wc)
	}
}

func TestSendFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := ends(t)
		a.Recv(t, 1, 8)
		start := time.Now()
		iwarptest.Connect(t, a, b, "b:0", &iwarp.ConnParam{ClientServer: true}, &iwarp.ConnParam{SendFirst: time.Second})
		if d := time.Since(start); d != time.Second {
			t.Errorf("accepted after %v, want 1s", d)
		}
		b.Post(t, hello)
		a.WaitOK(t, 1)
	})
}

// TestNoCommonRTR: both sides learn that they do not fit.
func TestNoCommonRTR(t *testing.T) {
	a, b := ends(t)
	ctx := iwarptest.Context(t)
	l, err := b.Dev.Listen(ctx, "b:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(ctx)
		if err == nil {
			err = r.Accept(ctx, b.QP, &iwarp.ConnParam{RTR: iwarp.RTRSend})
		}
		accepted <- err
	}()
	_, err = a.Dev.Dial(ctx, l.Addr().String(), a.QP, &iwarp.ConnParam{RTR: iwarp.RTRWrite | iwarp.RTRRead})
	for side, err := range []error{err, <-accepted} {
		var te *iwarp.TerminateError
		if !errors.As(err, &te) || te.Layer != 2 || te.Code != 7 || te.FromPeer != (side == 1) {
			t.Errorf("side %d: %v, want a Terminate 2/0/07", side, err)
		}
	}
	if a.QP.State() != iwarp.StateError || b.QP.State() != iwarp.StateError {
		t.Errorf("states %s, %s", a.QP.State(), b.QP.State())
	}
}

// TestDepths covers the arithmetic of RFC 6581 §9.1 (CM-07 to CM-09, CM-12, CM-13).
func TestDepths(t *testing.T) {
	const whatever = iwarp.DepthAny
	for _, w := range []struct {
		name                   string
		a, b                   iwarp.ConnParam
		aORD, aIRD, bORD, bIRD uint16 // in force
		aPeerORD, aPeerIRD     uint16 // what the initiator is told
	}{
		{"plain", iwarp.ConnParam{ORD: 4, IRD: 3}, iwarp.ConnParam{ORD: 2, IRD: 9}, 4, 3, 2, 9, 2, 9},
		{"ORD within the peer's IRD", iwarp.ConnParam{ORD: 4, IRD: 3}, iwarp.ConnParam{ORD: 8, IRD: 2}, 2, 3, 3, 2, 3, 2},
		{"none", iwarp.ConnParam{}, iwarp.ConnParam{ORD: 8, IRD: 8}, 0, 0, 0, 8, 0, 8},
		{"limits", iwarp.ConnParam{ORD: 1000, IRD: 1000}, iwarp.ConnParam{ORD: 1000, IRD: 1000}, 128, 128, 128, 128, 128, 128},
		{"any", iwarp.ConnParam{ORD: whatever, IRD: whatever}, iwarp.ConnParam{ORD: 5, IRD: 6}, 128, 128, 5, 6, whatever, whatever},
		{"RTR by Read", iwarp.ConnParam{RTR: iwarp.RTRRead}, iwarp.ConnParam{}, 0, 0, 0, 1, 0, 1},
		{"revision 1", iwarp.ConnParam{Rev: 1, ORD: 3, IRD: 4}, iwarp.ConnParam{ORD: 5, IRD: 6}, 3, 4, 5, 6, 0, 0},
	} {
		d := NewNetwork().Open(Defaults()).(*device)
		x, y := wish{p: w.a, q: &qp{dev: d}}, wish{p: w.b, q: &qp{dev: d}}
		a, b, ok := agree(&x, &y)
		if !ok || a.ORD != w.aORD || a.IRD != w.aIRD || b.ORD != w.bORD || b.IRD != w.bIRD || a.PeerORD != w.aPeerORD || a.PeerIRD != w.aPeerIRD {
			t.Errorf("%s: initiator %+v, responder %+v", w.name, a, b)
		}
	}
}

// TestLateAccept: an initiator that has given up is not connected any more.
func TestLateAccept(t *testing.T) {
	a, b := ends(t)
	ctx := iwarptest.Context(t)
	l, err := b.Dev.Listen(ctx, "b:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	dctx, cancel := context.WithCancel(ctx)
	dialled := make(chan error, 1)
	go func() {
		_, err := a.Dev.Dial(dctx, l.Addr().String(), a.QP, nil)
		dialled <- err
	}()
	r, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-dialled; !errors.Is(err, context.Canceled) {
		t.Errorf("Dial: %v", err)
	}
	if err := r.Accept(ctx, b.QP, nil); err == nil {
		t.Error("accepted an initiator that had gone")
	}
	if err := r.Reject(nil); err == nil {
		t.Error("rejected an initiator that had gone")
	}
}
