package lend

import (
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/internal/job"
)

// TestReclaim: the tenant with most in slots loses the connection with most, but only if there is not enough
// memory for all.
func TestReclaim(t *testing.T) {
	s := newSite(Options{Cores: 4, Credits: Unlimited})
	a, b, other := s.add("a", 1), s.add("a", 1), s.add("b", 1)
	for _, c := range []*Conn{a, b, other} {
		s.Grant(c, s.now)
	}
	if s.MayReclaim(48 << 20) {
		t.Error("where nothing is known of memory")
	}
	list := []Filled{{a, 24 << 20}, {other, 30 << 20}, {b, 40 << 20}}
	for free, want := range map[uint64]*Conn{94 << 20: nil, 93 << 20: b} {
		s.SetMemory(free, job.NoPressure)
		if !s.MayReclaim(48 << 20) {
			t.Errorf("%d MiB for three slots of 48 are enough", free>>20)
		}
		if got, of, sum := s.Reclaim(list); got != want || got != nil && of != 64<<20 || sum != 94<<20 {
			t.Errorf("with %d MiB free: %p, %d of %d bytes; want %p", free>>20, got, of, sum, want)
		}
	}
	if s.MayReclaim(30 << 20) {
		t.Error("90 MiB do not fit into 93")
	}
	b.End()
	s.SetMemory(20<<20, job.NoPressure)
	if got, _, _ := s.Reclaim(list); got != other {
		t.Errorf("beside a connection that ends already: %p, want %p", got, other)
	}
	k := a.credits[0]
	if k.Lies(s.now) || !k.Lies(s.now.Add(reclaimAge)) || k.Lies(s.now.Add(reclaimAge-time.Millisecond)) {
		t.Error("a credit's age")
	}
}
