package inproc

import (
	"testing"
	"testing/synctest"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func TestSuite(t *testing.T) {
	iwarptest.Suite(t, func(testing.TB) (iwarp.Device, iwarp.Device, string) {
		n := NewNetwork()
		return n.Open(Defaults()), n.Open(Defaults()), "somewhere:0"
	})
}

// TestSuiteOneDevice connects a device with itself.
func TestSuiteOneDevice(t *testing.T) {
	iwarptest.Suite(t, func(testing.TB) (iwarp.Device, iwarp.Device, string) {
		d := NewNetwork().Open(Defaults())
		return d, d, "somewhere:0"
	})
}

// TestDialTimesOutInBubble shows that a Dial which is neither accepted nor rejected ends, and leaves nothing behind.
func TestDialTimesOutInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewNetwork().Open(Defaults())
		defer iwarptest.Close(t, d)
		e := iwarptest.NewEnd(t, d, iwarp.QPInitAttr{})
		l, err := d.Listen(t.Context(), "a:0", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Dial(t.Context(), l.Addr().String(), e.QP, nil); err == nil {
			t.Error("Dial succeeded, and nobody had accepted")
		}
		if s := d.Stats(); s.HalfOpen != 0 || e.QP.State() != iwarp.StateError {
			t.Errorf("after a Dial that timed out: %d half open, QP %s", s.HalfOpen, e.QP.State())
		}
	})
}
