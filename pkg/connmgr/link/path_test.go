package link

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

// TestPath: estimates from what the transport measures.
func TestPath(t *testing.T) {
	tell := func(s ...iwarp.PathStats) (p path) {
		for i := range s {
			p.tell(s[i])
		}
		return p
	}
	const ms = time.Millisecond
	slow := tell(iwarp.PathStats{RTT: 10 * ms, Window: 1 << 20, Rate: 1e6})
	if d := slow.transfer(2e6); d != 2*time.Second {
		t.Errorf("2 MB at 1 MB/s: %v", d)
	}
	far := tell(iwarp.PathStats{RTT: 50 * ms, Window: 14 << 10, Rate: 280e3, Floor: true})
	if d := far.transfer(1 << 20); d != 300*ms { // 14, 28, 56 ... 896 KiB: the seventh window holds the rest
		t.Errorf("1 MiB through a window of 14 KiB, 50 ms: %v, want 6 round trips", d)
	}
	lan := tell(iwarp.PathStats{RTT: ms / 5, Window: 1 << 20, Rate: 1.2e9})
	gigabit := tell(iwarp.PathStats{RTT: ms / 5, Window: 1 << 20, Rate: 110e6})
	near := slow
	near.near = true
	unknown := path{}
	for _, x := range []struct {
		name string
		p    *path
		n    uint64
		want bool
	}{
		{"slow", &slow, 1 << 20, true}, {"slow", &slow, 100, false},
		{"far", &far, 1 << 20, true}, {"far", &far, 10 << 10, false},
		{"10 Gbit/s", &lan, 1 << 20, false}, {"1 Gbit/s", &gigabit, 1 << 20, true}, {"1 Gbit/s", &gigabit, 4 << 10, false},
		{"loopback", &near, 1 << 20, false}, {"not known", &unknown, 1 << 20, false},
	} {
		if got := x.p.packs(x.n, sourceLeft); got != x.want {
			t.Errorf("%s: %d bytes packed: %t, want %t", x.name, x.n, got, x.want)
		}
	}
	// A sample from a connection that had little to send does not lower the rate; others do, bit by bit.
	faded := tell(iwarp.PathStats{RTT: ms, Rate: 1e8}, iwarp.PathStats{RTT: ms, Rate: 1e4, Floor: true})
	if faded.rate != 1e8 || faded.floor {
		t.Errorf("rate %g, floor %t after a sample that says nothing", faded.rate, faded.floor)
	}
	faded.tell(iwarp.PathStats{RTT: ms, Rate: 1e4})
	if faded.rate != 0.8e8 {
		t.Errorf("rate %g after a slow moment, want 0.8e8", faded.rate)
	}
}
