package results

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// TestCounts: each tier's looks, hits, errors, bytes and time are counted, and what it has saved.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := &memory{}, &memory{slow: 3 * time.Millisecond}
		c := New(Options{Tiers: []Tier{{Name: "near", Store: near, Read: true, Write: true}, {Name: "far", Store: far, Read: true, Write: true}}, Log: slog.New(slog.DiscardHandler), Count: func(string, string) {}})
		defer c.Close()
		look := func(n byte) *resultcache.Entry {
			e, _ := c.Find(t.Context(), &Look{Key: resultcache.Key{n}, Room: func(n int) ([]byte, error) { return make([]byte, n), nil }})
			return e
		}
		kept := func(n byte, cpu time.Duration) int {
			b, err := (&resultcache.Entry{Key: resultcache.Key{n}, Origin: resultcache.Origin{CPU: cpu}, Files: []resultcache.File{{Data: []byte("object")}}}).Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := far.Put(t.Context(), resultcache.Key{n}, b); err != nil {
				t.Fatal(err)
			}
			return len(b)
		}
		n := uint64(kept(1, time.Second))
		if look(2) != nil || look(1) == nil {
			t.Fatal("wrong results")
		}
		synctest.Wait() // near has a copy now
		if look(1) == nil {
			t.Fatal("no result")
		}
		far.err = errors.New("trouble")
		look(3)
		want := []Counts{
			{Tier: "near", Looks: 4, Hits: 1, Kept: 1, Read: n, Written: n, SavedCPU: time.Second},
			{Tier: "far", Looks: 3, Hits: 1, Errors: 1, Read: n, Time: 9 * time.Millisecond, SavedCPU: time.Second},
		}
		got := c.Counts()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("got %+v, want %+v", got[i], want[i])
			}
		}
	})
}

// TestNoBackFill: what is found in a tier stays there alone if it is to.
func TestNoBackFill(t *testing.T) {
	for _, no := range []bool{false, true} {
		near, far := &memory{}, &memory{}
		c := New(Options{Tiers: []Tier{{Name: "near", Store: near, Read: true, Write: true}, {Name: "far", Store: far, Read: true, Write: true}}, Log: slog.New(slog.DiscardHandler), Count: func(string, string) {}, NoBackFill: no})
		key := resultcache.Key{1}
		b, err := (&resultcache.Entry{Key: key}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := far.Put(t.Context(), key, b); err != nil {
			t.Fatal(err)
		}
		if e, tier := c.Find(t.Context(), &Look{Key: key, Room: func(n int) ([]byte, error) { return make([]byte, n), nil }}); e == nil || tier != "far" {
			t.Errorf("%v of %s", e, tier)
		}
		if err := c.Close(); err != nil { // waits for what is being written
			t.Error(err)
		}
		if near.has(key) == no {
			t.Errorf("no back-fill: %t; the tier in front has it: %t", no, near.has(key))
		}
	}
}
