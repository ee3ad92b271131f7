package shelves

import (
	"bytes"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rdistcc/rdistcc/pkg/resultcache"
)

// benched returns the shelf of one tenant: in a file if disk is not 0. With a file, clean opens it again, as after a
// restart, and returns how long that took.
func benched(b *testing.B, budget, disk int64) (t *Tenant, again func() time.Duration) {
	b.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "rdistcc-shelves-")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { os.RemoveAll(dir) })
	o := Options{Budget: budget, Dir: dir, Disk: disk}
	s := New(o)
	b.Cleanup(func() { s.Close() })
	if t, err = s.Join("tenant"); err != nil || t == nil || (t.file != nil) != (disk > 0) {
		b.Fatal(t, err)
	}
	return t, func() time.Duration {
		s.Leave(t)
		s.Close()
		began := time.Now()
		s = New(o)
		if t, err = s.Join("tenant"); err != nil {
			b.Fatal(err)
		}
		return time.Since(began)
	}
}

// BenchmarkPut is what a job waits for until its result of 10 KB is kept, in memory or by the goroutine of a file, and how long
// that one takes.
func BenchmarkPut(b *testing.B) {
	e := bytes.Repeat([]byte("r"), 10<<10)
	key := func(n uint64) resultcache.Key {
		return resultcache.Key{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}
	}
	put := func(b *testing.B, f func(n uint64) bool) {
		b.ReportAllocs()
		b.SetBytes(int64(len(e)))
		for n := uint64(0); b.Loop(); n++ {
			f(n)
		}
	}
	b.Run("memory", func(b *testing.B) {
		t, _ := benched(b, 64<<20, 0)
		put(b, func(n uint64) bool { return t.Put(key(n), e) })
	})
	b.Run("file", func(b *testing.B) {
		t, _ := benched(b, 64<<20, 1<<30)
		put(b, func(n uint64) bool {
			ok := t.Put(key(n), e)
			if t.file.waiting.Load() > maxQueued/2 { // hosts do not compile as fast as that
				b.StopTimer()
				for t.file.waiting.Load() > 0 {
					time.Sleep(100 * time.Microsecond)
				}
				b.StartTimer()
			}
			return ok
		})
	})
	b.Run("written", func(b *testing.B) {
		t, _ := benched(b, 64<<20, 1<<30)
		put(b, func(n uint64) bool {
			t.file.grow(uint64(len(e)))
			return t.Shelf.Put(key(n), e)
		})
	})
}

// BenchmarkOpen is how long it takes to open a file of an earlier daemon that is full of entries of 4 KB, the most that
// there may be, in the page cache.
func BenchmarkOpen(b *testing.B) {
	for _, disk := range []int64{256 << 20, 4 << 30} {
		b.Run(fmt.Sprint(disk>>20), func(b *testing.B) {
			t, again := benched(b, 64<<20, disk)
			e := bytes.Repeat([]byte("r"), 4000)
			for n := uint64(0); ; n++ {
				t.file.grow(uint64(len(e)))
				if t.Shelf.Put(resultcache.Key{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}, e); t.Shelf.Stats().Evicted > 0 {
					b.ReportMetric(float64(n), "entries")
					break
				}
			}
			var sum time.Duration
			n := 0
			for b.Loop() {
				sum += again()
				n++
			}
			b.ReportMetric(float64(sum.Milliseconds())/float64(n), "ms/open")
		})
	}
}
