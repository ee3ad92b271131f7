// Package storetest has the tests that every store of results passes, the tests of those behind a network when
// that or the server gives trouble, and what starts real servers for them.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// Entry returns an entry with one output of n bytes that cannot be made shorter, and its key.
func Entry(t testing.TB, number byte, n int) (resultcache.Key, []byte) {
	t.Helper()
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{number, 1}).Read(data) // never fails, according to its documentation
	e := &resultcache.Entry{Key: resultcache.Key{number, 7, 31: 0xee}, Files: []resultcache.File{{Data: data}}}
	b, err := e.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return e.Key, b
}

// Large is the size of the largest outputs that Suite keeps.
const Large = 20 << 20

// Suite tests an empty store that may be written to.
func Suite(t *testing.T, s resultcache.Store) {
	ctx := t.Context()
	t.Run("round trip", func(t *testing.T) {
		key, b := Entry(t, 1, 5000)
		Misses(t, s, key)
		if err := s.Drop(ctx, key); err != nil {
			t.Errorf("Drop of nothing: %v", err)
		}
		mustPut(t, s, key, b)
		Has(t, s, key, b)
		mustPut(t, s, key, b) // what is there already
		Has(t, s, key, b)
		if err := s.Drop(ctx, key); err != nil {
			t.Errorf("Drop: %v", err)
		}
		Misses(t, s, key)
	})
	t.Run("overwrite", func(t *testing.T) {
		key, b := Entry(t, 2, 3000)
		// Stores take bytes as they are, and give back what was written last.
		for _, entry := range [][]byte{[]byte("something else"), b[:len(b)/2], append(bytes.Clone(b), "longer"...), b} {
			mustPut(t, s, key, entry)
			Has(t, s, key, entry)
		}
		mustDrop(t, s, key)
	})
	t.Run("sizes", func(t *testing.T) {
		for i, n := range []int{0, 1, 100 << 10, 3 << 20, 4<<20 - 200, 4 << 20, Large} {
			key, b := Entry(t, byte(10+i), n)
			mustPut(t, s, key, b)
			Has(t, s, key, b)
			mustDrop(t, s, key)
		}
	})
	t.Run("neighbours", func(t *testing.T) {
		key, b := Entry(t, 3, 100)
		other, c := Entry(t, 4, 100)
		mustPut(t, s, key, b)
		mustPut(t, s, other, c)
		mustDrop(t, s, other)
		Misses(t, s, other)
		Has(t, s, key, b)
	})
	t.Run("concurrent use", func(t *testing.T) {
		var wg sync.WaitGroup
		for i := range byte(8) {
			wg.Go(func() {
				key, b := Entry(t, 100+i%4, 50<<10) // two at a time on each
				for range 10 {
					if err := s.Put(ctx, key, b); err != nil {
						t.Errorf("Put: %v", err)
					}
					Has(t, s, key, b)
				}
			})
		}
		wg.Wait()
	})
}

// Has tests that a store returns an entry.
func Has(t testing.TB, s resultcache.Store, key resultcache.Key, want []byte) {
	t.Helper()
	got, err := s.Get(t.Context(), key, append(make([]byte, 0, 64), "before"...))
	if err != nil || !bytes.Equal(got, append([]byte("before"), want...)) {
		t.Errorf("Get: %v, %d bytes, want %d that follow those in the buffer", err, len(got), len(want))
	}
}

// Misses tests that a store does not have an entry, and says so.
func Misses(t testing.TB, s resultcache.Store, key resultcache.Key) {
	t.Helper()
	got, err := s.Get(t.Context(), key, []byte("before"))
	if !errors.Is(err, resultcache.ErrMiss) || string(got) != "before" {
		t.Errorf("Get: %v, %q; want a miss", err, got)
	}
}

// Fails tests that a look into a store is an error, not a miss, and returns the error.
func Fails(t testing.TB, ctx context.Context, s resultcache.Store, key resultcache.Key) error {
	t.Helper()
	got, err := s.Get(ctx, key, []byte("before"))
	if err == nil || errors.Is(err, resultcache.ErrMiss) || string(got) != "before" {
		t.Errorf("Get: %v, %d bytes; want an error", err, len(got))
	}
	return err
}

func mustPut(t testing.TB, s resultcache.Store, key resultcache.Key, b []byte) {
	t.Helper()
	before := bytes.Clone(b)
	if err := s.Put(t.Context(), key, b); err != nil {
		t.Fatalf("Put of %d bytes: %v", len(b), err)
	}
	if !bytes.Equal(b, before) {
		t.Error("Put has changed the entry")
	}
}

func mustDrop(t testing.TB, s resultcache.Store, key resultcache.Key) {
	t.Helper()
	if err := s.Drop(t.Context(), key); err != nil {
		t.Fatalf("Drop: %v", err)
	}
}
