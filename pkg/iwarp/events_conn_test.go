package iwarp_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// events are the kinds of those that wait on a device.
func events(d iwarp.Device) (kinds []iwarp.EventKind) {
	for {
		select {
		case e := <-d.Events():
			kinds = append(kinds, e.Kind)
		default:
			return kinds
		}
	}
}

// TestEachConnectionEventOnce covers CM-27: a request is reported once and accepted or rejected once; Dial
// and Accept return the outcome; each side is told of the end once.
func TestEachConnectionEventOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *iwarptest.Network) {
		newEnd := func(d iwarp.Device) *iwarptest.End { return iwarptest.NewEnd(t, d, iwarp.QPInitAttr{}) }
		da, db := iwarptest.Open(t, n.Config()), iwarptest.Open(t, n.Config())
		l, err := db.Listen(t.Context(), "127.0.0.1:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		dial := func() (*iwarptest.End, chan error) {
			a, done := newEnd(da), make(chan error, 2)
			go func() {
				_, err := da.Dial(t.Context(), l.Addr().String(), a.QP, nil)
				done <- err
			}()
			return a, done
		}
		request := func() iwarp.ConnRequest {
			r, err := l.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, err := l.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the request is reported twice, or: %v", err)
			}
			return r
		}
		// Accepted.
		a, dialled := dial()
		r, b := request(), newEnd(db)
		if err := errors.Join(r.Accept(t.Context(), b.QP, nil), <-dialled); err != nil {
			t.Fatal(err)
		}
		if err := r.Accept(t.Context(), newEnd(db).QP, nil); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("accepted twice: %v", err)
		}
		if err := r.Reject(nil); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("accepted and rejected: %v", err)
		}
		synctest.Wait()
		if x, y := events(da), events(db); len(x)+len(y) > 0 {
			t.Errorf("connecting made events %v, %v", x, y)
		}
		// Disconnected.
		done := make(chan error, 1)
		go func() { done <- a.QP.Disconnect(t.Context()) }()
		if err := errors.Join(<-done, b.WaitDone(t), a.WaitDone(t)); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if x, y := events(da), events(db); len(x) != 0 || len(y) != 1 || y[0] != iwarp.EventPeerClosed {
			t.Errorf("disconnecting made events %v, %v; want one that the peer has closed", x, y)
		}
		// Rejected.
		a, dialled = dial()
		r = request()
		if err := r.Reject(nil); err != nil {
			t.Error(err)
		}
		if rej := (*iwarp.RejectedError)(nil); !errors.As(<-dialled, &rej) {
			t.Error("the initiator was not told")
		}
		if err := r.Accept(t.Context(), newEnd(db).QP, nil); !errors.Is(err, iwarp.ErrInvalid) {
			t.Errorf("rejected and accepted: %v", err)
		}
		<-a.QP.Done()
		// Unreachable.
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		a, dialled = dial()
		if err := <-dialled; err == nil {
			t.Error("connected to nobody")
		}
		<-a.QP.Done()
		synctest.Wait()
		if x, y := events(da), events(db); len(x)+len(y) > 0 {
			t.Errorf("what Dial has returned is said again: %v, %v", x, y)
		}
	})
}
