package memory

import (
	"testing"

	"github.com/rdistcc/rdistcc/lab/exp"
	"github.com/rdistcc/rdistcc/lab/grant"
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

// open returns a bench with small buffers, and its device's domain as one that counts what is pinned.
func open(t *testing.T, locked *int) (*registration, iwarp.PD) {
	b := &registration{}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := b.open(4096); err != nil {
		t.Fatal(err)
	}
	count := func(by int) func([]byte) error {
		return func([]byte) error { *locked += by; return nil }
	}
	return b, &pinningPD{b.pd, count(1), count(-1)}
}

// TestRateOfHits: the cache hits as often as the name of the way says, and pins what it keeps and no more.
func TestRateOfHits(t *testing.T) {
	for _, hits := range []int{0, 50, 90, 100} {
		locked := 0
		b, pd := open(t, &locked)
		c, err := newCache(pd)
		if err != nil {
			t.Fatal(err)
		}
		do := through(c)
		if err := do(b.turn()); err != nil {
			t.Fatal(err)
		}
		before := c.Stats().Hits
		for range 100 {
			if _, err := b.registered(4096, do, hits); err != nil {
				t.Fatal(err)
			}
			if n := b.dev.Stats().MRs; n > kept || n != locked {
				t.Fatalf("%d %%: %d regions, %d pinned", hits, n, locked)
			}
		}
		if n := c.Stats().Hits - before; n != uint64(hits) {
			t.Errorf("%d of 100 transfers hit, want %d", n, hits)
		}
		if err := c.Close(); err != nil || locked != 0 || b.dev.Stats().MRs != 0 {
			t.Errorf("at the end %d regions, %d pinned, %v", b.dev.Stats().MRs, locked, err)
		}
	}
}

// TestPinnedOnlyWhileRegistered: without a cache nothing stays pinned, also when a registration fails.
func TestPinnedOnlyWhileRegistered(t *testing.T) {
	locked := 0
	b, pd := open(t, &locked)
	if err := once(pd)(b.turn()); err != nil || locked != 0 {
		t.Errorf("%d pinned, %v", locked, err)
	}
	if _, err := pd.RegMR(nil, rights, nil); err == nil || locked != 0 {
		t.Errorf("no bytes: %d pinned, %v", locked, err)
	}
}

// TestLateWrites: Revocation sees a late Write refused by each way that revokes, and land by the one that does not.
func TestLateWrites(t *testing.T) {
	r, err := exp.Run(t.Context(), Revocation, exp.Options{Size: exp.Tiny, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Revocation.Cells(exp.Tiny) {
		want := 0.0
		if c["way"] == grant.Kept.String() {
			want = 1
		}
		if i := r.Of(c, "late"); i.N != 1 || i.Median != want {
			t.Errorf("%s: %v of 1 late Writes landed, want %v", c.Key(), i, want)
		}
	}
}
