package memory

import (
	"testing"

	"github.com/rdistcc/rdistcc/internal/exp"
	"github.com/rdistcc/rdistcc/pkg/iwarp"
)

func TestRunsThrough(t *testing.T) {
	r, err := exp.Run(t.Context(), Registration, exp.Options{Size: exp.Tiny, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	if i := r.Of(way(software, intoPool, "65536"), "took"); i.N != 1 || i.Median <= 0 {
		t.Errorf("%+v", i)
	}
}

// TestPinCache: a hit returns what was registered, and never more is registered than the cache may keep.
func TestPinCache(t *testing.T) {
	dev, err := iwarp.Open(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	locked := 0
	d := &device{pd: pd, lock: func([]byte) error { locked++; return nil }, free: func([]byte) error { locked--; return nil }}
	c := &pinCache{device: d, most: 2}
	var bufs [3][]byte
	for i := range bufs {
		bufs[i] = make([]byte, 64)
	}
	stags := make(map[int]iwarp.STag)
	for i, want := range []struct {
		buf int
		hit bool
	}{{0, false}, {0, true}, {1, false}, {0, true}, {2, false}, {1, false}, {2, true}, {0, false}} {
		mr, err := c.Get(bufs[want.buf])
		if err != nil {
			t.Fatal(err)
		}
		if hit := mr.STag() == stags[want.buf]; hit != want.hit {
			t.Errorf("step %d, buffer %d: hit %v", i, want.buf, hit)
		}
		stags[want.buf] = mr.STag()
		if n := dev.Stats().MRs; n > 2 || n != locked {
			t.Errorf("step %d: %d regions, %d locked", i, n, locked)
		}
	}
	if err := c.Close(); err != nil || locked != 0 || dev.Stats().MRs != 0 {
		t.Errorf("at the end %d regions, %d locked, %v", dev.Stats().MRs, locked, err)
	}
}
