package iwarp_test

import (
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestDisconnectWaitsItsTurn: "the responder MUST NOT send any FPDU before it has
// received and validated one" (after RFC 5044 §7.1.2, rule 4), not even the work that
// a Disconnect drains (MPA-19).
func TestDisconnectWaitsItsTurn(t *testing.T) {
	for name, speaks := range map[string]bool{"the initiator speaks": true, "the initiator leaves": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := iwarptest.NewNetwork()
				a := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				b := iwarptest.NewEnd(t, iwarptest.Open(t, n.Config()), iwarp.QPInitAttr{})
				a.Recv(t, 1, 8)
				b.Recv(t, 2, 8)
				iwarptest.Connect(t, a, b, "127.0.0.1:0", &iwarp.ConnParam{ClientServer: true}, nil)
				hello := &iwarp.SendWR{ID: 7, Op: iwarp.OpSend, Flags: iwarp.Inline, Data: []byte("hello")}
				b.Post(t, hello)
				done := make(chan error, 1)
				go func() { done <- b.QP.Disconnect(iwarptest.Context(t)) }()
				synctest.Wait()
				if s := b.QP.State(); s != iwarp.StateClosing || b.QP.Stats().FPDUsSent != 0 {
					t.Fatalf("state %s, %d FPDUs sent before the initiator's first", s, b.QP.Stats().FPDUsSent)
				}
				if !speaks {
					if err := a.QP.Disconnect(iwarptest.Context(t)); err != nil {
						t.Error(err)
					}
					b.WaitDone(t)
					<-done
					if wc := b.Wait(t); wc.ID != 7 || wc.Status != iwarp.StatusWRFlushErr {
						t.Errorf("the send that had no turn: %+v", wc)
					}
					return
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
		})
	}
}
