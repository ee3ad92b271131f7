//go:build ibverbs && cgo && linux

package ibverbs

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/test/kit/iwarptest"
	"github.com/rdistcc/rdistcc/lab/grant"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestPriceOfRevocation says what an STag for each job costs on this device, and what a peer can do where
// there is none.
func TestPriceOfRevocation(t *testing.T) {
	addr, device := target(t)
	for _, w := range grant.Ways {
		for _, size := range []int{64 << 10, 1 << 20, 8 << 20} {
			a := iwarptest.NewEnd(t, open(t, device), iwarp.QPInitAttr{})
			b := iwarptest.NewEnd(t, open(t, device), iwarp.QPInitAttr{})
			if !w.On(a.Dev.Attr()) {
				t.Logf("price: %s: not on this device", w)
				break
			}
			iwarptest.Connect(t, b, a, addr, nil, nil)
			buf := make([]byte, size)
			for i := range buf {
				buf[i] = 1
			}
			o, err := grant.Try(iwarptest.Context(t), grant.Side{Dev: a.Dev, PD: a.PD, QP: a.QP, CQ: a.CQ},
				grant.Side{Dev: b.Dev, PD: b.PD, QP: b.QP, CQ: b.CQ}, w, buf, 200, nil)
			if err != nil {
				t.Fatalf("%s, %d bytes: %v", w, size, err)
			}
			t.Logf("price: %s, %d KiB: %.1f us a job, a late Write %s", w, size>>10, float64(o.PerJob.Nanoseconds())/1000, o.Verdict)
			if (o.Verdict == grant.Landed) != (w == grant.Kept) {
				t.Errorf("%s: a late Write %s", w, o.Verdict)
			}
			iwarptest.Close(t, a.Dev)
			iwarptest.Close(t, b.Dev)
		}
	}
}
